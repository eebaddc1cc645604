"""What a part of a file is: a record of the log or of the manifest, the name of the manifest, a table."""

from rig.engines.logrecords import role

__all__ = ["role"]
