"""The calls that make a transaction of LMDB durable.

    kind        role  phase   what it makes durable
    data-sync   data  commit  the pages that the transaction has written, before its meta page is written
    meta-sync   data  commit  the meta page; only with writemap

Without a writable map the meta page is written through a descriptor that was opened with O_DSYNC: the write is itself
the sync, so there is no separate call to leave out. With nometasync it is written through the other descriptor, and
becomes durable with the next transaction's data-sync. Measured with LMDB 0.9.31 from a log of its calls; it agrees with
mdb_txn_commit, mdb_env_sync and mdb_env_write_meta of mdb.c.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.engines.syncs import Call, CallName, SyncKind, SyncPhase, by_name

KINDS = by_name(
    SyncKind("data-sync", "data", SyncPhase.COMMIT),
    SyncKind("meta-sync", "data", SyncPhase.COMMIT),
)
_FILES = frozenset({"data.mdb", "lock.mdb"})
SAMPLE_TUNING: Mapping[str, str] = {}
_SEQUENCES: Mapping[str, tuple[str, ...]] = {
    "default": ("data-sync",),
    "nometasync": ("data-sync",),
    "nosync": ("",),
    "writemap": ("data-sync meta-sync",),
    "mapasync": ("",),
}


class Namer:
    """Names the syncs of one process by their count within a transaction."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.begin()

    def begin(self) -> None:
        """Begin a transaction: restart the count."""
        self._count = 0

    def name(self, call: Call) -> str:
        """Return the kind of a sync; empty for any other call."""
        if call.name is not CallName.SYNC or call.role != "data":
            return ""
        self._count += 1
        return {1: "data-sync", 2: "meta-sync"}.get(self._count, "")


def role(path: str, directory: str) -> str:
    """Return the role of a file for the environment in `directory`; empty for an unrelated file."""
    folder, _, name = path.rpartition("/")
    return name.removesuffix(".mdb") if folder == directory.rstrip("/") and name in _FILES else ""


def word(call: Call) -> str:
    """Return a call as spelled in a sequence: the role that is synced."""
    return call.role if call.name is CallName.SYNC else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings, in words of `KINDS`; empty if none are known."""
    return _SEQUENCES.get(settings.get("flags", ""), ())
