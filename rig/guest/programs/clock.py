"""Wrong clocks: what a program reads while it runs, and what its machine reads when it comes back.

Every scenario with a wrong clock has two faults, independent of each other. Both concern only the wall clock,
CLOCK_REALTIME. CLOCK_MONOTONIC stays right, and so do sleeps, time limits, think time and the marks of the log: Linux
promises that this clock never steps, whatever happens to the wall clock. If it did, the fault would be the kernel's.

While the workload runs, libfaketime is preloaded into its process only. Up to a transaction drawn from the seed, the
process reads the right time. From then on it reads a time that is a year back (clockback), twenty years ahead and so
past 2038 (clockjump), or the same whole second at every reading (clockfrozen). The kernel's file times stay right.

After the cut the machine comes back with another clock, which is set before the file system is mounted and kept for
recovery and judgement. The id of the state names it after an "@":
"epoch" (clockback)     1970, as after a dead battery, plus one day: Linux lets no clock be set to before the machine
                        was switched on, and a file system's check may take a deletion at time 0 for damage.
"ahead" (clockjump)     twenty years later than "right".
"stood" (clockfrozen)   the clock stopped when the machine was first switched on and still shows the moment before the
                        recording began. It runs from there, since no kernel's clock stands still while it runs.
"right"                 the right time, a day after the recording, for a sample of the same states.
This is the clock of the whole machine, so the kernel, the file system and the database all read it.

A file system's check complains about times in the future, so it runs under the later of the state's clock and the
right one. A program that trusts the clock shows what a wrong clock can break: see `rig.engines.ControlProgram`.
Left out: clocks that drift; time zones and leap seconds; a clock that is corrected while the database is open.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

from rig.contract.clocks import AHEAD_S, BACK_S, Clock
from rig.contract.injections import CLOCKS, Injection
from rig.contract.orders import Orders

_LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


def environment(injection: Injection) -> dict[str, str]:
    """Return the environment that preloads libfaketime, set to the right time; empty for other injections."""
    if injection not in CLOCKS:
        return {}
    return {
        "LD_PRELOAD": _LIBRARY,
        "FAKETIME": "+0",
        # Without this a change of FAKETIME takes effect ten seconds later.
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        # The shared memory is for child processes, and the guest has no /dev/shm.
        "FAKETIME_DISABLE_SHM": "1",
    }


class ProcessClock:
    """The wall clock of this process, which goes wrong once, just before a transaction drawn from the seed."""

    def __init__(self, orders: Orders, mark: Callable[[str], None]) -> None:
        self._injection = orders.injection if orders.injection in CLOCKS else Injection.NONE
        self._mark = mark
        self._first_wrong = first_wrong(orders.seed, orders.transaction_count)
        # For `rig.contract.clocks.is_wrong`: transaction, whether the clock should be wrong, wall clock, monotonic
        # clock.
        self.readings: list[tuple[int, bool, int, int]] = []

    def before(self, number: int) -> None:
        """Read the clock before a transaction; before the drawn one, first make the clock wrong and mark that."""
        if not self._injection:
            return
        if number == self._first_wrong:
            self._read(number, is_wrong=False)
            self._mark(f"inject-{number}")
            os.environ["FAKETIME"] = _wrong_time(self._injection, time.time())
        self._read(number, is_wrong=number >= self._first_wrong)

    def _read(self, number: int, *, is_wrong: bool) -> None:
        self.readings.append((number, is_wrong, time.time_ns(), time.monotonic_ns()))


def first_wrong(seed: int, transaction_count: int) -> int:
    """Return the transaction before which the clock goes wrong: never the first, and in the first half."""
    return random.Random(f"clock {seed}").randint(2, max(2, transaction_count // 2))


def set_wall_clock(seconds: float) -> None:
    """Set the clock of this machine, in seconds since 1970; raise OSError if the kernel refuses."""
    time.clock_settime(time.CLOCK_REALTIME, seconds)


def set_for_fsck() -> None:
    """Set the clock of this machine so that no time stored under it or during the recording is in the future."""
    set_wall_clock(max(time.time(), Clock.RIGHT.seconds))


def _wrong_time(injection: Injection, now_s: float) -> str:
    """Return the clock of an injection in libfaketime's syntax: an offset in seconds, or a time at which it stands."""
    if injection is Injection.CLOCK_FROZEN:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now_s))
    return f"{BACK_S if injection is Injection.CLOCK_BACK else AHEAD_S:+d}"
