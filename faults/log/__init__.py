"""The write log: what it says, what it proves, and its epochs."""
