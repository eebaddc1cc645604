"""What users' programs go through besides cuts."""
