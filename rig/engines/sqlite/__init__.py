"""SQLite: its settings and driver, the syncs that it makes, and builds of the user's own."""

from rig.engines.sqlite.driver import FILE, SETTINGS, TUNING, UNPROTECTED, is_fault, open_database

__all__ = ["FILE", "SETTINGS", "TUNING", "UNPROTECTED", "is_fault", "open_database"]
