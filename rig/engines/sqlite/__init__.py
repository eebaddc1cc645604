"""SQLite: its spec and driver, the syncs it makes, builds of the user's own, and a program that trusts the clock."""
