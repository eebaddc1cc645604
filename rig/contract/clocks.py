"""The clocks with which a machine comes back, and how to tell from a process's readings that its clock was wrong.

A clock is part of a crash state's address if the fault is a wrong clock. `rig.guest.programs.clock` says what
else goes wrong there, and why these clocks were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

from rig.contract.injections import Injection

DAY_S = 86_400
YEAR_S = 365 * DAY_S
BACK_S, AHEAD_S = -YEAR_S, 20 * YEAR_S
# 2026-01-01, at which QEMU starts the clock of every guest (`rig.machines.argv`).
SWITCHED_ON_S = 1_767_225_600
# Reading both clocks takes far less; a frozen clock loses up to a second, once.
_TOLERANCE_NS = 2_000_000_000


class Clock(StrEnum):
    """The clock with which a machine comes back; the value is the spelling in ids."""

    RIGHT = "right"
    EPOCH = "epoch"
    AHEAD = "ahead"
    STOOD = "stood"

    @property
    def seconds(self) -> int:
        """Return the time to which the clock is set, in seconds since 1970."""
        return _SECONDS[self]


_SECONDS = {
    Clock.RIGHT: SWITCHED_ON_S + DAY_S,
    Clock.EPOCH: DAY_S,
    Clock.AHEAD: SWITCHED_ON_S + DAY_S + AHEAD_S,
    Clock.STOOD: SWITCHED_ON_S,
}
# Fault (also the name of its injection) -> the clock after the cut.
AFTER_CUT: Mapping[str, Clock] = {
    Injection.CLOCK_BACK: Clock.EPOCH,
    Injection.CLOCK_JUMP: Clock.AHEAD,
    Injection.CLOCK_FROZEN: Clock.STOOD,
}


def is_wrong(fault: str, readings: Sequence[Sequence[int]]) -> bool:
    """Return whether a process first read the right time and then a clock that was wrong in the way of its fault."""
    right = [(wall, monotonic) for _, wrong, wall, monotonic in readings if not wrong]
    wrong = [(wall, monotonic) for _, wrong, wall, monotonic in readings if wrong]
    if len(right) < 2 or len(wrong) < 2 or [bool(reading[1]) for reading in readings] != sorted(
        bool(reading[1]) for reading in readings
    ):  # fmt: skip
        return False
    if any(abs(b[0] - a[0] - (b[1] - a[1])) > _TOLERANCE_NS for a, b in pairwise(right)):
        return False
    if fault == Injection.CLOCK_FROZEN:
        stands = {wall for wall, _ in wrong} == {wrong[0][0]} and wrong[0][1] < wrong[-1][1]
        return stands and abs(wrong[0][0] - right[-1][0]) <= _TOLERANCE_NS
    step_ns = {Injection.CLOCK_BACK: BACK_S, Injection.CLOCK_JUMP: AHEAD_S}[Injection(fault)] * 1_000_000_000
    wall, monotonic = right[-1]
    return all(abs(w - wall - step_ns - (m - monotonic)) <= _TOLERANCE_NS for w, m in wrong)
