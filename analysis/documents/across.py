"""What a document says about one arm on two file systems, compared with two measurements in virtual machines.

Two measurements are comparable only on the same disk. Only a modelled disk is the same everywhere, so measurements on
real disks are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rig.analysis.judging.speed import DEVIATION_MAX
from rig.speed.speeds import WHOLE, Speeds


@dataclass(frozen=True)
class Across:
    """The ratio of a document's figures of one arm on two file systems: no single measurement has both."""

    arm: str
    metric: str
    # The first part of the rig's words for the file systems, without a variant.
    filesystem: str
    base_filesystem: str
    line: int
    value: float
    base_value: float

    @property
    def ratio(self) -> float:
        """Return the document's ratio."""
        return self.value / self.base_value


# Document -> rows about the arms of its replication. 002_ae85c010a67609cc.txt, line 16 is the arm of line 15 on another
# file system, which at that time was mounted without barriers by default.
ROWS: Mapping[str, Sequence[Across]] = {"S2": (Across("wal-32k-full", "seconds", "ext3", "ext4", 16, 1.0, 6.7),)}


@dataclass(frozen=True)
class AcrossSeen:
    """A row of a document, with the ratio that we measured."""

    row: Across
    # The rig's words, with their variants.
    filesystem: str
    base_filesystem: str
    device: str
    ratio: float

    @property
    def deviates(self) -> bool:
        """Whether our ratio differs from the document's by more than a third."""
        return abs(self.ratio / self.row.ratio - 1) > DEVIATION_MAX


def across(rows: Iterable[Across], measured: Sequence[Speeds]) -> list[AcrossSeen]:
    """Return each row once for every pair of measurements that has its arm on both file systems on one device."""
    return [
        AcrossSeen(row, arm.virtual["filesystem"], base.virtual["filesystem"], arm.virtual["device"], ours / of)
        for row in rows
        for arm in measured
        for base in measured
        if _is_on(arm, row.filesystem) and _is_on(base, row.base_filesystem)
        if arm.virtual["device"] == base.virtual["device"]
        if (ours := _figure(row, arm)) and (of := _figure(row, base))
    ]


def _is_on(speeds: Speeds, filesystem: str) -> bool:
    return bool(speeds.virtual) and speeds.virtual["filesystem"].partition(".")[0] == filesystem


def _figure(row: Across, speeds: Speeds) -> float | None:
    """Return the median of an arm that was measured at the document's own size; None without such a measurement."""
    if row.arm not in speeds.arms or speeds.arms[row.arm].load != WHOLE:
        return None
    return statistics.median(trial.metrics[row.metric] for trial in speeds.counted_trials(row.arm))
