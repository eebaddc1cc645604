"""PostgreSQL: what its documentation promises for each of the parameters that matter, and which syncs do.

Pages and headings refer to the documentation of PostgreSQL 15 (Debian's postgresql-doc-15).
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, matters, needless
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS

_BARE = ("async",)
CONTROLS = Controls(
    must_lose={
        **dict.fromkeys((*FORGETTING_FAULTS, *CLOCK_FAULTS, *ERROR_FAULTS, "livecut-cache"), _BARE),
        # The log of its last commits is in the memory of the server.
        "processkill": _BARE,
        # Only a disk that lies can make these lose.
        "lyingflush": ("default", "opendatasync"),
    },
    damaged_without_syncs="the cluster is a copy, of which hardly anything is on the disk yet",
)
KNOWN_BUGS: tuple[KnownBug, ...] = ()

_SETTINGS = "runtime-config-wal.html, Settings"
_RELIABLE = "wal-reliability.html, Reliability [DOC]"
_ASYNC = f"wal-async-commit.html, Asynchronous Commit; {_SETTINGS}, synchronous_commit [DOC]"
_FSYNC = f"{_SETTINGS}, fsync [DOC]"
_PAGES = f"{_SETTINGS}, full_page_writes [DOC]"
_METHOD = f"{_RELIABLE[:-6]}; {_SETTINGS}, wal_sync_method [DOC]"
_CHECKSUMS = "checksums.html, Data Checksums [DOC]"
_RETRY = "runtime-config-error-handling.html, Error Handling, data_sync_retry [DOC]"
_FULL = "disk-full.html, Disk Full Failure [DOC]"
_WINDOW = "transactions of at most three times wal_writer_delay, 600 ms"
# durability -> what is kept when the machine goes down, the source, and a note.
_CRASH: Mapping[str, tuple[Keeps, str, str]] = {
    "default": (Keeps.NOTHING_LOST, _RELIABLE, "A page that is torn is restored from its image in the log."),
    "opendatasync": (Keeps.NOTHING_LOST, _METHOD, "Another way to make the log durable, with the same result."),
    "async": (
        Keeps.SUFFIX, _ASYNC, "The state is as if the lost transactions had been aborted: it is never inconsistent.",
    ),
    "nofullpages": (Keeps.ANYTHING, _PAGES, "A page of which only a part was written may be damaged for good."),
    "nofsync": (Keeps.ANYTHING, _FSYNC, "A crash of the system may corrupt the data beyond repair."),
}  # fmt: skip


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what the documentation promises for this setting under this fault, or None if it is not known."""
    known = _CRASH.get(settings.get("durability", ""))
    if known is None:
        return None
    keeps, source, note = known
    if fault == "shorn" or fault in DISHONEST_FAULTS:
        note = "A checksum detects what is wrong with a page when it is read; nothing is promised to survive it."
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=_CHECKSUMS, note=note)
    if fault == "processkill":
        return _of_kill(settings["durability"])
    if fault in ERROR_FAULTS:
        source, note = _of_error(fault, source, note)
    elif fault not in FORGETTING_FAULTS and fault not in CLOCK_FAULTS and not fault.startswith("livecut-"):
        return None
    bound = _WINDOW if keeps is Keeps.SUFFIX else ""
    return Promise(keeps, atomic=keeps is not Keeps.ANYTHING, bound=bound, source=source, note=note)


def _of_error(fault: str, source: str, note: str) -> tuple[str, str]:
    """Return source and note of what is kept after an error of the disk, which is as much as after a power cut."""
    if fault.startswith("ioerror-fsync"):
        return f"{_RETRY[:-6]}; {source}", f"A server that could not sync goes down, and recovers from its log. {note}"
    if fault.startswith("diskfull"):
        return f"{_FULL[:-6]}; {source}", f"A full disk is said to damage nothing; the server may go down. {note}"
    return source, f"Taken from the power cut: the documentation does not speak of such errors of the disk. {note}"


def _of_kill(durability: str) -> Promise:
    """Return what is kept if the server dies and the operating system does not."""
    if durability == "async":
        note = "A crash of the server loses what was not written yet, as an immediate shutdown does."
        return Promise(Keeps.SUFFIX, atomic=True, bound=_WINDOW, source=_ASYNC, note=note)
    note = "Only a crash of the system is said to cost anything: the log is written before a commit returns."
    source = {"nofsync": _FSYNC, "nofullpages": _PAGES}.get(durability, _RELIABLE)
    return Promise(Keeps.NOTHING_LOST, atomic=True, bound="", source=source, note=note)


_COMMIT = matters("the log of an acknowledged commit may still be in memory", _RELIABLE)
_TABLE = matters(
    "a checkpoint gives up the log of what is only in memory", "wal-configuration.html, WAL Configuration [DOC]"
)

_CONTROL = needless(
    "recovery then begins at an older checkpoint, and a run of one log file has removed no log",
    "CreateCheckPoint and RemoveOldXlogFiles in xlog.c [SRC]",
)


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return what is known about leaving a kind of sync out, or None."""
    return {"wal-commit": _COMMIT, "table": _TABLE, "control": _CONTROL}.get(kind)
