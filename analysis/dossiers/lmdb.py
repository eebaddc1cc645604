"""LMDB: what its documentation promises for each flag, which settings must fail, and which syncs matter.

The documentation is the comments of `lmdb.h`, from which the pages of LMDB's site are made.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, as_after_a_cut, matters
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS

_BARE = ("nosync",)
CONTROLS = Controls(
    must_lose={
        **dict.fromkeys((*FORGETTING_FAULTS, *CLOCK_FAULTS, *ERROR_FAULTS, "livecut-cache"), _BARE),
        # Only a disk that lies can make these lose.
        "lyingflush": ("default", "writemap"),
    },
    damaging={"flags": "nosync"},
)
KNOWN_BUGS: tuple[KnownBug, ...] = ()

_OPEN = "lmdb.h, mdb_env_open()"
# flags -> what is kept when the machine goes down, the flag whose paragraph says so, and a note.
_CRASH: Mapping[str, tuple[Keeps, str, str]] = {
    "default": (Keeps.NOTHING_LOST, "", ""),
    "writemap": (
        Keeps.NOTHING_LOST,
        "MDB_WRITEMAP",
        "The paragraph warns of stray writes of the application, and takes nothing back of a crash of the system.",
    ),
    "nometasync": (Keeps.LAST, "MDB_NOMETASYNC", "The meta page becomes durable with the next commit."),
    "nosync": (
        Keeps.ANYTHING,
        "MDB_NOSYNC",
        "A crash of the system may corrupt the database, unless the file system preserves the order of writes.",
    ),
    "mapasync": (Keeps.ANYTHING, "MDB_MAPASYNC", "A crash of the system may corrupt the database, as with MDB_NOSYNC."),
}


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what the documentation promises for these flags under this fault, or None if it is not known."""
    if fault in ERROR_FAULTS:
        return as_after_a_cut(promise(settings, "powercut"))
    known = _CRASH.get(settings.get("flags", ""))
    if known is None:
        return None
    keeps, flag, note = known
    source = f"{_OPEN}, {flag} [DOC]" if flag else "lmdb.h, Introduction: full ACID semantics [DOC]"
    if fault == "processkill":
        note = "Whatever the flags, only a crash of the system is said to cost anything."
        return Promise(Keeps.NOTHING_LOST, atomic=True, bound="", source=source, note=note)
    if fault == "shorn":
        note = "Pages have no checksum, and garbage in the rest of a block hits what was durable: nothing is promised."
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=source, note=note)
    if fault in DISHONEST_FAULTS:
        note = "Pages have no checksum: the detection of media errors is left to others."
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=source, note=note)
    if fault not in FORGETTING_FAULTS and fault not in CLOCK_FAULTS and not fault.startswith("livecut-"):
        return None
    bound = "at most the last acknowledged transaction" if keeps is Keeps.LAST else ""
    return Promise(keeps, atomic=keeps is not Keeps.ANYTHING, bound=bound, source=source, note=note)


_COMMIT = "mdb_txn_commit in mdb.c [SRC]"
_DATA = matters("the meta page may be durable before the pages that it leads to", _COMMIT)
_META = matters("an acknowledged commit's meta page may still be in memory", f"{_OPEN}, MDB_NOMETASYNC [DOC]")


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return that both syncs matter, on every file system."""
    return {"data-sync": _DATA, "meta-sync": _META}.get(kind)
