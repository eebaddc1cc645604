"""LevelDB: what its documentation promises with and without sync, which settings must fail, and which syncs matter.

The documentation is `doc/index.md` and the comments of `include/leveldb/options.h`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, as_after_a_cut, matters, needless
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS

CONTROLS = Controls(
    must_lose={
        **dict.fromkeys((*FORGETTING_FAULTS, *CLOCK_FAULTS, *ERROR_FAULTS, "livecut-cache"), ("default_async",)),
        # Only a disk that lies can make this lose.
        "lyingflush": ("default_sync",),
    },
    damaged_without_syncs="CURRENT soon names a manifest of which nothing is on the disk yet",
)
KNOWN_BUGS: tuple[KnownBug, ...] = ()

_INDEX = "doc/index.md, Synchronous Writes [DOC]"
_PARANOID = "include/leveldb/options.h, paranoid_checks [DOC]"
_LAST_FEW = "A crash of the machine may lose the last few updates."
_STRICT_CHECKS = "With paranoid checks one damaged entry may keep the whole database from being opened."


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what the documentation promises for these settings under this fault, or None if it is not known."""
    if fault in ERROR_FAULTS:
        return as_after_a_cut(promise(settings, "powercut"))
    writes, is_paranoid = settings.get("writes", ""), settings.get("checks") == "paranoid"
    if writes not in {"async", "sync"}:
        return None
    if fault == "processkill":
        note = "What is not synced is in the operating system before a write returns."
        return Promise(Keeps.NOTHING_LOST, atomic=True, bound="", source=_INDEX, note=note)
    if fault == "shorn" or fault in DISHONEST_FAULTS:
        note = "Garbage is detected by checksums, at the latest when it is read; nothing is promised to survive it."
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source="doc/index.md, Checksums [DOC]", note=note)
    if fault not in FORGETTING_FAULTS and fault not in CLOCK_FAULTS and not fault.startswith("livecut-"):
        return None
    if writes == "sync":
        # Paranoid checks may refuse a torn end of the log, although nothing in it was acknowledged.
        note = _STRICT_CHECKS if is_paranoid else ""
        source = f"{_INDEX}; {_PARANOID}" if is_paranoid else _INDEX
        return Promise(Keeps.NOTHING_LOST, atomic=True, bound="", source=source, note=note, may_refuse=is_paranoid)
    if is_paranoid:
        note = f"{_LAST_FEW} {_STRICT_CHECKS}"
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=f"{_INDEX}; {_PARANOID}", note=note)
    return Promise(Keeps.SUFFIX, atomic=True, bound="the last few updates", source=_INDEX, note=_LAST_FEW)


_BACKGROUND = "CompactMemTable and LogAndApply in db/db_impl.cc and db/version_set.cc [SRC]"
_COMMIT = matters("an acknowledged batch may still be in memory", _INDEX)
_TABLE = matters("the log is removed before what it holds is safe in a table", _BACKGROUND)
_MANIFEST = matters("the log is removed before the table that replaces it is listed", _BACKGROUND)
_NAMES = needless(
    "ext4 makes the name of a new file durable with its fsync", "ext4_fsync_journal in fs/ext4/fsync.c [SRC]"
)


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return what is known about leaving a kind of sync out, or None."""
    if kind == "table-directory":
        return _NAMES if filesystem.partition(".")[0] in {"ext3", "ext4"} else None
    return {"log-commit": _COMMIT, "table": _TABLE, "manifest": _MANIFEST}.get(kind)
