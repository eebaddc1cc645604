"""Which crash states of a recording are checked for a scenario, and which acknowledgements must hold in each.

There are two kinds: the states that the fault model plans, judged at the latest instant at which each is legal; and cut
instants spread evenly over the virtual time of the workload, each as the state in which everything unflushed is lost.
The second kind gives the share of losing instants. States of equal content are put on a disk once.
For a mutant, up to half of the states are planned in the epochs in which a sync was left out. The others are much as in
the plain scenario, and the effect of the missing sync may show only in a few states of a few epochs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rig.contract.arms import SPECS, FaultClass
from rig.contract.clocks import AFTER_CUT, Clock
from rig.contract.results import PhaseFacts, PlanFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import Address, CrashState, Epoch, Fault, Logs, Plan, everything_unflushed_lost, plan, tried
from rig.faults.log.log import SECTOR_BYTES
from rig.planning.matrix import Profile
from rig.recordings.timeline import Timeline

# One in this many states under a wrong clock is also judged under the right one, to show that the clock is the cause.
_RIGHT_EVERY = 8


@dataclass(frozen=True)
class Cut:
    """One crash state to be judged at one instant: just before log entry `entry` of the recording completes."""

    scenario: str
    state: CrashState
    content: str
    entry: int
    # The virtual time that the instant represents; 0 for a state that the fault model planned.
    weight_ns: int
    # The clock with which the machine comes back, if the fault sets it.
    clock: Clock | None = None
    # The states recovered from on the way, the state of the recording first; `state` is of the last recovery's log.
    way: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Return the address under which the verdict is stored."""
        return str(Address(self.state.id, self.way, self.clock or ""))


@dataclass(frozen=True)
class Cuts:
    """All cuts of one scenario."""

    cuts: tuple[Cut, ...]
    facts: PlanFacts


def cuts(scenario: Scenario, profile: Profile, logs: Logs, timeline: Timeline, states_max: int = 0) -> Cuts:
    """Plan the cuts of one scenario, with `states_max` states (0: as many as the profile asks for); deterministic."""
    if not SPECS[scenario.fault].model:
        return Cuts((), PlanFacts(0, 0, 0, 0, 0))
    planned = _planned(scenario, states_max or profile.states_max_of(scenario), logs, timeline)
    found = [Cut(scenario.id, state, logs.digest(state), state.instant, 0) for state in planned.states]
    instants = _instants(scenario, profile.instants_of(scenario), logs, timeline)
    found += instants
    if SPECS[scenario.fault].fault_class is FaultClass.CLOCK:
        found = _under_clocks(found, AFTER_CUT[scenario.fault])
    facts = PlanFacts(
        len(found), planned.epoch_count, planned.epochs_exhaustive, planned.epochs_sampled, len(instants),
        apart_count=sum(cut.state.is_apart for cut in found), epochs_doubtful=planned.epochs_doubtful,
        epochs_unproven=planned.epochs_unproven, doubt=_doubt(logs, timeline) if planned.epochs_doubtful else "",
    )  # fmt: skip
    return Cuts(tuple(found), facts)


def phases(scenario: Scenario, logs: Logs, timeline: Timeline, found: Sequence[Cut]) -> tuple[PhaseFacts, ...]:
    """Return what these cuts have tried of each phase of a commit; nothing if the fault does not lose whole writes.

    Other faults choose among parts of writes or prefixes, so most pairs are not theirs to try.
    """
    if SPECS[scenario.fault].model != Fault.POWERCUT:
        return ()
    reached = [epoch for epoch in logs.epochs if epoch.end > timeline.setup.entry_index]
    return tuple(
        PhaseFacts(
            one.phase.text, len(one.phase.epochs), len(one.phase.roles),
            one.pair_count, one.lost_alone_count, one.landed_alone_count,
        )
        for one in tried(logs.first, reached, [cut.state for cut in found])
    )  # fmt: skip


def _doubt(logs: Logs, timeline: Timeline) -> str:
    """Return where most of the doubtful epochs are open, and why; empty if the first log is not in doubt."""
    counts = Counter(
        (one.sector, one.writer)
        for epoch in logs.epochs
        if epoch.end > timeline.setup.entry_index
        for one in epoch.open_sectors
        if one.writer < epoch.begin
    )
    if not counts:
        return ""
    ((sector, writer), _), *_ = counts.most_common(1)
    place = f"byte {sector * SECTOR_BYTES} of the disk"
    return f"{place} was written with FUA and, as entry {writer}, without, and the log does not tell which came last"


def _planned(scenario: Scenario, states_max: int, logs: Logs, timeline: Timeline) -> Plan:
    def planned(states_max: int, among: Sequence[Epoch] | None = None) -> Plan:
        first_entry = timeline.setup.entry_index
        model = Fault.of(SPECS[scenario.fault].model)
        return plan(model, logs, among, first_entry=first_entry, states_max=states_max, seed=scenario.seed)

    if not timeline.drops:
        return planned(states_max)
    drops = [drop.entry_index for drop in timeline.drops]
    without_sync = [epoch for epoch in logs.epochs if any(epoch.begin <= drop < epoch.end for drop in drops)]
    close = planned(max(1, states_max // 2), without_sync)
    broad = planned(max(1, states_max - len(close.states)))
    states = {state.id: state for state in (*broad.states, *close.states)}
    in_order = sorted(states.values(), key=lambda state: (state.base_end, state.id))
    return replace(broad, states=tuple(in_order))


def _instants(scenario: Scenario, count: int, logs: Logs, timeline: Timeline) -> list[Cut]:
    """Return cut instants spread evenly over virtual time, without those whose state the log leaves open."""
    span_ns = timeline.end.time_ns - timeline.setup.time_ns
    found = []
    for number in range(count):
        entry = timeline.entry_at(timeline.setup.time_ns + (number + 0.5) * span_ns / count)
        state = everything_unflushed_lost(logs.first, logs.epochs, entry)
        if not state.epoch.doubtful:
            found.append(Cut(scenario.id, state, logs.digest(state), entry, span_ns // count))
    return found


def _under_clocks(found: Sequence[Cut], wrong: Clock) -> list[Cut]:
    """Return all cuts under a wrong clock, and a sample also under the right one."""
    return [replace(cut, clock=wrong) for cut in found] + [
        replace(cut, clock=Clock.RIGHT) for cut in found[::_RIGHT_EVERY]
    ]


def by_content(found: Sequence[Cut]) -> list[list[Cut]]:
    """Group cuts of one recording by content and clock, in an order in which the base only moves forward."""
    groups: dict[tuple[str, Clock | None], list[Cut]] = defaultdict(list)
    for cut in found:
        groups[cut.content, cut.clock].append(cut)
    return sorted(groups.values(), key=lambda group: (group[0].state.base_end, group[0].address))


def missing(planned: Sequence[Cut], verdicts: Sequence[Verdict]) -> list[Cut]:
    """Return the cuts without a verdict; identical instants need one verdict each."""
    return _without(planned, Counter(map(_key_of_verdict, verdicts)))


def beyond(planned: Sequence[Cut], known: Sequence[Cut]) -> list[Cut]:
    """Return the cuts that are not among those known."""
    return _without(planned, Counter(map(_key, known)))


def verdicts_of(planned: Sequence[Cut], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on these cuts."""
    keys = set(map(_key, planned))
    return [one for one in verdicts if _key_of_verdict(one) in keys]


_Key = tuple[str, int, int]


def _key(cut: Cut) -> _Key:
    return cut.address, cut.entry, cut.weight_ns


def _key_of_verdict(verdict: Verdict) -> _Key:
    return verdict.state, verdict.entry, verdict.instant_weight_ns


def _without(planned: Sequence[Cut], done: Counter[_Key]) -> list[Cut]:
    found = []
    for cut in planned:
        if done[_key(cut)]:
            done[_key(cut)] -= 1
        else:
            found.append(cut)
    return found
