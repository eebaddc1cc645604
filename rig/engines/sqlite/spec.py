"""What the rig has to know of SQLite: its settings in the words of its pragmas."""

from __future__ import annotations

from rig.contract.injections import CLOCKS
from rig.engines.engine import Program, Spec

SPEC = Spec(
    name="sqlite",
    settings={
        "journal_mode": ("delete", "truncate", "persist", "wal", "memory", "off"),
        "synchronous": ("off", "normal", "full", "extra"),
    },
    # A checkpoint has to happen several times in a short run; SQLite's default of 1000 pages would never come.
    tuning={"page_size": "4096", "wal_autocheckpoint": "60"},
    unprotected={"journal_mode": ("memory", "off"), "synchronous": ("off",)},
    # Without a journal on disk a kill in mid-commit may damage.
    volatile={"journal_mode": ("memory", "off")},
    # pragma.html: EXTRA is FULL but for the sync of the directory after the journal is removed, which these never do.
    same_as={"truncate_extra": "truncate_full", "persist_extra": "persist_full", "wal_extra": "wal_full"},
    strict=("wal_full",),
    warm=("delete_extra", "wal_full"),
    cross_checks=("delete_full", "wal_full", "delete_off", "wal_off"),
    programs={
        "lastwriter": Program("rig.engines.sqlite.lastwriter", tuple(sorted(CLOCKS)), ("wal_full",)),
    },
)
