"""The spec of PostgreSQL: which of the parameters that make its log durable differs from its default."""

from __future__ import annotations

from rig.engines.engine import Sharing, Spec
from rig.engines.postgresql.options import SETTING, WORDS
from rig.workloads.events import EventKind
from rig.workloads.operations import Skill

SPEC = Spec(
    name="postgresql",
    # See `rig.engines.postgresql.options` for the meaning of each word.
    settings={SETTING: WORDS},
    tuning={
        "shared_buffers": "1MB",
        "wal_buffers": "64kB",
        # The smallest possible values, with log segments of 1 MB, so that a run of 40 transactions has checkpoints.
        "checkpoint_timeout": "30s",
        "min_wal_size": "2MB",
        "max_wal_size": "2MB",
    },
    skills=frozenset({Skill.SCHEMA, Skill.SAVEPOINTS, Skill.ROLLBACK}),
    # Autovacuum is off, so that nothing happens at times of its own.
    events={EventKind.VACUUM: ("plain", "full")},
    unprotected={SETTING: ("nofsync", "nofullpages")},
    strict=("default", "opendatasync"),
    cross_checks=("default", "async"),
    warm=("default",),
    # Its catalogue alone is 300 files.
    file_count=1000,
    # A server takes a second or more to start.
    state_limit_s=60,
    # A server dies a moment later than the process that started it; until then no other server can be started.
    survives_fork=False,
    grows_at_checkpoint=False,
    immune={"ioerror-read": "its server holds what it has read in memory of its own, so nothing is read again"},
    sharing=Sharing.SERVER,
    is_default=False,
)
