"""A pattern: what it prepares, what each transaction does, and what is left after a cut.

Preparations are part of the first transaction and always durable, so only what the transactions do is at stake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rig.contract.findings import Finding
from rig.engines.answers import Inventory


@dataclass(frozen=True)
class PatternTask:
    """The task of a pattern: where it works, how many transactions it has, and what to call after each."""

    directory: str
    seed: int
    count: int
    after: str

    def path(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return f"{self.directory}/{name}"


class Pattern(Protocol):
    """One pattern of file use."""

    def __init__(self, task: PatternTask) -> None:
        """Keep the task; touch no file yet."""

    def prepare(self) -> None:
        """Make what the transactions need, durably."""

    def carry_out(self, number: int) -> None:
        """Carry out a transaction, with the calls after it."""

    def inventory(self) -> Inventory | Finding:
        """Return which transactions are there, or the damage if that cannot be said; change nothing."""
