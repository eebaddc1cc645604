"""SQLite: spec and driver, the syncs it makes, the user's own builds, and a program that trusts the clock."""
