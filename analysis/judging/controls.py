"""Controls: the scenarios that must show a loss. A night in which they show none proves nothing.

A group is one engine on one file system under one fault. A control of a group fired, did not fire, or was not run. A
scenario can be green only if all required controls of its group fired. The engine's dossier says which settings must
fail (`rig.analysis.dossiers.Controls`). With the default workload these are required:
- the settings that must lose under this fault lose at least one acknowledged transaction, except those that close or
  unlock what they wrote where that is a sync. Where writes may be reordered or torn, the settings that may be damaged
  show some damage, unless the file system keeps files in order or makes durable what is closed or unlocked;
- under a cut during recovery or of a later life, some state is one amid its work (`PlanFacts.inside_count`);
- under a cut after kills, each scenario was killed and started again;
- under a live cut that drops writes, some transactions are acknowledged after the cut and are gone;
- under discards, some judged state holds a discard that took effect, and under shorn writes one holds garbage;
- with a file system on two disks, in some judged state the two disks surely died at different instants;
- under a wrong clock, each workload read first the right time and then the wrong one, and states were judged under the
  wrong clock and under the right one;
- under errors, each scenario whose promise can break saw at least one error;
- under any other fault of a dishonest disk, some state of the group is not durable: the damage reached something;
- when the process is killed, every scenario that promises to lose nothing was hit inside commits (others may commit
  without a call at which they could be hit), the settings that must lose do, and those that must be damaged are.

Another workload than the default makes a group of its own, and so does a tuning that has a word in ids. Such a group
needs neither the first of these controls nor, after a kill, the settings that must lose.

Where the file system itself keeps too little (`rig.filesystems.FileSystem.unsafe`), nothing is promised. Under a power
cut and torn writes it is the control: settings that lose nothing elsewhere must take harm there, or it needs a repair.

A loss is a database that came back whole without its last transactions. Damage is no substitute: a rig that is blind to
losses would still see damage. A scenario whose shim swallows every sync must break its promise to lose nothing, by a
loss, or show a loss that its promise allows. Damage is enough where the promise allows any loss, and where the dossier
says that the engine may never come back whole without its syncs and other settings of the group must lose. Under a
wrong clock, a scenario whose shim trusts the clock must break its promise. A shim that drops one kind of sync makes a
mutant (`rig.analysis.judging.mutations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rig.analysis.dossiers import Keeps, control_settings, dossier_of
from rig.analysis.judging.metrics import Outcome
from rig.analysis.judging.promises import promise_of, violates
from rig.contract.clocks import Clock, is_wrong
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS, SPECS
from rig.contract.injections import Injection
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.results import VerdictKind
from rig.contract.scenario import DEFAULT_WORKLOAD, Scenario, is_default
from rig.engines import find_engine, settings_name
from rig.faults import Holds
from rig.filesystems import keeps_order, syncs_on_close, unsafe


@dataclass(frozen=True, order=True)
class Group:
    """The scenarios that depend on the same controls."""

    engine: str
    filesystem: str
    fault: str
    workload: str = DEFAULT_WORKLOAD
    tuned: str = ""

    def __str__(self) -> str:
        text = f"{self.engine} on {self.filesystem}, {self.fault}{f', with {self.tuned}' if self.tuned else ''}"
        return text if is_default(self.workload) else f"{text}, workload {self.workload}"


@dataclass(frozen=True)
class ControlResult:
    """One control of one group; `fired` is None if none of its scenarios was run."""

    name: str
    group: Group
    fired: bool | None
    # What must be seen, then what was seen.
    what: str
    scenarios: tuple[str, ...]

    @property
    def word(self) -> str:
        """Return the state of the control in words."""
        return {True: "fired", False: "did not fire", None: "was not run"}[self.fired]


_REORDERING_FAULTS = ("powercut", "torn")


def group_of(scenario: Scenario) -> Group:
    """Return the group that the scenario belongs to."""
    return Group(scenario.engine, scenario.filesystem, scenario.fault, scenario.workload_name, scenario.tuned)


def is_control(scenario: Scenario) -> bool:
    """Return whether this scenario must fail, because of its settings or its shim."""
    if scenario.shim == Shim.NONE:
        must_fail = _settings_of_controls(group_of(scenario))
        return _is_plain(group_of(scenario)) and settings_name(scenario.settings) in must_fail
    return not is_mutant(scenario)


def must_lose(scenario: Scenario) -> bool:
    """Return whether this scenario is a control that must lose at least one acknowledged transaction."""
    names = dossier_of(scenario.engine).CONTROLS.losing(scenario.fault, scenario.filesystem)
    return scenario.shim == Shim.NONE and settings_name(scenario.settings) in names


def must_break(scenario: Scenario) -> bool:
    """Return whether this scenario must break its promise: it promises to lose nothing, and its shim prevents that."""
    return _is_shim_control(scenario) and _keeps(scenario) is Keeps.NOTHING_LOST


def _keeps(scenario: Scenario) -> Keeps:
    promise = promise_of(scenario)
    return promise.keeps if promise else Keeps.ANYTHING


def _is_shim_control(scenario: Scenario) -> bool:
    return is_sabotaged(scenario) and not is_mutant(scenario)


def is_sabotaged(scenario: Scenario) -> bool:
    """Return whether a broken promise of this scenario is due to its shim, not to the engine."""
    return is_mutant(scenario) or bool(_sabotage(scenario))


def _sabotage(scenario: Scenario) -> str:
    """Return why the shim of this scenario breaks its promise; empty without a shim that matters here."""
    if scenario.shim == Shim.EATMYDATA:
        return "every sync is swallowed" if scenario.fault in FORGETTING_FAULTS else ""
    reasons = dossier_of(scenario.engine).CONTROLS.programs if scenario.fault in CLOCK_FAULTS else {}
    return reasons.get(scenario.shim, "")


def is_mutant(scenario: Scenario) -> bool:
    """Return whether the shim of this scenario leaves out one kind of sync."""
    return scenario.shim.startswith(DROP_PREFIX)


def is_cross_check(scenario: Scenario) -> bool:
    """Return whether this scenario checks the rig itself, by a few cuts that really happened."""
    spec = SPECS.get(scenario.fault)
    return spec is not None and spec.is_cross_check


def check_controls(outcomes: Sequence[Outcome]) -> tuple[ControlResult, ...]:
    """Return every control of every group among the outcomes, in the order of the groups."""
    groups = sorted({group_of(outcome.scenario) for outcome in outcomes})
    results: list[ControlResult] = []
    for group in groups:
        members = [outcome for outcome in outcomes if group_of(outcome.scenario) == group]
        is_plain = _is_plain(group)
        if unsafe(group.filesystem, group.fault):
            results += [_bare_control(group, members)] if is_plain and _settings_of_controls(group) else []
            continue
        required = dossier_of(group.engine).CONTROLS.losing(group.fault, group.filesystem) if is_plain else ()
        if (spec := SPECS.get(group.fault)) and spec.injection is Injection.KILL:
            results += _kill_controls(group, required, members)
            continue
        results += [_loss_control(group, settings, members) for settings in required]
        is_damaging = bool(dossier_of(group.engine).CONTROLS.damaging) and not _spares_damage(group.filesystem)
        if required and is_damaging and group.fault in _REORDERING_FAULTS:
            results.append(_damage_control(group, required, members))
        if group.fault in _MUST_BE_SEEN:
            results.append(_MUST_BE_SEEN[group.fault](group, members))
        if not required and group.fault in DISHONEST_FAULTS:
            results.append(_reach_control(group, members))
        results += _sabotage_controls(group, required, members)
    return tuple(results)


def doubts(group: Group, controls: Sequence[ControlResult]) -> tuple[str, ...]:
    """Return why no scenario of the group may be green; empty if the group has controls and all fired."""
    own = [control for control in controls if control.group == group]
    if not unsafe(group.filesystem, group.fault):
        engine = find_engine(group.engine)
        is_offered = engine is not None and bool(engine.spec.strict) and group.fault in FORGETTING_FAULTS
        if is_offered and all(control.name in _SEEN_NAMES for control in own):
            return (f"no control of {group} was measured: leave out --no-controls",)
        if not own:
            return (f"no control is known for {group}",)
    return tuple(f"control {control.name} {control.word}" for control in own if control.fired is not True)


def _spares_damage(filesystem: str) -> bool:
    """Return whether settings without syncs need not be damaged on a file system: it keeps order, or syncs itself."""
    return keeps_order(filesystem) or syncs_on_close(filesystem)


def _is_plain(group: Group) -> bool:
    return is_default(group.workload) and not group.tuned


def _settings_of_controls(group: Group) -> tuple[str, ...]:
    """Return the settings that must be run as controls of a group."""
    if not unsafe(group.filesystem, group.fault):
        return control_settings(group.engine, group.fault, group.filesystem)
    engine = find_engine(group.engine)
    return engine.spec.strict if engine and group.fault in _REORDERING_FAULTS else ()


def _bare_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    """Return whether settings that lose nothing elsewhere, or their file system, took harm on this file system."""
    names = _settings_of_controls(group)
    own = [outcome for name in names for outcome in _without_shim(members, name)]
    lost_count, damage_count = sum(map(_lost_count, own)), sum(o.damage.count for o in own)
    verdicts = [verdict for o in own for verdict in o.measured.verdicts]
    harmed_count = sum(v.repaired or v.kind is VerdictKind.FILESYSTEM_DAMAGE for v in verdicts)
    what = (
        f"must take harm, since {unsafe(group.filesystem, group.fault)}; {lost_count} states lost transactions, "
        f"{damage_count} contents came back damaged, in {harmed_count} states the file system was damaged"
    )
    return _control(group, " or ".join(names), own, what, fired=lost_count + damage_count + harmed_count > 0)


def _without_shim(members: Sequence[Outcome], name: str = "") -> list[Outcome]:
    """Return the members that run the engine without a shim; if a name is given, only those with these settings."""
    plain = [o for o in members if o.scenario.shim == Shim.NONE]
    return [o for o in plain if not name or settings_name(o.scenario.settings) == name]


def _control(group: Group, name: str, own: Sequence[Outcome], what: str, *, fired: bool) -> ControlResult:
    """Return the result of the control made of these scenarios; without any it was not run, whatever `fired` says."""
    return ControlResult(name, group, fired if own else None, what, tuple(sorted(o.scenario.id for o in own)))


def _loss_control(group: Group, name: str, members: Sequence[Outcome]) -> ControlResult:
    own = _without_shim(members, name)
    seen = ", ".join(f"{_lost_count(o)} of {o.database_count} states lost" for o in own)
    what = f"must lose at least one acknowledged transaction; {seen or 'not run'}"
    fired = all(_lost_count(o) > 0 and not o.settings_mismatches for o in own)
    return _control(group, name, own, what, fired=fired)


def _lost_count(outcome: Outcome) -> int:
    """Return how many states came back whole without transactions that were acknowledged; damage proves nothing."""
    verdicts = (v for v in outcome.measured.verdicts if v.kind is VerdictKind.LOST_SUFFIX)
    return sum(not v.lost_shown or v.lost > v.lost_shown for v in verdicts)


def _damage_control(group: Group, required: Sequence[str], members: Sequence[Outcome]) -> ControlResult:
    damaging = dossier_of(group.engine).CONTROLS.damaging
    own = [o for o in _without_shim(members) if damaging.items() <= o.scenario.settings.items()]
    damage_count = sum(o.damage.count for o in own if not o.settings_mismatches)
    part = ", ".join(f"{name}={value}" for name, value in damaging.items())
    what = f"some scenario with {part} must show damage; {damage_count} damaged contents seen"
    result = _control(group, "damage", own, what, fired=damage_count > 0)
    was_run = all(_without_shim(members, name) for name in required)
    # Without damage the control failed only if all required scenarios were run.
    return result if result.fired or was_run else replace(result, fired=None)


def _inside_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    own = _without_shim(members)
    inside_count = sum(o.measured.plan.inside_count for o in own if o.state_count >= o.measured.plan.state_count)
    what = f"some recovery or later life must be cut amid its work; {inside_count} states are such cuts"
    return _control(group, "inside", own, what, fired=inside_count > 0)


def _restart_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    counts = [len(outcome.measured.recording.live) for outcome in members]
    what = f"every scenario must be killed and started again; {min(counts)} times or more"
    return _control(group, "restart", members, what, fired=all(counts))


def _void_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    """Return whether a disk dropped acknowledged writes; a cut whose transactions came back does not count."""
    own = _without_shim(members)
    live = [cut for outcome in own for cut in outcome.measured.recording.live]
    gone = [cut for cut in live if cut["recovered"] is not None and cut["recovered"] <= cut["issued"]]
    void_count = sum(cut.get("acked_after", 0) for cut in gone)
    what = f"transactions must be acknowledged after a cut and be gone; {void_count} were"
    return _control(group, "void", own, what, fired=void_count > 0)


def _survival_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    """Return whether the client of a server went on after each crash; `async` exports show that a crash does harm."""
    own = _without_shim(members)
    live = [finding for o in own for finding in o.measured.recording.live]
    going_count = sum(finding.get("acked_after", 0) > 0 for finding in live)
    what = f"transactions must be acknowledged after each crash; they were after {going_count} of {len(live)}"
    return _control(group, "survival", own, what, fired=0 < going_count == len(live))


def _error_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    """Return whether every scenario that promises anything saw an error; otherwise it proves nothing about errors."""
    seen = {o.scenario.id: len(o.measured.recording.live) + o.measured.recording.error_count for o in members}
    promising = [o.scenario for o in _without_shim(members) if _keeps(o.scenario) is not Keeps.ANYTHING]
    blind = sorted(scenario.id for scenario in promising if not seen[scenario.id])
    blind_text = f", none by {', '.join(blind)}" if blind else ""
    told_count = sum(seen.values())
    what = f"every scenario that promises anything must see an error; {told_count} seen{blind_text}"
    return _control(group, "errors", members, what, fired=told_count > 0 and not blind)


def _late_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    own = _without_shim(members)
    late_count = sum(verdict.holds == Holds.DISCARD for o in own for verdict in o.measured.verdicts)
    what = f"some state must hold a discard that took effect; {late_count} do"
    return _control(group, "late", own, what, fired=late_count > 0)


def _garbage_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    own = _without_shim(members)
    judged = [v for o in own for v in o.measured.verdicts if v.holds == Holds.GARBAGE]
    # Garbage that only the file system noticed has not reached the database.
    garbage_count = sum(not v.kind.is_infrastructure for v in judged)
    what = f"some state that a database was judged on must hold garbage; {garbage_count} do"
    return _control(group, "garbage", own, what, fired=garbage_count > 0)


def _apart_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    own = _without_shim(members)
    apart_count = sum(o.measured.plan.apart_count for o in own)
    what = f"some state must hold a write that became durable on one disk after the other was cut; {apart_count} do"
    return _control(group, "apart", own, what, fired=apart_count > 0)


def _clock_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    """Return whether the clocks were wrong, for the workloads and for the verifiers; otherwise no verdict counts."""
    # By scenario, content and instant.
    right: dict[tuple[str, str, int], set[VerdictKind]] = {}
    wrong: dict[tuple[str, str, int], set[VerdictKind]] = {}
    # A program that trusts the clock has its own control, so a difference here is due to the engine.
    for o in (o for o in members if o.scenario.shim == Shim.NONE):
        for verdict in o.measured.verdicts:
            if verdict.clock and not verdict.kind.is_infrastructure:
                judged = right if verdict.clock == Clock.RIGHT else wrong
                judged.setdefault((o.scenario.id, verdict.content, verdict.entry), set()).add(verdict.kind)
    true_count = sum(not is_wrong(group.fault, o.measured.recording.clock) for o in members)
    both = right.keys() & wrong.keys()
    differing_count = sum(right[state] != wrong[state] for state in both)
    what = (
        f"the clock must be wrong, for the workload and after the cut; {true_count} workloads read a right one, "
        f"{len(wrong)} states were judged under a wrong one, {len(both)} of them under the right one as well, "
        f"and {differing_count} verdicts differ"
    )
    return _control(group, "clock", members, what, fired=true_count == 0 and bool(both))


def _reach_control(group: Group, members: Sequence[Outcome]) -> ControlResult:
    own = [o for o in _without_shim(members) if not o.settings_mismatches]
    detected_count, silent_count = sum(o.noticed_count for o in own), sum(o.silent_count for o in own)
    what = f"some state must not be simply durable; {detected_count} detected, {silent_count} silent"
    return _control(group, "reach", own, what, fired=detected_count + silent_count > 0)


def _kill_controls(group: Group, required: Sequence[str], members: Sequence[Outcome]) -> list[ControlResult]:
    own = [o for o in _without_shim(members) if _keeps(o.scenario) is Keeps.NOTHING_LOST]
    hits = [sum(finding["issued"] > finding["acked"] for finding in o.measured.recording.live) for o in own]
    what = f"every scenario that must lose nothing must be killed inside commits; {min(hits, default=0)} times or more"
    results = [_control(group, "mid-commit", own, what, fired=all(hits))]
    results += [_loss_control(group, name, members) for name in required]
    for name in dossier_of(group.engine).CONTROLS.must_damage.get(group.fault, ()):
        without = _without_shim(members, name)
        damage_count = sum(o.damage.count for o in without if not o.settings_mismatches)
        what = f"these settings promise nothing, so a kill must damage; {damage_count} damaged databases seen"
        results.append(_control(group, name, without, what, fired=damage_count > 0))
    return results


def _sabotage_controls(group: Group, required: Sequence[str], members: Sequence[Outcome]) -> list[ControlResult]:
    results = []
    controls = dossier_of(group.engine).CONTROLS
    reason = controls.damaged_without_syncs if required else ""
    for outcome in members:
        scenario = outcome.scenario
        promise = promise_of(scenario)
        is_spared = controls.is_spared(settings_name(scenario.settings), group.filesystem)
        if promise is None or promise.keeps is Keeps.ANYTHING or is_spared or not _is_shim_control(scenario):
            continue
        broken_count = sum(violates(promise, verdict) for verdict in outcome.measured.verdicts)
        lost_count = _lost_count(outcome)
        seen = f"{broken_count} states break it, {lost_count} by a loss in a database that opens"
        # A promise that allows losses may hold without a sync.
        must = "the promise must break" if must_break(scenario) else "something must be lost"
        # Without syncs, a whole database has lost transactions. Where none may come back whole, damage is enough.
        is_damage_enough = bool(reason) and must_break(scenario)
        what = f"{_sabotage(scenario)}, so {must}; {seen}{f' ({reason})' if is_damage_enough else ''}"
        must_show_loss = scenario.shim == Shim.EATMYDATA and not is_damage_enough
        loss_count = lost_count or (broken_count if promise.keeps is Keeps.ANY_WHOLE else 0)
        fired = (loss_count if must_show_loss else broken_count) > 0 and not outcome.settings_mismatches
        results.append(_control(group, scenario.settings_name, [outcome], what, fired=fired))
    return sorted(results, key=lambda result: result.name)


# Fault -> the control that shows that the fault took effect.
_MUST_BE_SEEN: Mapping[str, Callable[[Group, Sequence[Outcome]], ControlResult]] = {
    **dict.fromkeys(("recoverycut", "secondcut"), _inside_control),
    "killcut": _restart_control,
    "discard": _late_control,
    "shorn": _garbage_control,
    "twodisk": _apart_control,
    "livecut-drop": _void_control,
    "servercrash": _survival_control,
    **dict.fromkeys(CLOCK_FAULTS, _clock_control),
    **dict.fromkeys(ERROR_FAULTS, _error_control),
}
# They are no proof that a loss would be seen.
_SEEN_NAMES = frozenset(("inside", "restart", "late", "garbage", "apart"))
