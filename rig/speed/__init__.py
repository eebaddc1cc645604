"""How fast settings are on the user's own disk: natively, without a machine, as the user."""
