"""MariaDB with InnoDB: what its documentation promises for each of the variables that matter, and which syncs do.

Pages and headings refer to mariadb.com/docs/server as of 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, as_after_a_cut, matters
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS

_BARE = ("flush2",)
CONTROLS = Controls(
    must_lose={
        **dict.fromkeys((*FORGETTING_FAULTS, *CLOCK_FAULTS, *ERROR_FAULTS, "livecut-cache"), _BARE),
        # The log of its last commits is in the memory of the server.
        "processkill": ("flush0",),
        # Only a disk that lies can make this lose.
        "lyingflush": ("default",),
    },
    # A page is four times as long as what the device writes at once.
    must_damage={"torn": ("nodoublewrite",)},
    damaged_without_syncs="the data directory is a copy, of which hardly anything is on the disk yet",
)
KNOWN_BUGS: tuple[KnownBug, ...] = ()

_VARIABLES = "InnoDB System Variables"
_FLUSH = f"{_VARIABLES}, innodb_flush_log_at_trx_commit [DOC]"
_DOUBLEWRITE = "InnoDB Doublewrite Buffer, Doublewrite Buffer Settings [DOC]"
_METHOD = "InnoDB Flush Method, Options and Startup Parameters [DOC]"
_GROUP = "Group Commit for the Binary Log, Durable InnoDB Data and Binary Logs [DOC]"
_OLD_FLUSHING = "Binary Log Group Commit and InnoDB Flushing Performance, Switching to Old Flushing Behavior [DOC]"
_CHECKSUMS = f"{_VARIABLES}, innodb_checksum_algorithm [DOC]"
_REDO = "InnoDB Redo Log, Overview [DOC]"
_LAZY = f"{_FLUSH[:-6]}; {_REDO}"
_SECOND = "transactions of about a second (innodb_flush_log_at_timeout), which is not guaranteed"
_TORN = "A page that is torn is restored from the doublewrite buffer."
# durability -> what is kept when the machine goes down, the source, and a note.
_CRASH: Mapping[str, tuple[Keeps, str, str]] = {
    "default": (Keeps.NOTHING_LOST, _FLUSH, _TORN),
    "fsync": (
        Keeps.NOTHING_LOST, _METHOD,
        "Files are written through the page cache; in 11.8.9 a checkpoint gives up the log of some too early.",
    ),
    "odsync": (Keeps.NOTHING_LOST, _METHOD, "Another way to make the log durable, with the same result."),
    "binlog1": (
        Keeps.NOTHING_LOST, _GROUP,
        "One sync less than the two logs need: a commit that InnoDB lacks is recovered from the binary log.",
    ),
    "flush3": (
        Keeps.NOTHING_LOST, _OLD_FLUSHING,
        "InnoDB's log is synced at prepare and at commit, so a binary log that is not synced costs nothing.",
    ),
    "binlog0": (
        Keeps.SUFFIX, _OLD_FLUSHING,
        "InnoDB relies on the binary log to commit what was only prepared, and that log may be lost.",
    ),
    "flush2": (Keeps.SUFFIX, _LAZY, "The log is written at each commit, and flushed once a second."),
    "flush0": (Keeps.SUFFIX, _LAZY, "The log is written and flushed once a second."),
    "nodoublewrite": (
        Keeps.ANYTHING, _DOUBLEWRITE, "Said to be safe only where the file system writes pages of 16 KiB atomically.",
    ),
}  # fmt: skip


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what the documentation promises for this setting under this fault, or None if it is not known."""
    if fault in ERROR_FAULTS:
        return as_after_a_cut(promise(settings, "powercut"))
    known = _CRASH.get(settings.get("durability", ""))
    if known is None:
        return None
    keeps, source, note = known
    if fault == "shorn" or fault in DISHONEST_FAULTS:
        note = "A checksum detects what is wrong with a page when it is read; nothing is promised to survive it."
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=_CHECKSUMS, note=note)
    if fault == "processkill":
        return _of_kill(settings["durability"])
    if fault not in FORGETTING_FAULTS and fault not in CLOCK_FAULTS and not fault.startswith("livecut-"):
        return None
    bound = _SECOND if keeps is Keeps.SUFFIX else ""
    return Promise(keeps, atomic=keeps is not Keeps.ANYTHING, bound=bound, source=source, note=note)


def _of_kill(durability: str) -> Promise:
    """Return what is kept if the server dies and the operating system does not."""
    if durability == "flush0":
        note = "A crash of the server loses what was not written yet."
        return Promise(Keeps.SUFFIX, atomic=True, bound=_SECOND, source=_LAZY, note=note)
    note = "Only a power failure or a crash of the kernel is said to cost anything: the log is written at each commit."
    return Promise(Keeps.NOTHING_LOST, atomic=True, bound="", source=_FLUSH, note=note)


_COMMIT = matters("the log of an acknowledged commit may still be in memory", _FLUSH)
_PREPARED = matters("what was prepared may be lost, and the binary log alone does not bring it back", _GROUP)
_BINLOG = matters("InnoDB commits what was prepared only if the binary log has it", _OLD_FLUSHING)
_SYSTEM = matters("a page may be torn before its copy in the doublewrite buffer is safe", _DOUBLEWRITE)
_TABLE = matters("a checkpoint gives up the log of what is only in memory", _REDO)


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return what is known about leaving a kind of sync out, or None."""
    commit = _PREPARED if settings.get("durability") == "binlog1" else _COMMIT
    return {"redo-commit": commit, "binlog-commit": _BINLOG, "system": _SYSTEM, "table": _TABLE}.get(kind)
