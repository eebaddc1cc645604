"""One module a database. The host reads the settings; drivers are imported inside functions, in the guest."""

from rig.engines.engine import Database, Engine, named

__all__ = ["Database", "Engine", "named"]
