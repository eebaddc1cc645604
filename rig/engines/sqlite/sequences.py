"""What one transaction of SQLite syncs and drops under each setting, in words of `rig.engines.sqlite.syncs.KINDS`.

Measured with SQLite 3.40.1 from a log of its calls, and as described in atomiccommit.html, wal.html and pragma.html
of SQLite's documentation. Plain writes are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

_FULL = "journal1 directory1 journal2 database1"
_WAL_FULL = (
    "wal-commit",
    "wal-commit wal-checkpoint database-checkpoint",
    "wal-header wal-commit",
    "wal-header wal-commit wal-checkpoint database-checkpoint",
)
# (journal_mode, synchronous) -> what a transaction after the setup may do, the most common sequence first.
SEQUENCES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("delete", "off"): ("unlink",),
    ("delete", "normal"): ("journal1 directory1 database1 unlink",),
    ("delete", "full"): (f"{_FULL} unlink",),
    ("delete", "extra"): (f"{_FULL} unlink directory2",),
    ("truncate", "off"): ("ftruncate",),
    ("truncate", "normal"): ("journal1 directory1 database1 ftruncate",),
    **{("truncate", level): (f"{_FULL} ftruncate journal3",) for level in ("full", "extra")},
    ("persist", "off"): ("",),
    ("persist", "normal"): ("journal1 directory1 database1 journal2",),
    **{("persist", level): (f"{_FULL} journal3",) for level in ("full", "extra")},
    ("wal", "off"): ("",),
    ("wal", "normal"): (
        "",
        "wal-checkpoint database-checkpoint",
        "wal-header",
        "wal-header wal-checkpoint database-checkpoint",
    ),
    **{("wal", level): _WAL_FULL for level in ("full", "extra")},
    **{(mode, "off"): ("",) for mode in ("memory", "off")},
    **{(mode, level): ("database1",) for mode in ("memory", "off") for level in ("normal", "full", "extra")},
}
# These modes have a rollback journal on the disk.
_ROLLBACK = frozenset({"delete", "truncate", "persist"})


def known_sequences(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known sequences of these settings; empty if none are known."""
    if attached := settings.get("attach"):
        return _of_two(settings.get("journal_mode", ""), attached, settings.get("synchronous", ""))
    mode, level = settings.get("journal_mode", ""), settings.get("synchronous", "")
    is_exclusive = settings.get("locking_mode") == "exclusive" and mode in {"delete", "truncate", "persist"}
    if is_exclusive and mode == "delete" and level != "off":
        # The journal stays open, so it is not deleted: its header is zeroed.
        mode = "persist"
    sequences = SEQUENCES.get((mode, level), ())
    if is_exclusive:
        sequences = tuple(sequence.replace("directory1 ", "") for sequence in sequences)
    if mode == "persist" and int(settings.get("journal_size_limit", "-1")) >= 0:
        # A journal that has grown past the limit is truncated to it after its transaction, without a sync.
        sequences = (*(f"{sequence} ftruncate".strip() for sequence in sequences), *sequences)
    return sequences


def _of_two(mode: str, attached: str, level: str) -> tuple[str, ...]:
    """Return what a transaction over two databases does: it makes each ready, then commits each.

    Making a WAL ready commits it. Only two rollback journals get a super-journal (vdbeCommit in vdbeaux.c).
    """
    one, other = (_parts(SEQUENCES.get((each, level), ())) for each in (mode, attached))
    has_super = level != "off" and {mode, attached} <= _ROLLBACK
    begin, middle = ("super super-directory", "super-unlink super-end") if has_super else ("", "")
    combined = []
    for mine, theirs in itertools.product(one, other):
        (ready, done, later), (ready2, done2, later2) = mine, (_of_other(part) for part in theirs)
        if has_super and mode == "persist":
            # With a super-journal even a persistent journal is truncated (pager_end_transaction in pager.c).
            done = f"ftruncate {done}"
        if has_super and attached == "persist":
            done2 = f"other-ftruncate {done2}"
        combined.append(" ".join(filter(None, (begin, ready, ready2, middle, done, done2, later, later2))))
    return tuple(combined)


def _parts(sequences: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Split each sequence into what makes the database ready, what commits, and what follows the commit."""
    parts = []
    for sequence in sequences:
        words = sequence.split()
        later = [word for word in words if word.endswith("-checkpoint")]
        words = words[: len(words) - len(later)]
        end = next((rank + 1 for rank, word in enumerate(words) if word == "database1"), len(words))
        parts.append((" ".join(words[:end]), " ".join(words[end:]), " ".join(later)))
    return parts


def _of_other(words: str) -> str:
    return " ".join(f"other-{word}" for word in words.split())
