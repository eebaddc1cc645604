"""Tables, pictures and the report."""
