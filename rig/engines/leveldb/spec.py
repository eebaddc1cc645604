"""The spec of LevelDB: how it reads, and how it writes, in the words of its documentation."""

from __future__ import annotations

from rig.engines.engine import Sharing, Spec

SPEC = Spec(
    name="leveldb",
    # Options::paranoid_checks, false by default; and WriteOptions::sync.
    settings={"checks": ("default", "paranoid"), "writes": ("async", "sync")},
    # The smallest size that LevelDB accepts, so that a short run sees new logs and tables.
    tuning={"write_buffer_size": str(64 << 10)},
    strict=("default_sync",),
    cross_checks=("default_sync", "default_async"),
    warm=("default_sync", "paranoid_async"),
    # The threads that write tables belong to the process; a fork does not have them.
    survives_fork=False,
    immune={"ioerror-read": "its tables are mapped into memory, and pages stay there"},
    sharing=Sharing.THREADS,
    is_default=False,
)
