"""The check of an explanation: syncs are added, the scenario is recorded again, and its states are judged.

Supervision adds them, and it may change what a program does. So what they are compared with is a recording under the
same supervision, with nothing added. What an explanation asks of the evidence is here too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

from rig.analysis.explain.blame import Blame
from rig.analysis.explain.loss import Placed
from rig.contract.calls import SeenCall
from rig.contract.errors import RigError
from rig.contract.orders import ADD_EVERYTHING
from rig.contract.places import FilePlaces
from rig.contract.results import RecordingFacts, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Logs
from rig.recordings.timeline import Timeline

# At most this many files that had not been synced are tried, each with a sync. Where no call speaks for a sync, it
# helps only if chance explains that with at most this probability; up to the last one it is the best guess.
_UNSYNCED_MAX, _CHANCE_MAX, _CHANCE_OF_GUESS_MAX = 4, 0.01, 0.1
# The fewest and the most states judged for a check, before and after.
_STATES_MIN, _STATES_MAX = 40, 300
# With fewer broken ones more states are judged, unless those so far took longer than this.
_BROKEN_MIN, _MORE_S = 3, 20


class PlannedCut(Protocol):
    """A state that a plan has."""

    @property
    def state(self) -> CrashState:
        """Return the state."""


class EvidenceSource(Protocol):
    """What a finished run can still be asked about one scenario; see `rig.campaign.evidence`."""

    @property
    def scenario(self) -> Scenario:
        """Return the scenario."""

    @property
    def facts(self) -> RecordingFacts:
        """Return the facts of its recording."""

    @property
    def logs(self) -> Logs:
        """Return the logs of its recording."""

    @property
    def timeline(self) -> Timeline:
        """Return the moments of its recording."""

    @property
    def untold(self) -> str:
        """Return why nobody can tell the calls of the workload, as the end of a sentence; empty if it can be done."""

    def judge(self, placed: Sequence[Placed], *, twice: bool = False) -> Sequence[Verdict]:
        """Judge states, each at an entry or at its own instant; `twice` in machines of two kinds, if there are two."""

    def places(self, states: Sequence[CrashState]) -> Sequence[Sequence[FilePlaces] | None]:
        """Return for each state where its files are; None for one that cannot be mounted."""

    def calls(self, span: tuple[int, int]) -> Sequence[SeenCall]:
        """Return the calls of the workload, with stacks in a span of transactions; none if they are `untold`."""

    def plan(self, span: tuple[int, int], states_max: int) -> Sequence[PlannedCut]:
        """Plan states of the scenario's fault in the epochs that a span of transactions touches."""

    def with_syncs(self, wanted: Sequence[str]) -> AbstractContextManager[Self]:
        """Give the evidence of the same scenario with further syncs, by the roles or paths of files; perhaps none."""


@dataclass(frozen=True)
class StoryCheck:
    """What adding syncs did at the same place: distinct contents that show the same, of all that were judged.

    Any damage is the same; `is_damage` says that it is about damage.
    """

    # The roles or paths of what was synced.
    added: tuple[str, ...]
    broken_before: int
    count_before: int
    broken_after: int
    count_after: int
    # Why the check could not be made; empty if it was.
    failure: str = ""
    is_damage: bool = False
    # Whether a call without a sync speaks for them.
    has_witness: bool = True

    @property
    def helps(self) -> bool:
        """Whether nothing shows the same once the syncs are there, though something did before.

        Without effect, one of those judged afterwards would be expected to show it. Without a witness it must also be
        more than chance.
        """
        is_enough = 0 < self.count_before <= self.count_after * self.broken_before
        return self.is_gone and is_enough and (self.has_witness or self.chance <= _CHANCE_MAX)

    @property
    def helps_in_part(self) -> bool:
        """Whether fewer show the same once the syncs are there, by more than chance, but some do."""
        return not self.failure and self.broken_after > 0 and self.chance <= _CHANCE_MAX

    @property
    def is_gone(self) -> bool:
        """Whether nothing shows the same any more, be it by chance."""
        return not self.failure and self.broken_before > 0 and self.broken_after == 0 < self.count_after

    @property
    def chance(self) -> float:
        """Return how likely it is that so little of what is broken was judged afterwards, if syncs change nothing.

        Fisher's exact test, one-sided.
        """
        broken = self.broken_before + self.broken_after
        ways = (
            math.comb(self.count_before, broken - after) * math.comb(self.count_after, after)
            for after in range(self.broken_after + 1)
        )
        return sum(ways) / math.comb(self.count_before + self.count_after, broken)


@dataclass(frozen=True)
class StoryChecker:
    """Checks one explanation: of a kind of verdict, where a span of transactions was under way."""

    evidence: EvidenceSource
    kind: VerdictKind
    span: tuple[int, int]
    # States that a check begins with, before and after.
    states_max: int
    # When no further guess is tried, by the monotonic clock.
    deadline_s: float = math.inf

    def of_blames(self, blames: Sequence[Blame]) -> tuple[StoryCheck, ...]:
        """Add the syncs that are missing: first for the weightiest call, then all; stop once it helps, or cannot."""
        missing = tuple(dict.fromkeys(blame.sync_to_add for blame in blames if blame.missing))
        checks: list[StoryCheck] = []
        for added in dict.fromkeys((missing[:1], missing)):
            if added and not (checks and (checks[-1].helps or not checks[-1].broken_before)):
                checks.append(self._check(added, has_witness=True))
        return tuple(checks)

    def of_guesses(
        self, blames: tuple[Blame, ...], checks: tuple[StoryCheck, ...], unsynced: Sequence[Blame]
    ) -> tuple[tuple[Blame, ...], tuple[StoryCheck, ...]]:
        """Return another call to blame, with its check, if a sync that nothing speaks for helps; or what was given.

        It may be about a file that had not been written to the disk yet. A sync of everything is tried too: if that
        does not help either, it is about no sync. If one seems to help, perhaps by chance, its check is the last.
        """
        tried = {check.added for check in checks}
        hopeful: list[tuple[Blame, StoryCheck]] = []
        for other in [blame for blame in unsynced if (blame.sync_to_add,) not in tried][:_UNSYNCED_MAX]:
            if time.monotonic() > self.deadline_s:
                break
            check = self._check((other.sync_to_add,), has_witness=False)
            if check.helps:
                return (other,), (check,)
            checks = (*checks, check)
            if not check.broken_before:
                break
            hopeful += [(other, check)] if check.is_gone and check.chance <= _CHANCE_OF_GUESS_MAX else []
        if time.monotonic() <= self.deadline_s and all(check.broken_before for check in checks):
            checks = (*checks, self._check((ADD_EVERYTHING,), has_witness=False))
        if hopeful:
            # The best that is left. What was blamed before does not help, and this may be chance.
            other, best = min(hopeful, key=lambda each: each[1].chance)
            return (other,), (*(check for check in checks if check is not best), best)
        return blames, checks

    def _check(self, added: tuple[str, ...], *, has_witness: bool) -> StoryCheck:
        states_max, broken_before, count_before = 0, 0, 0
        broken_after, count_after, failure = 0, 0, ""
        try:
            states_max, broken_before, count_before = self._before
            with self.evidence.with_syncs(added) as other:
                broken_after, count_after = self._broken_count(other, states_max)
            # Machines that are stopped, because time is up, leave nothing to compare.
            failure = "" if count_before and count_after else "none of the crash states could be judged"
        except RigError as error:
            # What failed comes first and the cause last, with a trace between them if the agent failed.
            text = str(error).splitlines() or [repr(error)]
            failure = " ".join(dict.fromkeys((text[0], text[-1])))
        return StoryCheck(
            added, broken_before, count_before, broken_after, count_after, failure, self.kind.is_damage, has_witness
        )

    @cached_property
    def _before(self) -> tuple[int, int, int]:
        """Return how many states are enough for a check, and what `_broken_count` says of them without syncs added.

        Where hardly any of them is broken, there are more, as long as there is time.
        """
        with self.evidence.with_syncs(()) as same:
            end_s = min(self.deadline_s, time.monotonic() + _MORE_S)
            states_max = min(_STATES_MAX, max(_STATES_MIN, self.states_max))
            while True:
                broken, count = self._broken_count(same, states_max)
                if broken >= _BROKEN_MIN or states_max == _STATES_MAX or time.monotonic() > end_s:
                    return states_max, broken, count
                states_max = min(_STATES_MAX, 2 * states_max)

    def _broken_count(self, evidence: EvidenceSource, states_max: int) -> tuple[int, int]:
        """Return how many distinct contents show the kind, any damage if it is one, and how many there are."""
        cuts = evidence.plan(self.span, states_max)
        verdicts = evidence.judge([(cut.state, None) for cut in cuts])
        known = [verdict for verdict in verdicts if not verdict.kind.is_infrastructure]
        kinds = {self.kind, *(other for other in VerdictKind if self.kind.is_damage and other.is_damage)}
        broken = {verdict.exposure for verdict in known if verdict.kind in kinds}
        return len(broken), len({verdict.exposure for verdict in known})
