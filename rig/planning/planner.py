"""The states of a scenario that are checked: as many as the profile asks for, and more until enough contents were seen.

A zero rests on the distinct file contents that the engine was opened on. How many contents the states have is known
only after the states were judged, so states are planned in rounds. Each round doubles the states. Rounds end when the
profile has the file contents it wants, a round shows no new content, there are no more states, or there are
`_GROWTH_MAX` times as many as at first. The plan depends only on verdicts of its own states, so a run that is continued
plans what it would have planned anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rig.contract.results import LiveFinding, PlanFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import Logs
from rig.planning import recoverycuts
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut, beyond, cuts, phases, states_for_pairs, verdicts_of
from rig.planning.matrix import Profile
from rig.recordings.recoveries import OpenRecovery, Recoveries
from rig.recordings.timeline import Timeline

_GROWTH_MAX = 4


@dataclass(frozen=True)
class Planned:
    """The cuts of a scenario, each batch with the recovery it is cut from, or None for the recording itself."""

    scenario: Scenario
    batches: Sequence[tuple[OpenRecovery | None, Sequence[Cut]]]
    facts: PlanFacts
    states_max: int = 0
    # The number of distinct file contents that had been seen when these cuts were planned.
    seen_count: int = 0
    # How the engine failed in later lives, before any cut of them.
    failures: Sequence[LiveFinding] = ()


@dataclass(frozen=True)
class PlanningEnd:
    """Why no more states are planned though more file contents are wanted."""

    why: str
    is_saturated: bool


class Planner:
    """Plans the cuts of the scenarios of one recording."""

    def __init__(self, profile: Profile, logs: Logs, timeline: Timeline, auditor: Auditor) -> None:
        self._profile = profile
        self._auditor = auditor
        self.logs = logs
        self.timeline = timeline

    def first(self, scenario: Scenario) -> Planned:
        """Plan as many states as the profile asks for."""
        states_max = self._profile.states_max_of(scenario)
        return self._plan(scenario, states_max, known=(), audited_count=0)

    def of_recoveries(self, scenario: Scenario, kept: Recoveries, stack: ExitStack) -> Planned:
        """Plan the cuts of recorded recoveries, which stay open on the stack."""
        recoveries, facts = recoverycuts.cuts(scenario, self._profile, self.logs, kept, stack)
        audited_count = self._auditor.audit_recoveries(scenario, recoveries, self._profile.audit_count)
        facts = replace(facts, audited_count=audited_count)
        return Planned(scenario, recoveries, facts, failures=recoverycuts.failures(kept))

    def more(self, planned: Planned, verdicts: Sequence[Verdict]) -> Planned | PlanningEnd | None:
        """Plan twice as many states if more file contents are wanted, or return why not; None if there are enough."""
        wanted = self._profile.exposure_of(planned.scenario)
        if not wanted:
            return None
        ((_, known),) = planned.batches
        seen_count = len({v.exposure for v in verdicts_of(known, verdicts) if not v.kind.is_infrastructure})
        if seen_count >= wanted:
            return None
        if seen_count == planned.seen_count:
            return PlanningEnd(f"the last of {len(known)} states showed no new one", is_saturated=True)
        if planned.states_max >= self._profile.states_max_of(planned.scenario) * _GROWTH_MAX:
            return PlanningEnd(f"{len(known)} states were the most that this profile plans", is_saturated=False)
        grown = self._plan(planned.scenario, planned.states_max * 2, known, planned.facts.audited_count)
        if len(grown.batches[0][1]) == len(known):
            return PlanningEnd(f"there are no more than these {len(known)} states", is_saturated=True)
        return replace(grown, seen_count=seen_count)

    def _plan(self, scenario: Scenario, states_max: int, known: Sequence[Cut], audited_count: int) -> Planned:
        planned = cuts(scenario, self._profile, self.logs, self.timeline, states_max)
        fresh = beyond(planned.cuts, known)
        audited_count += self._auditor.audit(scenario, fresh, self._profile.audit_count)
        together = (*known, *fresh)
        facts = replace(
            planned.facts,
            state_count=len(together),
            audited_count=audited_count,
            phases=phases(scenario, self.logs, self.timeline, together),
        )
        states_then, pairs_then = states_for_pairs(scenario, self.logs, self.timeline, facts)
        facts = replace(facts, states_for_pairs=states_then, pairs_then=pairs_then)
        return Planned(scenario, [(None, together)], facts, states_max)
