"""The spec of MariaDB: which of the variables that make its logs durable is not as it is by default."""

from __future__ import annotations

from rig.engines.engine import Sharing, Spec
from rig.engines.mariadb.options import SETTING, WORDS
from rig.workloads.events import EventKind
from rig.workloads.operations import Skill

SPEC = Spec(
    name="mariadb",
    # See `rig.engines.mariadb.options` for what each stands for.
    settings={SETTING: WORDS},
    tuning={
        "innodb_buffer_pool_size": "6291456",
        # Changed pages are written within a second, so that a run of 40 transactions has checkpoints: by default one
        # waits until its log of 4 MB, the smallest that there is, is full.
        "innodb_max_dirty_pages_pct": "0.000000",
    },
    skills=frozenset({Skill.SAVEPOINTS, Skill.ROLLBACK}),
    events={EventKind.VACUUM: ("optimize",)},
    unprotected={SETTING: ("nodoublewrite",)},
    strict=("default", "flush3", "fsync", "odsync", "binlog1"),
    cross_checks=("default", "flush2"),
    warm=("default",),
    # The system tables are 90 files, and each start makes one of the binary log: after a hundred kills, a hundred.
    file_count=400,
    # A server takes a second or more to start.
    state_limit_s=60,
    # A server dies a moment later than the process that started it, and until then no other can be started.
    survives_fork=False,
    grows_at_checkpoint=False,
    immune={
        "ioerror-read": "its server holds what it has read in memory of its own, so nothing is read again",
        "diskfull-log": "its log is written in place, in a file of fixed size",
    },
    sharing=Sharing.SERVER,
    is_default=False,
)
