"""Which crash states of a recording to check, under a budget, fairly over all epochs.

A fault module ranks the states of one epoch, the most telling first. `select` takes them in turns: the first of every
epoch (of evenly spaced epochs when there are more epochs than budget), then the second of every epoch, and so on.
Of states with equal content only the one with the latest instant is taken, because it must hold the most
acknowledgements. Deterministic.

An epoch counts as exhaustive if its ranking holds all its states and the content of each was taken, otherwise as
sampled. Doubtful epochs (see `rig.faults.log.epochs`) are counted separately, and cut only if a fault module asks for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.content import ContentIndex
from rig.faults.states.state import CrashState

_T = TypeVar("_T")

# After this many states in a row without new content a sampled epoch is taken to have no more.
BARREN_DRAWS_MAX = 64


class Digester(Protocol):
    """Tells which states have equal content."""

    def digest(self, state: CrashState) -> str:
        """Return a digest of the whole content of this state."""


@dataclass(frozen=True)
class Plan:
    """The crash states to check, sorted so that the base only moves forward, and how many epochs they cover."""

    states: tuple[CrashState, ...]
    epoch_count: int
    epochs_exhaustive: int
    epochs_sampled: int
    # Epochs whose content at the start the log does not tell, so most of their states are left out.
    epochs_doubtful: int = 0
    # For two disks: epochs for which the logs do not tell what the other disk held, so no state is claimed.
    epochs_unproven: int = 0


@dataclass(frozen=True)
class Ranking:
    """The states of one epoch, the most telling first; may be endless unless exhaustive."""

    states: Iterable[CrashState]
    exhaustive: bool


def select(
    log: WriteLog,
    log_epochs: Sequence[Epoch],
    rank: Callable[[Epoch], Ranking],
    *,
    first_entry: int,
    states_max: int,
    contents: Digester | None = None,
    cuts_doubtful: bool = False,
) -> Plan:
    """Choose up to `states_max` states at instants after `first_entry`; by default `contents` is an index of the log.

    With `cuts_doubtful`, rank doubtful epochs too; their ranking must end and hold only states that the log tells.
    """
    if states_max < 1:
        raise ValueError(f"states_max is {states_max}: a plan without states would prove nothing")
    reached = [epoch for epoch in log_epochs if epoch.end > first_entry]
    live = [
        _Run(rank(epoch), first_entry, is_doubtful=epoch.doubtful)
        for epoch in reached
        if cuts_doubtful or not epoch.doubtful
    ]
    runs = [run for run in live if not run.is_doubtful]
    taken = _Taken(contents or ContentIndex(log))
    while live and len(taken.by_content) < states_max:
        for run in evenly_spaced(live, states_max - len(taken.by_content)):
            run.is_done = not taken.advance(run)
        live = [run for run in live if not run.is_done]
    exhaustive = sum(taken.covers(run) for run in runs if run.is_exhaustive)
    states = sorted(taken.by_content.values(), key=lambda state: (state.base_end, state.id))
    return Plan(tuple(states), len(runs), exhaustive, len(runs) - exhaustive, len(reached) - len(runs))


def evenly_spaced(items: Sequence[_T], count_max: int) -> Sequence[_T]:
    """Return at most `count_max` items, in order and evenly spaced."""
    if len(items) <= count_max:
        return items
    return [items[rank * len(items) // count_max] for rank in range(count_max)]


def spread(count: int) -> list[int]:
    """Return the numbers below `count`, ordered so that every prefix of the list is spread over the whole range."""
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{width}b}"[::-1], 2))


def in_turns(*rankings: Iterable[CrashState]) -> Iterator[CrashState]:
    """Take one state from each ranking, round after round, until all are used up."""
    live = [iter(ranking) for ranking in rankings]
    while live:
        for states in tuple(live):
            try:
                yield next(states)
            except StopIteration:
                live.remove(states)


class _Run:
    """One epoch's ranking on its way through the turns."""

    def __init__(self, ranking: Ranking, first_entry: int, *, is_doubtful: bool) -> None:
        self.states = (state for state in ranking.states if state.instant > first_entry)
        self.is_exhaustive = ranking.exhaustive or is_doubtful
        self.is_doubtful = is_doubtful
        self.is_done = False


class _Taken:
    """The states chosen so far, by content."""

    def __init__(self, index: Digester) -> None:
        self.by_content: dict[str, CrashState] = {}
        self._index = index

    def advance(self, run: _Run) -> bool:
        """Take the next state of new content from a run; return False when it has none left."""
        for barren_count, state in enumerate(run.states, start=1):
            if self._add(state):
                return True
            if barren_count >= BARREN_DRAWS_MAX and not run.is_exhaustive:
                return False
        return False

    def covers(self, run: _Run) -> bool:
        """Whether the content of every remaining state of the run was taken too."""
        return all(self._index.digest(state) in self.by_content for state in run.states)

    def _add(self, state: CrashState) -> bool:
        content = self._index.digest(state)
        known = self.by_content.get(content)
        if known is None or known.instant < state.instant:
            self.by_content[content] = state
        return known is None
