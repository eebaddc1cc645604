"""The spec of MariaDB: which of the variables that make its logs durable differs from its default."""

from __future__ import annotations

from rig.engines.engine import Sharing, Spec
from rig.engines.mariadb.options import SETTING, WORDS
from rig.workloads.events import EventKind
from rig.workloads.operations import Skill

SPEC = Spec(
    name="mariadb",
    # See `rig.engines.mariadb.options` for the meaning of each word.
    settings={SETTING: WORDS},
    tuning={
        "innodb_buffer_pool_size": "6291456",
        # Changed pages are written within a second, so that a run of 40 transactions has checkpoints. By default a
        # checkpoint waits until the log of 4 MB, the smallest possible, is full.
        "innodb_max_dirty_pages_pct": "0.000000",
    },
    skills=frozenset({Skill.SAVEPOINTS, Skill.ROLLBACK}),
    events={EventKind.VACUUM: ("optimize",)},
    unprotected={SETTING: ("nodoublewrite",)},
    strict=("default", "flush3", "fsync", "odsync", "binlog1"),
    cross_checks=("default", "flush2"),
    warm=("default",),
    # The system tables are 90 files, and each start adds a file of the binary log: a hundred after a hundred kills.
    file_count=400,
    # A server takes a second or more to start.
    state_limit_s=60,
    # A server dies a moment later than the process that started it; until then no other server can be started.
    survives_fork=False,
    grows_at_checkpoint=False,
    immune={
        "ioerror-read": "its server holds what it has read in memory of its own, so nothing is read again",
        "diskfull-log": "its log is written in place, in a file of fixed size",
    },
    sharing=Sharing.SERVER,
    is_default=False,
)
