"""Which syncs a rig that leaves them out one by one finds to matter, beside what the documentation says of each.

A mutant is a cell whose shim drops one kind of sync. It is noticed when a state breaks the promise of its settings:
more is lost, or more is damaged, than is allowed. The score of a setting is noticed / mattering. A mutant that ought to
matter and is not noticed is a hole: in what was looked at, or in what is believed of the sync; its reason is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rig.contract.scenario import DROP_PREFIX

if TYPE_CHECKING:
    from rig.analysis.outcome import Row, Summary


@dataclass(frozen=True)
class Expectation:
    """Whether leaving a sync out ought to break the promise; `reason` says why it matters or why it does not."""

    reason: str
    source: str
    matters: bool


def _matters(reason: str, source: str) -> Expectation:
    return Expectation(reason, source, matters=True)


def _spared(reason: str, source: str) -> Expectation:
    return Expectation(reason, source, matters=False)


_ATOMIC, _WAL, _PRAGMA = "atomiccommit.html", "wal.html, Performance Considerations [DOC]", "pragma.html, synchronous"
# The fsync commits the journal's transaction that made the file, and its name with it.
_EXT4 = "ext4_fsync_journal in fs/ext4/fsync.c, __ext4_new_inode in fs/ext4/ialloc.c [SRC]"
_UNDO = _matters(
    "the database is changed before what it was is safe", f"{_ATOMIC}, Flushing The Rollback Journal File [DOC]"
)
_WRITTEN = _matters(
    "the journal goes before the new pages are safe", f"{_ATOMIC}, Flushing Changes To Mass Storage [DOC]"
)
_NEW_NAME = _spared("ext4 makes the name of a new file durable with the fsync of the file", _EXT4)
_OLD_NAME = _spared("the journal is never removed, so its name is durable from the first time on", _EXT4)
_BODY_FIRST = _spared("NORMAL does without: pages and their number are synced together", f"{_PRAGMA} NORMAL [DOC]")
_END = _matters(
    "the journal may come back and roll an acknowledged commit back", f"{_ATOMIC}, Deleting The Rollback Journal [DOC]"
)
_COMMIT = _matters("an acknowledged commit may still be in memory", f"{_PRAGMA} FULL [DOC]")
_HEADER = _matters(
    "the end of a new WAL may land before its header, and the beginning of the old one is then read again",
    "sqlite.org/src/info/ff5be73dee [DOC], walFrames in wal.c [SRC]",
)
_FRAMES = _matters("the database is changed before the WAL is safe", _WAL)
_FRAMES_SAFE = _spared("redundant: every commit has synced the WAL", _WAL)
_PAGES = _matters("the WAL begins anew before its pages in the database are safe", _WAL)
_FULL = ("full", "extra")


def expectation(settings: Mapping[str, str], kind: str) -> Expectation | None:
    """Return what the documentation says of leaving a kind of sync out, or None if it is not known."""
    mode, level = settings.get("journal_mode", ""), settings.get("synchronous", "")
    if mode == "wal":
        frames = _FRAMES_SAFE if level in _FULL else _FRAMES
        return {
            "wal-commit": _COMMIT, "wal-header": _HEADER, "wal-checkpoint": frames, "database-checkpoint": _PAGES
        }.get(kind)  # fmt: skip
    is_normal = level == "normal"
    return {
        "journal1": _UNDO if is_normal else _BODY_FIRST,
        # PERSIST at NORMAL has no sync of its own for the number of pages: its second one ends the journal.
        "journal2": _END if is_normal else _UNDO,
        "journal3": _END,
        "directory1": _NEW_NAME if mode == "delete" else _OLD_NAME,
        "directory2": _END,
        "database1": _WRITTEN,
    }.get(kind)


@dataclass(frozen=True)
class Mutant:
    """One sync left out of one setting, under every fault that was tried."""

    kind: str
    cells: tuple[str, ...]
    # None while a cell is inconclusive and no other has broken the promise.
    noticed: bool | None
    expectation: Expectation | None

    @property
    def matters(self) -> bool:
        """Whether this mutant counts for the score; one that nothing is known of does."""
        return self.expectation is None or self.expectation.matters

    @property
    def text(self) -> str:
        """Return what became of it, and why, in a few words."""
        if self.noticed:
            return "noticed" if self.matters else "noticed, though not expected"
        if self.noticed is None:
            return "inconclusive"
        return f"survives: {self.expectation.reason}" if self.expectation and not self.matters else "survives: unknown"


@dataclass(frozen=True)
class Score:
    """The mutants of one setting."""

    name: str
    mutants: tuple[Mutant, ...]

    @property
    def mattering(self) -> tuple[Mutant, ...]:
        """Return the mutants that ought to be noticed."""
        return tuple(mutant for mutant in self.mutants if mutant.matters)

    @property
    def text(self) -> str:
        """Return such as `3 / 3`."""
        return f"{sum(mutant.noticed is True for mutant in self.mattering)} / {len(self.mattering)}"


def scores(summary: Summary) -> tuple[Score, ...]:
    """Return the score of every setting of which mutants were run, in the order of the rows."""
    found = []
    rows = [row for row in summary.rows if row.outcome.cell.shim.startswith(DROP_PREFIX)]
    for name, own in groupby(rows, key=_name):
        same = list(own)
        kinds = dict.fromkeys(row.outcome.cell.shim.removeprefix(DROP_PREFIX) for row in same)
        found.append(Score(name, tuple(_mutant(kind, same) for kind in kinds)))
    return tuple(found)


def lines(summary: Summary) -> list[str]:
    """Return the section of the text table: a line for each setting, and one for each mutant that was not noticed."""
    found = []
    for score in scores(summary):
        found.append(f"left out of {score.name}: {score.text} syncs that matter were noticed")
        found += [f"  {mutant.kind} {mutant.text}" for mutant in score.mutants if mutant.noticed is not True]
    return found


def _mutant(kind: str, rows: Sequence[Row]) -> Mutant:
    own = [row for row in rows if row.outcome.cell.shim == f"{DROP_PREFIX}{kind}"]
    results = {row.judgement.result.value for row in own}
    noticed = True if "broken" in results else None if "inconclusive" in results else False
    cells = tuple(row.outcome.cell.id for row in own)
    return Mutant(kind, cells, noticed, expectation(own[0].outcome.cell.settings, kind))


def _name(row: Row) -> str:
    cell = row.outcome.cell
    return f"{cell.engine} {'_'.join(cell.settings.values())} on {cell.filesystem}"
