"""Which crash states of a recording are checked for a scenario, and which acknowledgements must hold in each.

There are two kinds: the states that the fault model plans, judged at the latest instant at which each is legal; and cut
instants spread over the virtual time of the workload, each as the state in which everything unflushed is lost. The time
is divided into equal stretches, and the seed draws an instant of each: evenly spaced instants would keep step with a
program that works in periods. The second kind gives the share of losing instants. States of equal content are put on a
disk once.

`Cut.turn` is the order in which cuts are best judged by someone who stops at the first failure: the states in the order
of the plan, which begins with a tour through everything, and after every three of them an instant.
For a mutant, up to half of the states are planned in the epochs in which a sync was left out. The others are much as in
the plain scenario, and the effect of the missing sync may show only in a few states of a few epochs.
With a focus, all states and instants lie in the steps of a user's program that have this name, or shortly after them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rig.contract.clocks import AFTER_CUT, Clock
from rig.contract.errors import NoSuchStepError
from rig.contract.faultspecs import SPECS, FaultClass
from rig.contract.results import PhaseFacts, PlanFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import Address, CrashState, Epoch, Fault, Logs, Plan, everything_unflushed_lost, pair_coverage, plan
from rig.faults.choosing.selection import Budget, in_turns
from rig.faults.choosing.strata import draw_order
from rig.faults.log.log import SECTOR_BYTES
from rig.faults.models.powercut import pairs_at
from rig.faults.states.state import is_told
from rig.planning.matrix import Profile
from rig.recordings.timeline import Moment, Timeline

# One in this many states under a wrong clock is also judged under the right one, to show that the clock is the cause.
_RIGHT_EVERY = 8
# Pairs of writes are worth a word if fewer than this share was tried; then more states are tried out on paper.
_MOST_PAIRS = 0.5
_DOUBLINGS_MAX = 5
# One in this many turns is an instant.
_INSTANT_EVERY = 4


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
    # The place of the cut among the cuts of its plan, for a run that stops at the first failure.
    turn: int = 0

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
    planned = _plan(scenario, states_max or profile.states_max_of(scenario), logs, timeline)
    between = _INSTANT_EVERY - 1
    turns = {state.id: number + number // between for number, state in enumerate(planned.chosen)}
    all_cuts = [
        Cut(scenario.id, state, logs.digest(state), state.instant, 0, turn=turns[state.id]) for state in planned.states
    ]
    instants = _instants(scenario, profile.instants_of(scenario), logs, timeline)
    all_cuts += instants
    if SPECS[scenario.fault].fault_class is FaultClass.CLOCK:
        all_cuts = _under_clocks(all_cuts, AFTER_CUT[scenario.fault])
    facts = PlanFacts(
        len(all_cuts), planned.epoch_count, planned.epochs_exhaustive, planned.epochs_sampled, len(instants),
        apart_count=sum(cut.state.is_apart for cut in all_cuts), epochs_doubtful=planned.epochs_doubtful,
        epochs_unproven=planned.epochs_unproven, doubt=_doubt(logs, timeline) if planned.epochs_doubtful else "",
    )  # fmt: skip
    return Cuts(tuple(all_cuts), facts)


def phases(scenario: Scenario, logs: Logs, timeline: Timeline, cuts: Sequence[Cut]) -> tuple[PhaseFacts, ...]:
    """Return what these cuts have tried of each phase of a commit: pairs of a power cut, tears of torn writes.

    Nothing under other faults, which choose among prefixes or damages.
    """
    model = SPECS[scenario.fault].model
    if model not in (Fault.POWERCUT, Fault.TORN):
        return ()
    reached = [epoch for epoch in logs.epochs if epoch.end > timeline.setup.entry_index]
    return tuple(
        PhaseFacts(
            coverage.phase.text, len(coverage.phase.epochs), coverage.write_count,
            coverage.pair_count, coverage.lost_alone_count, coverage.landed_alone_count, coverage.state_count,
            coverage.tear_count if model == Fault.TORN else None, coverage.tears_tried,
        )
        for coverage in pair_coverage(logs.first, reached, [cut.state for cut in cuts])
    )  # fmt: skip


def states_for_pairs(scenario: Scenario, logs: Logs, timeline: Timeline, facts: PlanFacts) -> tuple[int, int]:
    """Return with how many states most pairs of writes would be tried, and how many pairs; zeros if they are.

    The states are doubled up to `_DOUBLINGS_MAX` times, and the last number that gains anything counts.
    """
    if facts.pairs_tried >= _MOST_PAIRS * facts.pair_count:
        return 0, 0
    best = 0, facts.pairs_tried
    for doubling in range(1, _DOUBLINGS_MAX + 1):
        count = facts.state_count << doubling
        budget = Budget(timeline.setup.entry_index, count, scenario.seed, timeline.first_ack_entry)
        pairs = pairs_at(logs.first, logs.epochs, budget)
        if pairs <= best[1]:
            break
        best = count, pairs
        if pairs >= _MOST_PAIRS * facts.pair_count:
            break
    return best if best[0] else (0, 0)


def _doubt(logs: Logs, timeline: Timeline) -> str:
    """Return where most of the doubtful epochs are open, and why; empty if the first log is not in doubt."""
    counts = Counter(
        (open_sector.sector, open_sector.writer)
        for epoch in logs.epochs
        if epoch.end > timeline.setup.entry_index
        for open_sector in epoch.open_sectors
        if open_sector.writer < epoch.begin
    )
    if not counts:
        return ""
    ((sector, writer), _), *_ = counts.most_common(1)
    place = f"byte {sector * SECTOR_BYTES} of the disk"
    return f"{place} was written with FUA and, as entry {writer}, without, and the log does not tell which came last"


def _plan(scenario: Scenario, states_max: int, logs: Logs, timeline: Timeline) -> Plan:
    def plan_of(states_max: int, among: Sequence[Epoch] | None = None) -> Plan:
        return plan(
            Fault.of(SPECS[scenario.fault].model), logs, among, first_entry=timeline.setup.entry_index,
            states_max=states_max, seed=scenario.seed, first_ack=timeline.first_ack_entry,
        )  # fmt: skip

    if scenario.focus:
        spans = [(begin.entry_index, end.entry_index) for begin, end in _spans_of(scenario, timeline)]

        def is_inside(entry: int) -> bool:
            return any(begin < entry <= end for begin, end in spans)

        focused = plan_of(states_max, [epoch for epoch in logs.epochs if is_inside(epoch.end)])
        return replace(focused, chosen=tuple(state for state in focused.chosen if is_inside(state.instant)))
    if not timeline.drops:
        return plan_of(states_max)
    drops = [drop.entry_index for drop in timeline.drops]
    without_sync = [epoch for epoch in logs.epochs if any(epoch.begin <= drop < epoch.end for drop in drops)]
    close = plan_of(max(1, states_max // 2), without_sync)
    broad = plan_of(max(1, states_max - len(close.states)))
    states = {state.id: state for state in in_turns(close.chosen, broad.chosen)}
    return replace(broad, chosen=tuple(states.values()))


def _instants(scenario: Scenario, count: int, logs: Logs, timeline: Timeline) -> list[Cut]:
    """Return an instant of each of `count` stretches of virtual time, but none whose state the log leaves open."""
    spans_ns = [(begin.time_ns, end.time_ns) for begin, end in _spans_of(scenario, timeline)]
    span_ns = sum(end - begin for begin, end in spans_ns)
    chance = random.Random(f"instants {scenario.seed}")
    order = {number: place for place, number in enumerate(draw_order(range(count), chance))}
    instant_cuts = []
    for number in range(count):
        entry = timeline.entry_at(_time_in(spans_ns, (number + chance.random()) * span_ns / count))
        state = everything_unflushed_lost(logs.first, logs.epochs, entry)
        if is_told(logs.first, state):
            turn = _INSTANT_EVERY * order[number] + _INSTANT_EVERY - 1
            instant_cuts.append(Cut(scenario.id, state, logs.digest(state), entry, span_ns // count, turn=turn))
    return instant_cuts


def _spans_of(scenario: Scenario, timeline: Timeline) -> list[tuple[Moment, Moment]]:
    """Return between which moments a scenario is cut; raise NoSuchStepError if no step has the name of its focus."""
    if not scenario.focus:
        return [(timeline.setup, timeline.end)]
    spans = timeline.step_spans(scenario.focus)
    if not spans:
        names = ", ".join(sorted({name for name, _, _ in timeline.steps})) or "none"
        raise NoSuchStepError(f"no step is called {scenario.focus!r}; the names of steps are: {names}")
    return spans


def _time_in(spans_ns: Sequence[tuple[int, int]], past_ns: float) -> float:
    """Return the time at which this much of the spans is over."""
    for begin, end in spans_ns:
        if past_ns < end - begin:
            break
        past_ns -= end - begin
    return begin + past_ns


def _under_clocks(cuts: Sequence[Cut], wrong: Clock) -> list[Cut]:
    """Return all cuts under a wrong clock, and a sample also under the right one."""
    return [replace(cut, clock=wrong) for cut in cuts] + [
        replace(cut, clock=Clock.RIGHT) for cut in cuts[::_RIGHT_EVERY]
    ]


def by_content(cuts: Sequence[Cut]) -> list[list[Cut]]:
    """Group cuts of one recording by content and clock, in an order in which the base only moves forward."""
    groups: dict[tuple[str, Clock | None], list[Cut]] = defaultdict(list)
    for cut in cuts:
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
    return [verdict for verdict in verdicts if _key_of_verdict(verdict) in keys]


_Key = tuple[str, int, int]


def _key(cut: Cut) -> _Key:
    return cut.address, cut.entry, cut.weight_ns


def _key_of_verdict(verdict: Verdict) -> _Key:
    return verdict.state, verdict.entry, verdict.instant_weight_ns


def _without(planned: Sequence[Cut], done: Counter[_Key]) -> list[Cut]:
    rest = []
    for cut in planned:
        if done[_key(cut)]:
            done[_key(cut)] -= 1
        else:
            rest.append(cut)
    return rest
