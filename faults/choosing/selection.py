"""Which crash states of a recording to check, under a budget, fairly over all kinds of epochs.

A fault module ranks the states of one epoch, the most telling first. `select` takes the next state of one epoch after
the other, in two ways that take turns at first. So every beginning of a plan is a tour:

- The walk goes to places of the log that are drawn evenly over its length, so it finds what many places show as soon as
  random cuts would. At each place it takes a state in which about half of the writes landed, or the next state of the
  ranking once these are used up. The walk has three of the first four turns, and so on, and ends with turn 48.
- The other turns share the budget out to strata of epochs (`rig.faults.choosing.strata`), which finds what only a rare
  phase shows.

A plan with a larger budget goes on where a smaller one ends. Of states with equal content only the one with the latest
instant is taken, because it must hold the most acknowledgements. Deterministic.

An epoch counts as exhaustive if its ranking holds all its states and the content of each was taken, otherwise as
sampled. Doubtful epochs (see `rig.faults.log.epochs`) are counted separately, and cut only if a fault module asks for
it.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeVar

from rig.faults.choosing.phases import Phase, phases
from rig.faults.choosing.strata import Stratum, breadth, draw_order, strata
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.content import ContentIndex
from rig.faults.states.state import CrashState, is_told

_T = TypeVar("_T")

# After this many states in a row without new content a sampled epoch is taken to have no more.
BARREN_DRAWS_MAX = 64
# Of this many turns three of four belong to the walk. Its places are drawn from as many equal stretches of the log.
_WALK_TURNS = 48
# How much more a small phase weighs until it has the states that are wanted of it.
_URGENCY = 8


class Digester(Protocol):
    """Tells which states have equal content."""

    def digest(self, state: CrashState) -> str:
        """Return a digest of the whole content of this state."""


class ByName:
    """Takes states for different if their ids are. Costs nothing, and may count a content twice."""

    def digest(self, state: CrashState) -> str:
        """Return the id of a state."""
        return state.id


@dataclass(frozen=True)
class Budget:
    """What may be planned: `states_max` states at instants after entry `first_entry`; `seed` draws them."""

    first_entry: int
    states_max: int
    seed: int
    # The entry of the first acknowledgement, or 0. What comes before it has a share of its own.
    first_ack: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError if there is no budget."""
        if self.states_max < 1:
            raise ValueError(f"states_max is {self.states_max}: a plan without states would prove nothing")


@dataclass(frozen=True)
class Plan:
    """The crash states to check, in the order in which they were chosen, and how many epochs they cover."""

    chosen: tuple[CrashState, ...]
    epoch_count: int
    epochs_exhaustive: int
    epochs_sampled: int
    # Epochs whose content at the start the log does not tell, so most of their states are left out.
    epochs_doubtful: int = 0
    # For two disks: epochs for which the logs do not tell what the other disk held, so no state is claimed.
    epochs_unproven: int = 0

    @property
    def states(self) -> tuple[CrashState, ...]:
        """Return the states sorted so that the base only moves forward."""
        return tuple(sorted(self.chosen, key=lambda state: (state.base_end, state.id)))


@dataclass(frozen=True)
class Ranking:
    """The states of one epoch, the most telling first; may be endless unless exhaustive."""

    states: Iterable[CrashState]
    exhaustive: bool
    # A few states in which about half of the writes landed, for the walk; the ranking may hold them too.
    halves: Iterable[CrashState] = ()


def select(
    log: WriteLog,
    log_epochs: Sequence[Epoch],
    rank: Callable[[Epoch], Ranking],
    budget: Budget,
    *,
    alike: Sequence[Phase] | None = None,
    need: Callable[[int], float] = breadth,
    contents: Digester | None = None,
    cuts_doubtful: bool = False,
) -> Plan:
    """Choose states that the log tells; by default `contents` is an index of the log, and `alike` are its phases.

    `need` says how many states are wanted of a phase with a number of writes.

    With `cuts_doubtful`, rank doubtful epochs too; their ranking must end and hold only states that the log tells.
    """
    reached = [epoch for epoch in log_epochs if epoch.end > budget.first_entry]
    live = [epoch for epoch in reached if cuts_doubtful or not epoch.doubtful]
    alike = phases(log, reached) if alike is None else alike
    lanes = [
        _Lane([_Run(rank(epoch), epoch, budget.first_entry) for epoch in stratum.epochs], stratum)
        for stratum in strata(live, alike, budget.first_ack, budget.seed, need)
    ]
    runs = [run for lane in lanes for run in lane.runs if not run.is_doubtful]
    taken = _Taken(contents or ContentIndex(log), log)
    chance = random.Random(f"turns {budget.seed}")
    # Each stratum has one turn before any has two. The heavier ones tend to come first.
    due = [(_first_turn(chance, lane.stride), number) for number, lane in enumerate(lanes)]
    heapq.heapify(due)
    walk = _walk([run for lane in lanes for run in lane.runs], random.Random(f"walk {budget.seed}"))
    turn = 0
    while due and len(taken.by_content) < budget.states_max:
        turn += 1
        if turn < _WALK_TURNS and turn % 4:
            taken.advance_half(next(walk))
            continue
        time, number = heapq.heappop(due)
        lane = lanes[number]
        if lane.advance(taken):
            time = time + lane.stride if time >= 0 else chance.random() * lane.stride
        if lane.runs:
            heapq.heappush(due, (time, number))
    exhaustive = sum(taken.covers(run) for run in runs if run.is_exhaustive)
    chosen = tuple(taken.by_content.values())
    return Plan(chosen, len(runs), exhaustive, len(runs) - exhaustive, len(reached) - len(runs))


def _walk(runs: Sequence[_Run], chance: random.Random) -> Iterator[_Run]:
    """Yield epochs without end: those in which places fall that are drawn evenly over the log."""
    ends = list(accumulate(run.entry_count for run in runs))
    while True:
        for stretch in draw_order(range(_WALK_TURNS), chance):
            yield runs[bisect_left(ends, (stretch + chance.random()) * ends[-1] / _WALK_TURNS)]


def _first_turn(chance: random.Random, stride: float) -> float:
    """Return the time of the first turn of a stratum, before 0; twice the weight comes first twice as often."""
    wait = chance.expovariate(1) * stride
    return wait / (1 + wait) - 1


def evenly_spaced(items: Sequence[_T], count_max: int) -> Sequence[_T]:
    """Return at most `count_max` items, in order and evenly spaced."""
    if len(items) <= count_max:
        return items
    return [items[rank * len(items) // count_max] for rank in range(count_max)]


def spread(count: int) -> list[int]:
    """Return the numbers below `count`, ordered so that every prefix of the list is spread over the whole range."""
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{width}b}"[::-1], 2))


def in_turns(*rankings: Iterable[_T]) -> Iterator[_T]:
    """Take one item from each ranking, round after round, until all are used up."""
    live = [iter(ranking) for ranking in rankings]
    while live:
        for items in tuple(live):
            try:
                yield next(items)
            except StopIteration:
                live.remove(items)


def mix_rankings(mix: Iterator[int], rankings: Sequence[Iterable[CrashState]]) -> Iterator[CrashState]:
    """Yield the states of all rankings; `mix` gives without end the number of the ranking whose turn it is.

    A ranking that is used up leaves its turns to the others. Several epochs may draw from one mix.
    """
    live = dict(enumerate(iter(ranking) for ranking in rankings))
    while live:
        number = next(mix)
        for candidate in (number, *live):
            if candidate in live and (state := next(live[candidate], None)) is not None:
                yield state
                break
            live.pop(candidate, None)


class _Run:
    """One epoch's ranking on its way through the turns."""

    def __init__(self, ranking: Ranking, epoch: Epoch, first_entry: int) -> None:
        self.states = (state for state in ranking.states if state.instant > first_entry)
        self.is_exhaustive = ranking.exhaustive or epoch.doubtful
        self.is_doubtful = epoch.doubtful
        self.entry_count = epoch.end - epoch.begin
        self.halves = (state for state in ranking.halves if state.instant > first_entry)
        # Whether no state of new content is left.
        self.is_over = False


class _Lane:
    """The rankings of one stratum, which take turns."""

    def __init__(self, runs: Iterable[_Run], stratum: Stratum) -> None:
        self.runs = deque(runs)
        self._stratum = stratum
        self._count = 0

    @property
    def stride(self) -> float:
        """Return how long the stratum waits for its next turn."""
        is_urgent = self._count < self._stratum.urgent_count
        return 1 / (self._stratum.weight * (_URGENCY if is_urgent else 1))

    def advance(self, taken: _Taken) -> bool:
        """Take the next state; return False if the epoch whose turn it was has none left."""
        run = self.runs.popleft()
        if not taken.advance(run):
            return False
        self.runs.append(run)
        self._count += 1
        return True


class _Taken:
    """The states chosen so far, by content."""

    def __init__(self, index: Digester, log: WriteLog) -> None:
        self.by_content: dict[str, CrashState] = {}
        self._index = index
        self._log = log

    def advance(self, run: _Run) -> bool:
        """Take the next state of new content from a run; return False when it has none left."""
        for barren_count, state in enumerate(run.states, start=1):
            if is_told(self._log, state) and self._add(state):
                return True
            if barren_count >= BARREN_DRAWS_MAX and not run.is_exhaustive:
                break
        run.is_over = True
        return False

    def advance_half(self, run: _Run) -> bool:
        """Take a half of new content from a run, or else its next state; return False when it has none left."""
        if run.is_over:
            return False
        return any(is_told(self._log, state) and self._add(state) for state in run.halves) or self.advance(run)

    def covers(self, run: _Run) -> bool:
        """Whether the content of every remaining state of the run was taken too."""
        return all(self._index.digest(state) in self.by_content for state in run.states if is_told(self._log, state))

    def _add(self, state: CrashState) -> bool:
        content = self._index.digest(state)
        known = self.by_content.get(content)
        if known is None or known.instant < state.instant:
            self.by_content[content] = state
        return known is None
