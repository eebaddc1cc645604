"""Replications: what a document measured about an engine's speed, measured again with the document's own workload.

A `Replication` has a workload: a function that carries out one arm once, in an empty directory, in a process of its
own, on the user's disk or in the guest. It tells a `Stopwatch` what is measured and what is not. The function's module
has the replication as `REPLICATION`. Several replications may be about one document, with one or several engines, each
with arms of its own. They share the document's name, and are measured together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rig.speed.trials.stopwatch import Stopwatch

# No workload is given less space, however small its scale.
NEEDED_BYTES_MIN = 64 << 20


@dataclass(frozen=True)
class ArmTask:
    """One arm of a document, to be carried out once."""

    arm: str
    directory: str
    seed: int
    # 1 for the document's own sizes; less for a first look.
    scale: float = 1.0

    def scale_count(self, count: int) -> int:
        """Return one of the document's counts at this scale, at least 1."""
        return max(1, round(count * self.scale))


@dataclass(frozen=True)
class Metric:
    """A figure of a trial, by the name under which the workload counts it."""

    name: str
    unit: str
    more_is_better: bool

    @property
    def is_of_bytes(self) -> bool:
        """Return whether it is bytes divided by bytes ("x written"): the duration of a sync does not change it."""
        return self.unit.startswith("x ")


@dataclass(frozen=True)
class Figure:
    """The ratio of two figures of a document; the figures are None if the document gives only the ratio."""

    arm: str
    base: str
    metric: str
    ratio: float
    # Line in the document.
    line: int
    value: float | None = None
    base_value: float | None = None
    # What the document itself says it is, in a few words.
    what: str = ""


@dataclass(frozen=True)
class Replication:
    """A workload of one document: its arms in order, its metrics, and the figures that the document gives."""

    name: str
    # The name of its engine.
    engine: str
    # Its file in the collection that the claims come from.
    file: str
    about: str
    arms: tuple[str, ...]
    # The first is the main one.
    metrics: tuple[Metric, ...]
    figures: tuple[Figure, ...]
    carry_out: Callable[[ArmTask, Stopwatch], None] = field(repr=False)
    # Arm -> the arm with which it is compared; other arms are compared with the first arm.
    bases: Mapping[str, str] = field(default_factory=dict)
    # Returns why an arm cannot be carried out in a directory; empty if it can.
    obstacle: Callable[[str, str], str] = field(default=lambda _arm, _directory: "", repr=False)
    # Rows of the document that have no arm here -> why.
    absent: Mapping[str, str] = field(default_factory=dict)
    # Roughly how much one trial keeps on the disk at the document's own sizes.
    needed_bytes: int = NEEDED_BYTES_MIN
