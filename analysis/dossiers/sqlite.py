"""SQLite: what its documentation promises, which settings must fail, which syncs matter, and which bugs are known.

Promises are grids, one for each class of faults, with a row for each journal_mode and a column for each synchronous.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, matters, needless
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS

_BARE = ("delete_off", "wal_off")
_FULLY_SYNCED = ("delete_full", "wal_full")
CONTROLS = Controls(
    must_lose={
        **dict.fromkeys(FORGETTING_FAULTS + CLOCK_FAULTS + ERROR_FAULTS, _BARE),
        # Only a disk that lies can make these lose.
        "lyingflush": _FULLY_SYNCED,
        "livecut-cache": _BARE,
    },
    # Without a log a commit ends with the release of its lock on the database.
    closing=("delete_off",),
    # A kill during a commit damages only where there is no journal on disk.
    must_damage={"processkill": ("memory_off",)},
    damaging={"synchronous": "off"},
    programs={"lastwriter": "the program trusts the clock"},
)

JOURNAL_MODES = ("delete", "truncate", "persist", "wal", "memory", "off")
SYNCHRONOUS = ("off", "normal", "full", "extra")

# The cells of the grids: what is kept, whether it is atomic, and whether the documentation adds its caveat (A*).
_ZERO = (Keeps.NOTHING_LOST, True, False)
_ZERO_STAR = (Keeps.NOTHING_LOST, True, True)
_LAST = (Keeps.LAST, True, False)
_LAST_STAR = (Keeps.LAST, True, True)
_ZERO_TORN = (Keeps.NOTHING_LOST, False, True)
_LAST_TORN = (Keeps.LAST, False, True)
_SUFFIX = (Keeps.SUFFIX, True, False)
_ANY = (Keeps.ANYTHING, False, False)
_Cell = tuple[Keeps, bool, bool]
_Grid = Mapping[str, tuple[_Cell, _Cell, _Cell, _Cell]]

_NOTHING_PROMISED: tuple[_Cell, _Cell, _Cell, _Cell] = (_ANY, _ANY, _ANY, _ANY)
_ALL_KEPT: tuple[_Cell, _Cell, _Cell, _Cell] = (_ZERO, _ZERO, _ZERO, _ZERO)

# Columns: synchronous = off, normal, full, extra.
_SQLITE_POWERCUT: _Grid = {
    "delete": (_ANY, _LAST_STAR, _LAST, _ZERO),
    "truncate": (_ANY, _LAST_STAR, _ZERO, _ZERO),
    "persist": (_ANY, _ZERO_STAR, _ZERO, _ZERO),
    "wal": (_ANY, _SUFFIX, _ZERO, _ZERO),
    "memory": _NOTHING_PROMISED,
    "off": _NOTHING_PROMISED,
}
# A torn write touches only what was not flushed, so it may lose as much as a power cut. But at NORMAL one sync covers
# the rollback journal's header and its pages, whose checksum reads only every 200th byte. This is the small chance of
# corruption that the documentation concedes, so atomicity is not promised here (measured in docs/findings/index.md).
_SQLITE_TORN: _Grid = {
    **_SQLITE_POWERCUT,
    "delete": (_ANY, _LAST_TORN, _LAST, _ZERO),
    "truncate": (_ANY, _LAST_TORN, _ZERO, _ZERO),
    "persist": (_ANY, _ZERO_TORN, _ZERO, _ZERO),
}
_SQLITE_PROCESSKILL: _Grid = {
    "delete": _ALL_KEPT,
    "truncate": _ALL_KEPT,
    "persist": _ALL_KEPT,
    "wal": _ALL_KEPT,
    "memory": _NOTHING_PROMISED,
    "off": _NOTHING_PROMISED,
}
_SQLITE: Mapping[str, _Grid] = {
    "processkill": _SQLITE_PROCESSKILL,
    "oscrash": _SQLITE_POWERCUT,
    "powercut": _SQLITE_POWERCUT,
    "torn": _SQLITE_TORN,
    # Garbage replaces durable bytes next to the bytes that were written: no powersafe overwrite.
    "shorn": dict.fromkeys(JOURNAL_MODES, _NOTHING_PROMISED),
    # No page treats a protected disk or a late discard separately, so they get the promise of any honest disk.
    "plp": _SQLITE_POWERCUT,
    # Rollback and WAL recovery can be repeated from the start, so a second cut does not lose more than the first.
    "recoverycut": _SQLITE_POWERCUT,
    # No page tells a database that was cut before from one that was not.
    "secondcut": _SQLITE_POWERCUT,
    # No page says that what a reader sees is durable, so only what was acknowledged is promised.
    "killcut": _SQLITE_POWERCUT,
    "discard": _SQLITE_POWERCUT,
    # Cuts of an honest disk, which really happened.
    "livecut-drop": _SQLITE_POWERCUT,
    "livecut-cache": _SQLITE_POWERCUT,
    # No page mentions a client that outlives its server, so an honest disk gets the promise that it gets anywhere.
    "servercrash": _SQLITE_POWERCUT,
    # No page makes durability depend on the clock.
    **dict.fromkeys(CLOCK_FAULTS, _SQLITE_POWERCUT),
    # No page mentions a file system on several disks, so two honest disks get the promise of one.
    "twodisk": _SQLITE_POWERCUT,
    **{fault: dict.fromkeys(JOURNAL_MODES, _NOTHING_PROMISED) for fault in DISHONEST_FAULTS},
    # The engine sees the error, and no page allows acknowledged transactions to be lost because of it. A file system
    # that gives up and is mounted again loses what was not synced, as in a power cut.
    **dict.fromkeys(ERROR_FAULTS, _SQLITE_POWERCUT),
}

# Notes for settings that promise something.
_PROMISING_NOTES: Mapping[str, str] = {
    "recoverycut": (
        "Recovery can be cut and done again from the start: a rollback journal is deleted, and a WAL reset, only after "
        "the database has been synced (atomiccommit.html, Deleting The Hot Journal [DOC]; walCheckpoint and "
        "walRestartLog in wal.c [SRC])."
    ),
    **dict.fromkeys(
        ERROR_FAULTS,
        "Taken from the power cut: the documentation says that an error rolls back, but does not cover a cut after it.",
    ),
}
# For a fault in which all writes fail for a while, including the writes of the engine's clean-up. For the kernel's part
# see Rebello et al., Can Applications Recover from fsync Failures? (USENIX ATC 2020): pages are always marked clean.
_WAL_OUT_OF_MEMORY = (
    "A loss here has two causes. After a failed sync Linux counts the pages as written. SQLite then recovers the "
    "reopened WAL from these pages, does not write them again, and syncs the next commits after data that the disk "
    "lacks. The loss shows once the pages are out of memory. Losing what was acknowledged breaks the promise, "
    "whichever of the two is to blame."
)
_FAULT_NOTES: Mapping[str, str] = {
    **_PROMISING_NOTES,
    **dict.fromkeys(
        CLOCK_FAULTS,
        "No page of SQLite's documentation makes durability depend on the clock, so a power cut's promise holds.",
    ),
    "killcut": (
        "A commit that was killed before its last sync may be seen after the restart, and be gone after the cut: "
        "recovery syncs no WAL, and no directory (walIndexRecover in wal.c, hasHotJournal in pager.c [SRC])."
    ),
    "twodisk": "SQLite sees one file system; its journal is on the second disk, or each disk has a copy of everything.",
    "shorn": (
        "SQLite takes powersafe overwrite for granted (psow=1): only the bytes written change. Garbage in the rest of "
        "a block may hit durable bytes that are merely rewritten, so nothing is promised."
    ),
}


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what the documentation promises for these settings under this fault, or None if it is not known.

    Two databases keep what both promise; their transactions are atomic across both only with rollback journals.
    """
    own, attached = _of_one(settings, fault), settings.get("attach", "")
    other = _of_one({**settings, "journal_mode": attached}, fault) if attached else None
    if not own or not other:
        return None if attached else own
    keeps = max(own.keeps, other.keeps, key=list(Keeps).index)
    across = {settings["journal_mode"], attached} <= _WITH_SUPER_JOURNAL
    return Promise(
        keeps=keeps,
        atomic=own.atomic and other.atomic,
        bound=(own if own.keeps is keeps else other).bound,
        source=f"lang_attach.html [DOC]; {own.source}",
        note=" ".join(filter(None, (own.note, _ACROSS if across else _APART))),
        across=across,
    )


_WITH_SUPER_JOURNAL = frozenset({"delete", "truncate", "persist"})
_ACROSS = "Two rollback journals are tied together by a super-journal (atomiccommit.html, Multi-file Commit [DOC])."
# With one WAL and one rollback journal, a super-journal would name only one of the two, so SQLite writes none.
_APART = (
    "With a WAL a transaction is atomic in each database alone: a crash in the middle of a commit may leave it in one "
    "and not in the other (lang_attach.html [DOC]; vdbeCommit in vdbeaux.c for different modes [SRC])."
)


def _of_one(settings: Mapping[str, str], fault: str) -> Promise | None:
    grid = _SQLITE.get(fault)
    journal_mode, synchronous = settings.get("journal_mode", ""), settings.get("synchronous", "")
    if grid is None or journal_mode not in grid or synchronous not in SYNCHRONOUS:
        return None
    keeps, atomic, caveat = grid[journal_mode][SYNCHRONOUS.index(synchronous)]
    notes = (
        _caveat(fault) if caveat else "",
        _sqlite_note(journal_mode, synchronous, fault),
        "" if keeps is Keeps.ANYTHING and fault in _PROMISING_NOTES else _FAULT_NOTES.get(fault, ""),
        _WAL_OUT_OF_MEMORY if (journal_mode, fault) == ("wal", "ioerror-write") and keeps is not Keeps.ANYTHING else "",
    )
    return Promise(
        keeps=keeps,
        atomic=atomic,
        bound=_sqlite_bound(keeps, journal_mode),
        source=_sqlite_source(journal_mode, synchronous, fault),
        note=" ".join(note for note in notes if note),
    )


def _sqlite_bound(keeps: Keeps, journal_mode: str) -> str:
    if keeps is Keeps.LAST:
        return "at most the last acknowledged transaction"
    if keeps is Keeps.SUFFIX and journal_mode == "wal":
        return "acknowledged since the WAL was last synced: at the start of a checkpoint, or its header after a reset"
    return ""


def _sqlite_source(journal_mode: str, synchronous: str, fault: str) -> str:
    """Return the page of SQLite's documentation and its heading, tagged [DOC]."""
    if fault == "lyingflush":
        return "howtocorrupt.html, Failure to sync [DOC]"
    if fault == "shorn":
        return "psow.html [DOC]"
    if fault in DISHONEST_FAULTS:
        return "atomiccommit.html, Hardware Assumptions [DOC]"
    if journal_mode in ("memory", "off"):
        return f"pragma.html, journal_mode {journal_mode.upper()} [DOC]"
    page = f"pragma.html, synchronous {synchronous.upper()}"
    if fault in ERROR_FAULTS:
        return f"{page}; testing.html, I/O Error Testing [DOC]"
    if fault == "processkill":
        return "pragma.html, synchronous NORMAL: application crashes [DOC]"
    if journal_mode == "wal" and synchronous != "off":
        return f"{page}; wal.html, Performance Considerations [DOC]"
    if journal_mode == "delete" and synchronous in ("normal", "full"):
        return f"{page} and EXTRA [DOC]"
    return f"{page} [DOC]"


def _caveat(fault: str) -> str:
    words = "The documentation concedes a very small chance of corruption at NORMAL on an older file system (A*)."
    if fault == "torn":
        words += " For torn writes the allowed loss is that of the power cut."
    return words


def _sqlite_note(journal_mode: str, synchronous: str, fault: str) -> str:
    if fault == "processkill":
        is_volatile = journal_mode in ("memory", "off")
        return "Corruption is documented for a kill in the middle of a commit." if is_volatile else ""
    if fault == "lyingflush":
        return "The documentation assumes that a sync is real; with WAL only a checkpoint is expected to corrupt."
    if fault in DISHONEST_FAULTS:
        return "The documentation leaves the detection and correction of media errors to hardware and operating system."
    if journal_mode == "memory":
        return "A cut in the middle of a commit may corrupt: the rollback journal is in memory."
    if journal_mode == "off":
        return "There is no rollback journal: a cut in the middle of a commit may corrupt."
    if journal_mode == "wal" and synchronous == "off":
        return "A suffix or corruption: checkpoints are not synced either, so even older transactions can go."
    if journal_mode == "delete" and synchronous in ("normal", "full"):
        return "The unlink of the journal is not synced, so the last transaction can be rolled back."
    if journal_mode == "truncate" and synchronous in ("full", "extra"):
        return "Holds from SQLite 3.8.7.1 on; earlier versions did not sync after the truncation."
    if journal_mode == "wal" and synchronous == "extra":
        return "In WAL mode EXTRA is the same as FULL."
    return ""


_ATOMIC, _WAL, _PRAGMA = "atomiccommit.html", "wal.html, Performance Considerations [DOC]", "pragma.html, synchronous"
# The fsync commits the journal transaction that created the file, and so its name too.
_EXT4 = "ext4_fsync_journal in fs/ext4/fsync.c, __ext4_new_inode in fs/ext4/ialloc.c [SRC]"
_UNDO = matters(
    "the database is changed before its old content is safe", f"{_ATOMIC}, Flushing The Rollback Journal File [DOC]"
)
_WRITTEN = matters(
    "the journal is removed before the new pages are safe", f"{_ATOMIC}, Flushing Changes To Mass Storage [DOC]"
)
_NEW_NAME = needless("ext4 makes the name of a new file durable with the fsync of the file", _EXT4)
# By file system, the same for all its variants: the file system decides what makes the name of a new file durable. On a
# server that is exported with `async` nothing is promised, so there are no mutants.
_SERVED = needless("an NFS server makes a change of names durable before it answers", "exports(5), sync [DOC]")
_NEW_NAMES = {
    "nfs": _SERVED,
    "ext3": _NEW_NAME,
    "ext4": _NEW_NAME,
    "xfs": needless(
        "XFS writes its log with the fsync of a new file, up to the transaction that made the file and its name",
        "xfs_file_fsync in fs/xfs/xfs_file.c, xfs_create in fs/xfs/xfs_inode.c [SRC]",
    ),
    "btrfs": needless(
        "Btrfs logs a new file with its name at the fsync of the file",
        "btrfs_log_inode_parent and add_inode_ref in fs/btrfs/tree-log.c [SRC]",
    ),
    "f2fs": needless(
        "the fsync of a new file on f2fs writes its node, which holds its name; recovery puts it into the directory",
        "f2fs_need_dentry_mark in fs/f2fs/node.c, recover_dentry in fs/f2fs/recovery.c [SRC]",
    ),
}
_OLD_NAME = needless("the journal is never removed, so its name stays durable from its first sync on", _EXT4)
_BODY_FIRST = needless("NORMAL omits it: pages and their number are synced together", f"{_PRAGMA} NORMAL [DOC]")
_END = matters(
    "the journal may come back and roll an acknowledged commit back", f"{_ATOMIC}, Deleting The Rollback Journal [DOC]"
)
_OLD_JOURNAL = matters(
    "the header of the last transaction's journal may still be there when the next one writes its pages behind it",
    "pager_end_transaction and zeroJournalHdr in pager.c [SRC]",
)
_LAST_MAY_GO = needless("only the last transaction depends on it, and DELETE may lose that", f"{_PRAGMA} EXTRA [DOC]")
_COMMIT = matters("an acknowledged commit may still be in memory", f"{_PRAGMA} FULL [DOC]")
_HEADER = matters(
    "the end of a new WAL may land before its header, and then the beginning of the old WAL is read again",
    "sqlite.org/src/info/ff5be73dee [DOC], walFrames in wal.c [SRC]",
)
_FRAMES = matters("the database is changed before the WAL is safe", _WAL)
_FRAMES_SAFE = needless("redundant: every commit has synced the WAL", _WAL)
_PAGES = matters("the WAL restarts before its pages in the database are safe", _WAL)
_FULL = ("full", "extra")


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:
    """Return what the documentation says about leaving a kind of sync out, or None if it is not known."""
    if kind.startswith("other-"):
        other = {**settings, "journal_mode": settings.get("attach", "")}
        return expectation(filesystem, other, kind.removeprefix("other-"))
    if kind.startswith("super"):
        return _of_super_journal(filesystem, settings, kind)
    mode, level = settings.get("journal_mode", ""), settings.get("synchronous", "")
    if mode == "wal":
        frames = _FRAMES_SAFE if level in _FULL else _FRAMES
        return {
            "wal-commit": _COMMIT, "wal-header": _HEADER, "wal-checkpoint": frames, "database-checkpoint": _PAGES
        }.get(kind)  # fmt: skip
    is_normal = level == "normal"
    # With an exclusive lock DELETE ends as PERSIST does, and the next transaction writes over the same journal.
    end = _OLD_JOURNAL if mode == "delete" else _END
    return {
        "journal1": _UNDO if is_normal else _BODY_FIRST,
        # PERSIST at NORMAL has no separate sync for the number of pages: its second sync ends the journal.
        "journal2": end if is_normal else _UNDO,
        "journal3": end,
        "directory1": _OLD_NAME if mode != "delete" else _NEW_NAMES.get(filesystem.partition(".")[0]),
        "directory2": _SERVED if filesystem == "nfs" else _END,
        "database1": _WRITTEN,
    }.get(kind)


_NAMES = matters(
    "an empty super-journal names no journals: the first database that is rolled back removes it, and the other is not",
    "pager_delsuper in pager.c [SRC]; atomiccommit.html, The Super-Journal File [DOC]",
)
_GONE = matters(
    "the super-journal may come back beside one of the two journals, so that only one database is rolled back",
    "atomiccommit.html, Deleting The Super-Journal [DOC]; btrfs_log_inode in fs/btrfs/tree-log.c [SRC]",
)
_SOON = needless(
    "a sync that follows before the acknowledgement makes the removal durable as well",
    f"{_EXT4}; vdbeCommit in vdbeaux.c [SRC]",
)


def _of_super_journal(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:
    word = filesystem.partition(".")[0]
    if kind == "super-directory":
        return _NEW_NAMES.get(word)
    if kind == "super":
        return _NAMES
    mode, level = settings.get("journal_mode", ""), settings.get("synchronous", "")
    if level == "normal" or (mode, level) == ("delete", "full"):
        return _LAST_MAY_GO
    # The directory at EXTRA, else the first journal that is not deleted; XFS and ext write all changes in their order.
    return _SOON if mode == "delete" or word in {"ext3", "ext4", "xfs"} else _GONE


KNOWN_BUGS = (
    KnownBug(
        name="truncate-not-synced",
        first=(0,),
        fixed=(3, 8, 7, 1),
        backported=(),
        settings={"journal_mode": ("truncate",), "synchronous": ("full", "extra")},
        connections_min=1,
        signal="the journal is truncated but not synced, so the last acknowledged transaction may be rolled back",
        source="sqlite.org release log of 3.8.7.1",
    ),
    KnownBug(
        name="wal-reset",
        first=(3, 7, 0),
        fixed=(3, 51, 3),
        backported=((3, 44, 6), (3, 50, 7)),
        settings={"journal_mode": ("wal",)},
        connections_min=2,
        signal="a checkpoint that races the reset of the WAL by another connection loses committed transactions, "
        "without any crash",
        source="sqlite.org/wal.html, section The WAL-Reset Bug",
    ),
    KnownBug(
        name="wal-savepoint",
        # Since 3.11.0 a page that a transaction writes to the WAL again overwrites its frame (wal-overwrite-frames).
        first=(3, 11, 0),
        fixed=(3, 50, 2),
        backported=(),
        settings={"journal_mode": ("wal",)},
        connections_min=1,
        signal="if a transaction rolls back to a savepoint after its cache has spilled into the WAL more than once,"
        " recovery ends before it and loses or damages what was committed from then on, even without any cut",
        source="measured: 3.40.1 to 3.50.1 have it, 3.50.2 has not",
        workloads=("rough",),
    ),
)
