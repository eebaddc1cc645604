"""What reopening a database showed, as the guest reports it and the host reads it.

The guest reports how many transactions it found. Only the host knows how many were acknowledged, so the host turns a
finding into a verdict (`rig.contract.results`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FindingKind(StrEnum):
    """What was found. All but `PREFIX` are verdict kinds of the same spelling."""

    # The content equals the model after the first p transactions.
    PREFIX = "prefix"
    # Each of several databases has the content of a prefix, but the prefixes differ; `recovered` is the shortest.
    SPLIT = "split"
    TORN = "torn"
    HOLE = "hole"
    STALE = "stale"
    FOREIGN = "foreign"
    CORRUPT = "corrupt"
    UNOPENABLE = "unopenable"
    # The engine's process died by a signal or ended itself, took too long, or was killed because no memory was left.
    DIED = "died"
    STUCK = "stuck"
    OUT_OF_MEMORY = "out-of-memory"
    # The engine recovered twice in a row and found something else the second time.
    FICKLE = "fickle"
    # As `PREFIX`, but the engine still held files after it had closed the database.
    KEPT_OPEN = "kept-open"
    FILESYSTEM_DAMAGE = "file-system-damage"
    # Set by the host for a machine that did not answer.
    KERNEL_PANIC = "kernel-panic"
    HANG = "hang"
    INCONCLUSIVE = "inconclusive"
    # Opened again on the same files, the engine showed something else.
    UNSTABLE = "unstable"


# In the detail of file-system damage: what the database looked like on it.
SEEN_AS = "seen as"
# These say nothing about the database: there was no answer.
UNANSWERED = frozenset({FindingKind.KERNEL_PANIC, FindingKind.HANG, FindingKind.INCONCLUSIVE, FindingKind.UNSTABLE})


@dataclass(frozen=True)
class Finding:
    """What reopening one content showed."""

    kind: FindingKind
    # The p of `PREFIX`, `KEPT_OPEN` and `SPLIT`; None for every other kind.
    recovered: int | None = None
    # The first difference, or the engine's own words.
    detail: str = ""
    # Milliseconds of each step, measured in the guest.
    ms: Mapping[str, float] = field(default_factory=dict)
    # The machine's clock after reopening, in seconds since 1970; None if the clock was not set.
    clock_s: float | None = None
    # The file content that was reopened; empty if no file system was mounted.
    files: str = ""
    # Whether the engine was opened on this content; if not, another state with the same files had shown the finding.
    opened: bool = True
    # What the engine met in the files when it was opened, in its own words (`rig.engines.Spec.met`), joined by commas.
    met: str = ""
    # Whether the file system had to be repaired before it was mounted, or repaired one copy from another.
    repaired: bool = False
    # Whether an engine said that it has a transaction in part; such a transaction does not count as recovered.
    is_torn: bool = False
    # Of several clients: how many transactions of each are there; `recovered` is the sum. Empty for one client.
    of_clients: tuple[int, ...] = ()


def words_of(error: Exception) -> str:
    """Return an engine's error with its name: the engine's own, where the driver carries it."""
    name = next((str(value) for key, value in vars(error).items() if key.endswith("_errorname")), "")
    return f"{name or type(error).__name__}: {error}"
