"""The spec of RocksDB: how a transaction is written and its log recovered, in the words of its options."""

from __future__ import annotations

from rig.engines.engine import Spec
from rig.engines.rocksdb.options import SETTING

SPEC = Spec(
    name="rocksdb",
    # See `rig.engines.rocksdb.options` for the meaning of each word. RocksDB's default is `nosync`.
    settings={
        SETTING: (
            "nowal", "atomicflush", "manualwal",
            "nosync-skipany", "nosync-absolute", "nosync-tolerate", "nosync",
            "flushwal", "sync-absolute", "sync-tolerate", "sync",
        ),
    },
    tuning={
        "create_if_missing": "true",
        # Small enough that a short run writes tables and begins new logs.
        "write_buffer_size": str(64 << 10),
        "db_write_buffer_size": str(64 << 10),
        "max_total_wal_size": str(16 << 10),
        # Its log for people has the time in each line: next to the database it would make all crash states differ.
        "db_log_dir": "/run",
        "keep_log_file_num": "1",
    },
    unprotected={SETTING: ("nowal", "nosync-skipany", "nosync-absolute", "nosync-tolerate")},
    volatile={SETTING: ("nowal",)},
    strict=("sync", "flushwal"),
    cross_checks=("sync", "nosync"),
    warm=("sync", "nosync-absolute", "flushwal", "atomicflush"),
    # The threads that write tables belong to the process; a fork does not have them.
    survives_fork=False,
    immune={"ioerror-read": "its cache of blocks cannot be emptied, so nothing is read again"},
    # Measured with rocksdict 0.3.29: other threads of Python stand still while it writes a batch.
    alone_because="its binding for Python carries out one write at a time, so nothing of RocksDB would be measured; "
    "db_bench has threads of its own, see --document",
    is_default=False,
)  # fmt: skip
