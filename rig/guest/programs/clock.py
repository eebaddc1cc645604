"""Wrong clocks: what a program reads while it runs, and what its machine reads when it comes back.

Two things go wrong, apart from each other, in every scenario of the clock arm. Both concern the wall clock alone,
CLOCK_REALTIME. CLOCK_MONOTONIC stays right, and with it sleeps, time limits, think time and the marks of the log: Linux
promises that it never steps whatever is done to the wall clock, so if it does the kernel is broken, not the clock.

While the workload runs, libfaketime stands under its process and no other. Up to a transaction that the seed draws the
process reads the right time, from then on one that is a year back (clockback), twenty years ahead and so past 2038
(clockjump), or the same at every reading, to the whole second (clockfrozen). What the kernel notes of files is right.

After the cut the machine comes back with another clock. It is set before the file system is mounted, and the recovery
and the judgement run under it; the id of the state names it behind an "@":
"epoch" (clockback)     a battery was dead: 1970. A day has gone by since, for Linux lets no clock be set to before the
                        machine was switched on, and a file system's check may take a deletion at 0 for damage.
"ahead" (clockjump)     twenty years later than "right".
"stood" (clockfrozen)   the clock stood still ever since the machine was first switched on: it is at the moment before
                        the recording began. It runs from there, since no kernel's clock stands still while it runs.
"right"                 a sample of the same states under a clock that is right, a day after the recording.
The clock of the machine is that of its hardware, so the kernel, the file system and the database all read it.

A file system's check finds fault with times in the future, so it is asked under the clock of the state or the right
one, whichever is later. What a wrong clock can break at all is shown by a program that trusts it: see
`rig.engines.Program`.
Left out: clocks that drift; time zones and leap seconds; a clock that is set right while the database is open.
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
    """Return what puts libfaketime under a process, with the right time to begin with; nothing for other injections."""
    if injection not in CLOCKS:
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

    def __init__(self, orders: Orders, mark: Callable[[str], None]) -> None:
        self._injection = orders.injection if orders.injection in CLOCKS else Injection.NONE
        self._mark = mark
        self._first_wrong = first_wrong(orders.seed, orders.transaction_count)
        # As `rig.contract.clocks.is_wrong` reads them: transaction, whether the clock is to be wrong, wall clock,
        # monotonic clock.
        self.readings: list[tuple[int, bool, int, int]] = []

    def before(self, number: int) -> None:
        """Read the clock before a transaction; in its turn let it go wrong first, and mark that."""
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
    """Return the transaction before which the clock goes wrong: never the first, and half of them come after it."""
    return random.Random(f"clock {seed}").randint(2, max(2, transaction_count // 2))


def set_wall_clock(seconds: float) -> None:
    """Set the clock of this machine, in seconds since 1970; raise OSError where the kernel refuses."""
    time.clock_settime(time.CLOCK_REALTIME, seconds)


def set_for_fsck() -> None:
    """Set the clock of this machine so that no time that was noted under it or while recording is in the future."""
    set_wall_clock(max(time.time(), Clock.RIGHT.seconds))


def _wrong_time(injection: Injection, now_s: float) -> str:
    """Return what libfaketime calls the clock of an injection: an offset in seconds, or the time at which it stands."""
    if injection is Injection.CLOCK_FROZEN:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now_s))
    return f"{BACK_S if injection is Injection.CLOCK_BACK else AHEAD_S:+d}"
