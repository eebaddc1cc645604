"""Wrong clocks: what a program reads while it runs, and what its machine reads when it comes back.

Two things go wrong, apart from each other, in every cell of the clock arm. Both concern the wall clock alone,
CLOCK_REALTIME. CLOCK_MONOTONIC stays right, and with it sleeps, time limits, think time and the marks of the log: Linux
promises that it never steps whatever is done to the wall clock, so if it does the kernel is broken, not the clock.

While the workload runs, libfaketime stands under its process and no other. Up to a transaction that the seed draws the
process reads the right time, from then on one that is a year back (clockback), twenty years ahead and so past 2038
(clockjump), or the same at every reading, to the whole second (clockfrozen). What the kernel notes of files is right.

After the cut the machine comes back with another clock. It is set before the file system is mounted, and the recovery
and the judgement run under it; the id of the state names it behind an "@":
"epoch" (clockback)     a battery was dead: 1970. A day has gone by since, for Linux lets no clock be set to before the
                        machine was switched on, and e2fsck takes a deletion at 0 for damage.
"ahead" (clockjump)     twenty years later than "right".
"stood" (clockfrozen)   the clock stood still ever since the machine was first switched on: it is at the moment before
                        the recording began. It runs from there, since no kernel's clock stands still while it runs.
"right"                 a sample of the same states under a clock that is right, a day after the recording.
The clock of the machine is that of its hardware, so the kernel, the file system and the database all read it.

e2fsck finds fault with times in the future, so it is asked under the clock of the state or the right one, whichever is
later. What a wrong clock can break at all is shown by a program that trusts it: `rig.guest.programs.lastwriter`.
Left out: clocks that drift; time zones and leap seconds; a clock that is set right while the database is open.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

_LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
_BACK_S, _AHEAD_S = -_YEAR_S, 20 * _YEAR_S
# 2026-01-01, at which QEMU starts the clock of every guest (`rig.machines.argv`).
_SWITCHED_ON_S = 1_767_225_600
# A reading of both clocks takes far less, and a frozen clock loses up to a second, once.
_TOLERANCE_NS = 2_000_000_000


class Clock(StrEnum):
    """The clock that a machine comes back with; the value is the spelling in ids."""

    RIGHT = "right"
    EPOCH = "epoch"
    AHEAD = "ahead"
    STOOD = "stood"

    @property
    def seconds(self) -> int:
        """Return the time that the clock is set to, in seconds since 1970."""
        return _SECONDS[self]


_SECONDS = {
    Clock.RIGHT: _SWITCHED_ON_S + _DAY_S,
    Clock.EPOCH: _DAY_S,
    Clock.AHEAD: _SWITCHED_ON_S + _DAY_S + _AHEAD_S,
    Clock.STOOD: _SWITCHED_ON_S,
}
# By fault, which is also the name of its injection.
AFTER_CUT: Mapping[str, Clock] = {
    "clockback": Clock.EPOCH,
    "clockjump": Clock.AHEAD,
    "clockfrozen": Clock.STOOD,
}


def environment(injection: str) -> dict[str, str]:
    """Return what puts libfaketime under a process, with the right time to begin with; nothing for other injections."""
    if injection not in AFTER_CUT:
        return {}
    return {
        "LD_PRELOAD": _LIBRARY,
        "FAKETIME": "+0",
        # Otherwise a change of FAKETIME takes effect ten seconds later.
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        # It is there for children to share, and the guest has no /dev/shm.
        "FAKETIME_DISABLE_SHM": "1",
    }


class ProcessClock:
    """The wall clock of this process, which goes wrong just before a transaction that the seed draws, once."""

    def __init__(self, orders: Mapping[str, Any], mark: Callable[[str], None]) -> None:
        self._fault = orders["injection"] if orders["injection"] in AFTER_CUT else ""
        self._mark = mark
        self._first_wrong = first_wrong(orders["seed"], orders["transaction_count"])
        # As `is_wrong` reads them: transaction, whether the clock is to be wrong, wall clock, monotonic clock.
        self.readings: list[tuple[int, bool, int, int]] = []

    def before(self, number: int) -> None:
        """Read the clock before a transaction; in its turn let it go wrong first, and mark that."""
        if not self._fault:
            return
        if number == self._first_wrong:
            self._read(number, is_wrong=False)
            self._mark(f"inject-{number}")
            os.environ["FAKETIME"] = _wrong_time(self._fault, time.time())
        self._read(number, is_wrong=number >= self._first_wrong)

    def _read(self, number: int, *, is_wrong: bool) -> None:
        self.readings.append((number, is_wrong, time.time_ns(), time.monotonic_ns()))


def first_wrong(seed: int, transaction_count: int) -> int:
    """Return the transaction before which the clock goes wrong: never the first, and half of them come after it."""
    return random.Random(f"clock {seed}").randint(2, max(2, transaction_count // 2))


def is_wrong(fault: str, readings: Sequence[Sequence[int]]) -> bool:
    """Return whether a process read the right time first, and then a clock that was wrong in the way of its fault."""
    right = [(wall, monotonic) for _, wrong, wall, monotonic in readings if not wrong]
    wrong = [(wall, monotonic) for _, wrong, wall, monotonic in readings if wrong]
    if len(right) < 2 or len(wrong) < 2 or [bool(reading[1]) for reading in readings] != sorted(
        bool(reading[1]) for reading in readings
    ):  # fmt: skip
        return False
    if any(abs(b[0] - a[0] - (b[1] - a[1])) > _TOLERANCE_NS for a, b in pairwise(right)):
        return False
    if fault == "clockfrozen":
        stands = {wall for wall, _ in wrong} == {wrong[0][0]} and wrong[0][1] < wrong[-1][1]
        return stands and abs(wrong[0][0] - right[-1][0]) <= _TOLERANCE_NS
    step_ns = {"clockback": _BACK_S, "clockjump": _AHEAD_S}[fault] * 1_000_000_000
    wall, monotonic = right[-1]
    return all(abs(w - wall - step_ns - (m - monotonic)) <= _TOLERANCE_NS for w, m in wrong)


def set_wall_clock(seconds: float) -> None:
    """Set the clock of this machine, in seconds since 1970; raise OSError where the kernel refuses."""
    time.clock_settime(time.CLOCK_REALTIME, seconds)


def set_for_fsck() -> None:
    """Set the clock of this machine so that no time that was noted under it or while recording is in the future."""
    set_wall_clock(max(time.time(), Clock.RIGHT.seconds))


def _wrong_time(fault: str, now_s: float) -> str:
    """Return what libfaketime calls the clock of a fault: an offset in seconds, or the time at which it stands."""
    if fault == "clockfrozen":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now_s))
    return f"{_BACK_S if fault == 'clockback' else _AHEAD_S:+d}"
