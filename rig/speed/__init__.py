"""How fast settings are on the user's own disk, measured natively, without a virtual machine, as that user."""
