"""Talk to a user's program with several transactions in flight; docs/how-to/your-own-program.md has the protocol.

Client c of C carries out transactions c, c + C, and so on, one at a time. The program prints `begin i` when a client
issues transaction i, and `ack i` once it is durable, in any order. Each client waits for an `ok i` of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rig.engines.own import Process, Reply
from rig.engines.program.answers import answer_in, begin_in, quote
from rig.engines.program.endings import early_end, misconduct, require_good_end


class ProgramClients:
    """The program at work for several clients; see `rig.engines.own.ClientsSession`."""

    def __init__(self, launch: Callable[[], Process], client_count: int) -> None:
        self._launch = launch
        self._client_count = client_count
        self._started: Process | None = None
        # Transactions that may begin, those in flight, and those that are over.
        self._due: set[int] = set()
        self._begun: set[int] = set()
        self._over: set[int] = set()
        self._answers: deque[tuple[int, Reply]] = deque()

    def release(self, numbers: Sequence[int]) -> None:
        """Start the program, or say `ok` to the clients whose transactions these are."""
        if self._started is None:
            self._started = self._launch()
            self._due.update(numbers)
            return
        # A client that has begun already has not waited.
        while self._started.has_more():
            self._listen()
        self._due.update(numbers)
        self._say_ok(number - self._client_count for number in numbers)

    def answer(self) -> tuple[int, Reply]:
        """Return the next transaction that the program says `ack` or `fail` of, and what it says."""
        while not self._answers:
            self._listen()
        return self._answers.popleft()

    def close(self) -> None:
        """Say `ok` to the clients that still wait; the program must exit with code 0 and say nothing more."""
        self._say_ok(sorted(self._over - {number - self._client_count for number in self._over}))
        require_good_end(self._process)

    def _listen(self) -> None:
        line = self._process.line()
        if line is None:
            dues = [*(f"`ack {number}`" for number in self._begun), *(f"`begin {number}`" for number in self._due)]
            raise early_end(self._process, f"before it had said {dues[0]}")
        if number := begin_in(line):
            if number not in self._due:
                raise misconduct(f"said {quote(line)} {self._why_not(number)}{self._process.last_words}")
            self._due.remove(number)
            self._begun.add(number)
        elif answer := answer_in(line):
            number, _ = answer
            if number not in self._begun:
                why = "a second time" if number in self._over else f"without `begin {number}` before it"
                raise misconduct(f"said {quote(line)} {why}{self._process.last_words}")
            self._begun.remove(number)
            self._over.add(number)
            self._answers.append(answer)
        else:
            words = f"said {quote(line)}, which is neither `begin N` nor `ack N` nor `fail N`"
            raise misconduct(f"{words}{self._process.last_words}")

    def _why_not(self, number: int) -> str:
        """Return why a transaction may not begin."""
        if number in self._begun | self._over:
            return "a second time"
        before = number - self._client_count
        if before in self._due | self._begun | self._over:
            return f"before it had `ok {before}`: each client has one transaction in flight"
        return "where it is not the next transaction of any client"

    def _say_ok(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._process.say(f"ok {number}")

    @property
    def _process(self) -> Process:
        assert self._started
        return self._started
