"""All that knows what documents claim about durability and speed."""
