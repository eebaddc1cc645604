"""The spec of LevelDB: how it reads, and how it writes, in the words of its documentation."""

from __future__ import annotations

from rig.engines.engine import Spec

SPEC = Spec(
    name="leveldb",
    # Options::paranoid_checks, false as by default or true; and WriteOptions::sync.
    settings={"checks": ("default", "paranoid"), "writes": ("async", "sync")},
    # The smallest that it takes, so that a short run sees the log change and tables written.
    tuning={"write_buffer_size": str(64 << 10)},
    strict=("default_sync",),
    cross_checks=("default_sync", "default_async"),
    warm=("default_sync", "paranoid_async"),
    # Tables are written by threads that live as long as the process.
    survives_fork=False,
    is_default=False,
)
