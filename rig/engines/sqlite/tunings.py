"""Further options of SQLite, each with a word in ids: sizes, checkpoints, locking, memory, and a second database.

The words are the names of pragmas, shortened. A value that has no effect in a journal mode is refused there.
"""

from __future__ import annotations

from collections.abc import Mapping

from rig.engines.engine import Tuning

PAGE_SIZES = (512, 1024, 8192, 65536)
_ROLLBACK = ("delete", "truncate", "persist", "memory", "off")
_NO_WAL = {"journal_mode": dict.fromkeys(_ROLLBACK, "only a WAL has checkpoints")}
# sqlite.org/pragma.html, journal_size_limit: what a transaction leaves of its journal, or a checkpoint leaves of a WAL.
_NO_REST = {
    "journal_mode": {
        "delete": "the limit is for what is left of a journal, and the journal is deleted",
        "truncate": "the limit is for what is left of a journal, and nothing is left of a truncated one",
        "memory": "there is no journal on the disk",
        "off": "there is no journal",
    }
}
_BOTH = ("delete_full", "wal_full")

TUNINGS: Mapping[str, Tuning] = {
    **{f"page{size}": Tuning({"page_size": str(size)}) for size in PAGE_SIZES},
    "page512": Tuning({"page_size": "512"}, nightly=_BOTH),
    "page65536": Tuning({"page_size": "65536"}, nightly=_BOTH),
    # Never, at each commit, and SQLite's default, which a short run never reaches.
    "autocheckpoint0": Tuning({"wal_autocheckpoint": "0"}, _NO_WAL),
    "autocheckpoint1": Tuning({"wal_autocheckpoint": "1"}, _NO_WAL, nightly=("wal_full", "wal_normal")),
    "autocheckpoint1000": Tuning({"wal_autocheckpoint": "1000"}, _NO_WAL),
    # Less than a transaction writes, so that it takes effect each time.
    "sizelimit": Tuning({"journal_size_limit": "8192"}, _NO_REST, nightly=("persist_full", "wal_full")),
    "exclusive": Tuning({"locking_mode": "exclusive"}, nightly=_BOTH),
    "mmap": Tuning({"mmap_size": "67108864"}, nightly=("wal_full",)),
    "autovacuum": Tuning({"auto_vacuum": "full"}, nightly=_BOTH),
    "incremental": Tuning({"auto_vacuum": "incremental"}),
    # A second database in this journal mode, which every transaction changes too.
    "attachdelete": Tuning({"attach": "delete"}, nightly=_BOTH),
    "attachwal": Tuning({"attach": "wal"}, nightly=_BOTH),
    # In pages: fewer than a transaction changes, so that it spills.
    "cache5": Tuning({"cache_size": "5"}, nightly=_BOTH),
}
