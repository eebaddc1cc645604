"""Process 1 of the guest."""
