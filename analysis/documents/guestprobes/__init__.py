"""Experiments of the claims that run in a guest, which loads their modules by name."""
