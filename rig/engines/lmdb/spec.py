"""The spec of LMDB: its flags, in the words of lmdb.h without the prefix."""

from __future__ import annotations

from rig.engines.engine import Sharing, Spec
from rig.workloads.operations import Skill

SPEC = Spec(
    name="lmdb",
    # `default` sets no flag; `mapasync` is MDB_WRITEMAP with MDB_MAPASYNC, as the documentation pairs them.
    settings={"flags": ("mapasync", "nosync", "nometasync", "writemap", "default")},
    # With MDB_WRITEMAP the file is as large as the map, and each crash state's check reads all of it.
    tuning={"map_size": str(2 << 20)},
    tuning_of={"*.life": {"map_size": str(48 << 20)}, "*.rough": {"map_size": str(48 << 20)}},
    skills=frozenset({Skill.ROLLBACK}),
    unprotected={"flags": ("mapasync", "nosync")},
    strict=("default", "writemap"),
    cross_checks=("default", "nosync"),
    warm=("default", "writemap"),
    immune={
        "discard": "it never gives space back to the file system, so no discard takes effect",
        "diskfull-log": "it has no log",
        "ioerror-read": "its file is mapped into memory, and pages stay there",
    },
    sharing=Sharing.PROCESSES,
    is_default=False,
)
