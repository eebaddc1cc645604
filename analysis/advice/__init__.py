"""Which setting to choose."""
