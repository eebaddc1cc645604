"""The smallest loss that shows what a crash state shows, from both sides, and when a cut can cause it.

Four questions, each answered with crash states of the same recording, judged as any other:

- Which writes are enough to be lost, while all others of the cut landed?
- Which writes are enough to have landed, while all others of the cut were lost?
- What is the last cut that shows it? A write that had not reached the disk at all cannot be lost there; it reaches the
  disk later, and the last cut is the one in which it can still be lost. Answered for lost transactions, and where the
  cut can lose nothing that matters.
- What is the first? Where nothing has to land, what matters had landed before. It can still be lost just before the
  first cut that shows it.

Two verdicts are the same if their kind is the same; a lost transaction stays the subject: the first that the explained
state lost is lost in every state that counts. At other cuts the same damage may show otherwise, so any damage is the
same there. It is assumed, and checked at the border, that once a transaction is on
the disk later cuts have it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import itemgetter

from rig.analysis.explain.choices import Atom, Choices
from rig.analysis.explain.instants import CutInstant, instant_of, instant_of_state, phase_of
from rig.analysis.explain.shrink import SINGLES_MAX, Shrunk, smallest
from rig.contract.errors import UsageError
from rig.contract.results import Verdict, VerdictKind
from rig.faults import CrashState, Epoch, Logs, StateIdError, everything_unflushed_lost
from rig.recordings.timeline import Timeline

# A state, and the entry just before which it is judged; None for its own instant.
Placed = tuple[CrashState, int | None]
Judge = Callable[[Sequence[Placed]], Sequence[Verdict]]
# Candidates for the first or the last cut that are judged together: of a fast engine, and of a slow one.
_ABREAST, _ABREAST_IF_SLOW = 12, 4
_PREFIXES = {VerdictKind.LOST_SUFFIX, VerdictKind.SPLIT}


@dataclass(frozen=True)
class Enough:
    """What is enough at one cut: sets of writes, each by itself, and the state of the first set."""

    choices: Choices
    sets: tuple[frozenset[Atom], ...]
    state: CrashState
    is_minimal: bool


@dataclass(frozen=True)
class Loss:
    """The smallest loss that shows what a crash state shows."""

    verdict: Verdict
    state: CrashState
    # Enough to be lost, and enough to have landed, at the cut of the state.
    lost: Enough
    landed: Enough
    # Enough to be lost at the last cut that shows it, if that is another one.
    last: Enough | None
    # Enough to have landed just before the first cut that shows it, if that is another one.
    first: Enough | None
    first_instant: CutInstant
    last_instant: CutInstant
    judged_count: int
    # Whether every question was answered before the time ran out.
    is_complete: bool

    @property
    def subject(self) -> int:
        """Return the transaction that is lost; 0 if the verdict is about something else."""
        return subject_of(self.verdict)

    @property
    def culprit(self) -> Enough:
        """Return where the loss is smallest and not empty: at the last cut, or at the cut of the state."""
        return self.last if self.last and not self.lost.sets[0] else self.lost

    @property
    def premise(self) -> Enough:
        """Return where what landed is smallest and not empty: just before the first cut, or at the cut of the state."""
        return self.first if self.first and not self.landed.sets[0] else self.landed


def subject_of(verdict: Verdict) -> int:
    """Return the first transaction that a verdict says is lost; 0 if it is about something else."""
    return verdict.recovered + 1 if verdict.kind in _PREFIXES and verdict.recovered is not None else 0


@dataclass
class Searcher:
    """Answers the questions for one crash state of a recording; `limit_s` bounds the time of all of them.

    All single writes are tried if there are at most `singles_max`.
    """

    logs: Logs
    timeline: Timeline
    judge: Judge
    limit_s: float
    singles_max: int = SINGLES_MAX
    _begin_s: float = field(default_factory=time.monotonic)
    _judged_count: int = 0
    _judging_s: float = 0.0

    @property
    def states_per_s(self) -> float:
        """Return how many states were judged in a second of judging so far."""
        return self._judged_count / max(self._judging_s, 1e-3)

    def loss(self, state: CrashState, verdict: Verdict) -> Loss:
        """Return the smallest loss that shows the verdict of a state."""
        if verdict.kind is VerdictKind.DURABLE or verdict.kind.is_infrastructure:
            raise UsageError(f"{verdict.state} is {verdict.kind}: there is nothing to explain about the database")
        choices = Choices.of(self.logs, state)
        landed = choices.atoms_of(state)
        everything = frozenset(choices.atoms)
        lost = self._side(choices, everything - landed, verdict, is_lost=True)
        enough = self._side(choices, landed, verdict, is_lost=False)
        last, first = None, None
        if subject_of(verdict) or not lost.sets[0]:
            last = self._last(state, verdict)
        if not subject_of(verdict) and not enough.sets[0]:
            first = self._before_first(state, verdict)
        last_instant = instant_of_state(last.choices.state(()) if last else state, self.logs, self.timeline)
        if subject_of(verdict):
            first_instant = self._first_of_subject(verdict)
        else:
            premise = first or enough
            first_instant = self._first(premise.choices, premise, verdict)
        return Loss(
            verdict, state, lost, enough, last, first, first_instant, last_instant,
            self._judged_count, self._has_time(),
        )  # fmt: skip

    def _side(
        self, choices: Choices, start: frozenset[Atom], verdict: Verdict, *, is_lost: bool, is_elsewhere: bool = False
    ) -> Enough:
        everything = frozenset(choices.atoms)

        def state_of(candidate: frozenset[Atom]) -> CrashState:
            return choices.state(everything - candidate if is_lost else candidate)

        def judge(candidates: Sequence[frozenset[Atom]]) -> list[bool]:
            placed = [(state_of(candidate), None) for candidate in candidates]
            return self._same(placed, verdict, is_elsewhere=is_elsewhere)

        shrunk: Shrunk[Atom] = smallest(choices.atoms, start, judge, self._has_time, self.singles_max)
        return Enough(choices, shrunk.sets, state_of(shrunk.sets[0]), shrunk.is_minimal)

    def _same(self, placed: Sequence[Placed], verdict: Verdict, *, is_elsewhere: bool = False) -> list[bool]:
        """Return for each state whether it shows the same; a state that the log does not tell shows nothing."""
        legal = [candidate for candidate in placed if self._is_legal(candidate[0])]
        self._judged_count += len(legal)
        begin_s = time.monotonic()
        same = dict(zip([(state.id, at) for state, at in legal], self.judge(legal) if legal else (), strict=True))
        self._judging_s += time.monotonic() - begin_s
        return [
            (state.id, at) in same and is_same(same[state.id, at], verdict, is_elsewhere=is_elsewhere)
            for state, at in placed
        ]

    def _is_legal(self, state: CrashState) -> bool:
        try:
            self.logs.parse(state.id)
        except StateIdError:
            return False
        return True

    def _last(self, state: CrashState, verdict: Verdict) -> Enough | None:
        """Return what is enough to be lost at the last cut at which everything unflushed lost still shows the same.

        None if no later cut shows it, or if it never ends.
        """
        own = self.logs.of_disk(state)
        cuts = [
            cut for cut in self._cuts()
            if (cut[0].number, cut[1]) > (own.epoch.number, own.fua_count)
            and self._plain(*cut).latest_instant >= state.latest_instant
        ]  # fmt: skip
        rank = self._last_same([(self._plain(*cut), None) for cut in cuts], verdict)
        if rank is None:
            return None
        choices = Choices.at_border(self.logs, *cuts[rank])
        last = self._side(choices, frozenset(choices.atoms), verdict, is_lost=True, is_elsewhere=True)
        return last if last.sets[0] or subject_of(verdict) else None

    def _before_first(self, state: CrashState, verdict: Verdict) -> Enough | None:
        """Return what is enough to have landed at the last cut before the first that shows the same.

        None if it has shown the same from the start, or if the log does not tell.
        """
        own = self.logs.of_disk(state)
        cuts = [cut for cut in self._cuts() if (cut[0].number, cut[1]) <= (own.epoch.number, own.fua_count)][::-1]
        rank = self._last_same([(self._plain(*cut), None) for cut in cuts], verdict)
        if rank is None or rank + 1 == len(cuts):
            return None
        choices = Choices.at_border(self.logs, *cuts[rank + 1])
        next_fua = frozenset(atom for atom in choices.atoms if choices.has_next and atom.entry in choices.epoch.fuas)
        start = next_fua or frozenset(choices.atoms)
        if not self._same([(choices.state(start), None)], verdict, is_elsewhere=True)[0]:
            return None
        return self._side(choices, start, verdict, is_lost=False, is_elsewhere=True)

    def _first_of_subject(self, verdict: Verdict) -> CutInstant:
        """Return the first instant after the acknowledgement of the subject at which it can be lost."""
        # What the database had shown at the begin of a later life counts as acknowledged then.
        known = (self.timeline.setup, *self.timeline.acks)
        ack = next(moment for moment in known if moment.number >= subject_of(verdict))
        placed = self._plain_states(ack.entry_index + 1, verdict.entry)[::-1]
        rank = self._last_same(placed, verdict)
        entry = verdict.entry if rank is None else placed[rank][1]
        # The cut may come as soon as the entry before this one has completed.
        return CutInstant(entry, self._instant(entry - 1).time_ns, phase_of(entry, self.timeline))

    def _first(self, choices: Choices, enough: Enough, verdict: Verdict) -> CutInstant:
        """Return the first instant at which all writes that are enough had been submitted."""
        account = self.logs.first.account
        entries = [atom.entry for atom in enough.sets[0]]
        if len(self.logs.all) > 1:
            return instant_of_state(enough.state, self.logs, self.timeline)
        if account is None or not entries:
            return self._instant(min(choices.epoch.end, verdict.entry) if entries else choices.epoch.begin)
        submitted = max(int(account.submitted[entry]) for entry in entries)
        begin, end = choices.epoch.begin, min(verdict.entry, len(account.completed) - 1)
        later = [entry for entry in range(begin, end + 1) if account.completed[entry] >= submitted]
        return self._instant(min(later, key=lambda entry: int(account.completed[entry]), default=verdict.entry))

    def _last_same(self, placed: Sequence[Placed], verdict: Verdict) -> int | None:
        """Return the rank of the last of these states that shows the same, if all up to it do; None if none does.

        The first ones tried are close together, and then further and further apart: it is often near.
        """
        low, high, is_first = -1, len(placed), True
        abreast = _ABREAST if self.singles_max >= SINGLES_MAX else _ABREAST_IF_SLOW
        while high - low > 1 and self._has_time():
            step = max(1, (high - low) // (abreast + 1))
            ranks = list(range(low + step, high, step))[:abreast]
            if is_first:
                factor = max(2, ceil(high ** (1 / abreast)))
                ranks = [rank for power in range(abreast) if (rank := factor**power - 1) < high]
                is_first = False
            same = self._same([placed[rank] for rank in ranks], verdict, is_elsewhere=True)
            first_other = next((rank for rank, is_it in zip(ranks, same, strict=True) if not is_it), None)
            if first_other is not None:
                high = first_other
            low = max((rank for rank in ranks if rank < high), default=low)
        return None if low < 0 else low

    def _plain_states(self, first: int, last: int) -> list[tuple[CrashState, int]]:
        """Return the plain states of the instants from one entry to another, each with its instant, in this order."""
        if len(self.logs.all) == 1:
            return [
                (everything_unflushed_lost(self.logs.first, self.logs.epochs, entry), entry)
                for entry in range(first, last + 1)
            ]
        cuts = [
            Choices(self.logs, epoch, count, disk=disk).state(())
            for disk, side in self.logs.pair.sides.items()
            for epoch in side.epochs
            for count in range(len(epoch.fuas) + 1)
        ]
        instants = [(state, state.latest_instant) for state in cuts if self.logs.is_complete(state)]
        return sorted(((state, at) for state, at in instants if first <= at <= last), key=itemgetter(1))

    def _cuts(self) -> Iterator[tuple[Epoch, int]]:
        for epoch in self.logs.epochs:
            if not epoch.doubtful:
                yield from ((epoch, count) for count in range(len(epoch.fuas) + 1))

    def _plain(self, epoch: Epoch, fua_count: int) -> CrashState:
        return Choices(self.logs, epoch, fua_count).state(())

    def _instant(self, entry: int) -> CutInstant:
        return instant_of(entry, self.logs.first, self.timeline)

    def _has_time(self) -> bool:
        return time.monotonic() - self._begin_s < self.limit_s


def is_same(verdict: Verdict, explained: Verdict, *, is_elsewhere: bool = False) -> bool:
    """Return whether a verdict shows the same as the explained one; the subject of the latter must be lost.

    `is_elsewhere` says that it is about another cut, where any damage is the same.
    """
    is_alike = verdict.kind is explained.kind
    if subject := subject_of(explained):
        return is_alike and verdict.recovered is not None and verdict.recovered < subject
    return is_alike or (is_elsewhere and verdict.kind.is_damage and explained.kind.is_damage)
