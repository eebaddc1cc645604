"""The spec of SQLite, its settings in the words of its pragmas."""

from __future__ import annotations

from rig.contract.injections import CLOCKS
from rig.engines.engine import ControlProgram, Sharing, Spec
from rig.engines.sqlite import situations
from rig.engines.sqlite.tunings import TUNINGS
from rig.engines.sqlite.upkeep import EVENTS
from rig.workloads.operations import Skill

# A cache so small that some transactions spill.
_LIFE = {"cache_size": "10", "auto_vacuum": "incremental"}
# Of pages smaller than a block of the file system one lands without another, and a log of them is long. They are known
# to be too much for a rollback journal whose removal is not synced (docs/findings/index.md), so only a WAL has them.
_SMALL = {"page_size": "1024", "cache_size": "40", "wal_autocheckpoint": "120"}
SPEC = Spec(
    name="sqlite",
    settings={
        "journal_mode": ("delete", "truncate", "persist", "wal", "memory", "off"),
        "synchronous": ("off", "normal", "full", "extra"),
    },
    # A short run must see several checkpoints; it would never reach SQLite's default of 1000 pages.
    tuning={"page_size": "4096", "wal_autocheckpoint": "60"},
    tuning_of={"*.life": _LIFE, "wal_*.life": _SMALL, "*.rough": {**_LIFE, "page_size": "1024"}},
    tunings=TUNINGS,
    skills=frozenset(Skill),
    events=EVENTS,
    situations=situations.HAPPEN,
    met=situations.MET,
    unprotected={"journal_mode": ("memory", "off"), "synchronous": ("off",)},
    # Without a journal on disk, a kill during a commit may damage the database.
    volatile={"journal_mode": ("memory", "off")},
    # pragma.html: EXTRA is FULL plus a sync of the directory after the journal is removed, which these modes never do.
    same_as={"truncate_extra": "truncate_full", "persist_extra": "persist_full", "wal_extra": "wal_full"},
    strict=("wal_full",),
    sharing=Sharing.PROCESSES,
    warm=("delete_extra", "wal_full"),
    cross_checks=("delete_full", "wal_full", "delete_off", "wal_off"),
    programs={
        "lastwriter": ControlProgram("rig.engines.sqlite.lastwriter", tuple(sorted(CLOCKS)), ("wal_full",)),
    },
)
