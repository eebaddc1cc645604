"""RocksDB: what its documentation promises for each way to write and to recover, and which syncs matter.

The documentation is the comments of `include/rocksdb/options.h` and `include/rocksdb/db.h`, release 9.8.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, as_after_a_cut, matters, needless
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS

_BARE = ("nosync",)
CONTROLS = Controls(
    must_lose={
        **dict.fromkeys((*FORGETTING_FAULTS, *CLOCK_FAULTS, *ERROR_FAULTS, "livecut-cache"), _BARE),
        # What is only in memory dies with the process.
        "processkill": ("nowal",),
        # Only a disk that lies can make this lose.
        "lyingflush": ("sync",),
    },
    damaged_without_syncs="CURRENT soon names a manifest of which nothing is on the disk yet",
)
KNOWN_BUGS = (
    KnownBug(
        name="directory-not-synced",
        first=(7, 4, 0),
        fixed=(7, 5, 2),
        backported=((7, 4, 5),),
        settings={},
        connections_min=1,
        signal="once a column family has been dropped, the directory is no longer synced until the database is opened"
        " again, so the names of new files may be lost",
        source="HISTORY.md, 7.4.5 and 7.5.2",
        # None of the rig's workloads drops one.
        workloads=("drops a column family",),
    ),
)

_OPTIONS = "include/rocksdb/options.h"
_SYNC = f"{_OPTIONS}, WriteOptions::sync [DOC]"
_NO_WAL = f"{_OPTIONS}, WriteOptions::disableWAL [DOC]"
_ATOMIC = f"{_OPTIONS}, DBOptions::atomic_flush [DOC]"
_FLUSH_WAL = "include/rocksdb/db.h, FlushWAL and SyncWAL [DOC]"
_RECOVERY = f"{_OPTIONS}, WALRecoveryMode [DOC]"
_MEMORY = "What has not been flushed from memory into a table is lost with the process"
_RECENT = "A crash of the machine may lose recent writes; recovery stops at the first record that is not whole."
# Recovery mode -> what it costs a database whose log does not end with a whole record, as after a crash.
_STRICTER = {
    "tolerate": "A log damaged anywhere but at its end keeps the database from being opened.",
    "absolute": "A log that does not end with a whole record keeps the database from being opened.",
    "skipany": "Damaged records are skipped and later ones applied, whatever these need of the former.",
}


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what the documentation promises for these settings under this fault, or None if it is not known."""
    if fault in ERROR_FAULTS:
        return as_after_a_cut(promise(settings, "powercut"))
    writes, _, recovery = settings.get("writes", "").partition("-")
    if writes not in {"nowal", "atomicflush", "manualwal", "nosync", "flushwal", "sync"}:
        return None
    if fault == "shorn" or fault in DISHONEST_FAULTS:
        note = "Garbage is detected by checksums, at the latest when it is read; nothing is promised to survive it."
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=f"{_OPTIONS}, paranoid_checks [DOC]", note=note)
    is_kill, is_live = fault == "processkill", fault.startswith("livecut-")
    if not is_kill and not is_live and fault not in FORGETTING_FAULTS and fault not in CLOCK_FAULTS:
        return None
    if writes in _IN_MEMORY:
        return _IN_MEMORY[writes]
    keeps, source, note = _of_log(writes, is_kill=is_kill)
    if recovery:
        source, note = f"{source}; {_RECOVERY}", f"{note} {_STRICTER[recovery]}".strip()
        # Where nothing is left to chance at the end of the log, a stricter recovery can still refuse.
        keeps = keeps if keeps is Keeps.NOTHING_LOST else Keeps.ANYTHING
    bound = "recent writes" if keeps is Keeps.SUFFIX else ""
    is_whole = keeps is not Keeps.ANYTHING and recovery != "skipany"
    may_refuse = is_whole and bool(recovery)
    return Promise(keeps, atomic=is_whole, bound=bound, source=source, note=note, may_refuse=may_refuse)


_IN_MEMORY = {
    "nowal": Promise(
        Keeps.ANYTHING, atomic=False, bound="", source=f"{_NO_WAL}; {_ATOMIC}",
        note=f"{_MEMORY}, and each column family is flushed by itself.",
    ),
    "atomicflush": Promise(
        Keeps.SUFFIX, atomic=True, bound="what has not been flushed", source=f"{_NO_WAL}; {_ATOMIC}",
        note=f"{_MEMORY}; all column families are flushed as one.",
    ),
    "manualwal": Promise(
        Keeps.SUFFIX, atomic=True, bound="up to the last FlushWAL", source=f"{_FLUSH_WAL}; {_SYNC}",
        note="The log is in memory until FlushWAL is called, which nobody does here.",
    ),
}  # fmt: skip


def _of_log(writes: str, *, is_kill: bool) -> tuple[Keeps, str, str]:
    if writes == "flushwal":
        return Keeps.NOTHING_LOST, _FLUSH_WAL, ""
    if writes == "sync":
        return Keeps.NOTHING_LOST, _SYNC, ""
    if is_kill:
        return Keeps.NOTHING_LOST, _SYNC, "The log is in the operating system before a write returns."
    return Keeps.SUFFIX, f"{_SYNC}; {_RECOVERY}", _RECENT


_FLUSH = "FlushMemTableToOutputFile in db/db_impl/db_impl_compaction_flush.cc [SRC]"
_CREATED = "ext4_fsync_journal in fs/ext4/fsync.c [SRC]"
_COMMIT = matters("an acknowledged batch may still be in memory", _SYNC)
_CLOSED = matters("one column family may have in a table what the log has lost for the others", _FLUSH)
_TABLE = matters("the log is removed before what it holds is safe in a table", _FLUSH)
_MANIFEST = matters("the log is removed before the table that replaces it is listed", _FLUSH)
_NAMES = needless("ext4 makes the name of a new file durable with its fsync", _CREATED)


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return what is known about leaving a kind of sync out, or None."""
    if kind == "directory":
        return _NAMES if filesystem.partition(".")[0] in {"ext3", "ext4"} else None
    known = {"log-commit": _COMMIT, "log-closed": _CLOSED, "table": _TABLE, "manifest": _MANIFEST}
    return known.get(kind)
