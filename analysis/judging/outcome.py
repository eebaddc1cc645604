"""The verdicts of one scenario summed up, judged against its promise, and all scenarios summed up into one answer.

The rules of judgement, in this order:
1. The settings read back differ from those asked for: inconclusive, because the promise is about other settings.
2. A verdict violates the promise: broken. A counterexample can be replayed, so no doubt elsewhere excuses it.
3. Inconclusive on any of these doubts: no promise is known; more than 5 % of the epochs are doubtful; no state has a
   verdict on the database; fewer states judged than planned; more than 1 % of the states ended in a hang, a panic or no
   verdict; a state has a transaction that had not begun; most epochs of two disks were not cut, or more than 5 % of the
   states are bad ones that only a damaged file system excuses; a second recording differed; a transaction lacks a
   documented sync or makes others in its place; fewer
   distinct file contents than asked for, unless every epoch was enumerated, nothing is promised anyway, or twice the
   states showed no new content and there is one for every eighth transaction; few cuts in a step that a program names.
4. Where nothing is promised, or what is promised cannot be held against the engine (a file system that does not keep
   what it has synced, a disk that lies): not judged. What was seen is shown, and never called kept.
5. Otherwise kept. File-system damage is shown, never blamed on the database, and never counts as exposure.
A broken promise is shown with what the file system itself lost in the same run (`rig.analysis.judging.blame`).
Then `summarise` applies the controls: a scenario of a group whose controls did not all fire becomes inconclusive unless
it is broken. Scenarios that were not judged do not decide the answer of a run; a run with only such scenarios is
inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rig.analysis.dossiers import Keeps, Promise
from rig.analysis.judging import blame
from rig.analysis.judging.controls import (
    ControlResult,
    check_controls,
    doubts,
    group_of,
    is_cross_check,
    is_mutant,
    is_sabotaged,
)
from rig.analysis.judging.metrics import Outcome, observation, outcome, settings_rank, step_cuts, worst_first
from rig.analysis.judging.promises import promise_of, violates
from rig.analysis.judging.protocol import compare
from rig.contract.faultspecs import SPECS, exposure_wanted, is_live_cut
from rig.contract.findings import SEEN_AS
from rig.contract.orders import Shim
from rig.contract.results import MeasuredScenario, PlanFacts, Verdict, VerdictKind
from rig.contract.scenario import Scenario, is_default
from rig.engines import find_engine
from rig.filesystems import unsafe

# Above this share of states without a verdict the scenario is inconclusive.
UNJUDGED_SHARE_MAX = 0.01
# Above this share of epochs that could hardly be cut, no verdict may rest on the recording.
DOUBTFUL_SHARE_MAX = 0.05
# Above this share of epochs of two disks that could not be cut, or of bad states that the file system excuses.
UNCUT_SHARE_MAX, EXCUSED_SHARE_MAX = 0.5, 0.05
# Finding nothing new makes up for too little exposure, but not with less than one file content for this many
# transactions.
SEEN_PART = 8
# A step that a user's program names has to be hit by this many cuts.
STEP_CUTS_MIN = 20
_AGAINST_DOUBT = "record with another --seed, or let the program flush between two such writes"
# What to do about too little exposure: where the last states showed nothing new, and where more states may.
_AGAINST_LITTLE = {
    True: "more states show nothing new: record more with --profile nightly, or write more in a transaction",
    False: "try more states: --states, or --profile nightly",
}
_UNJUDGED = (VerdictKind.KERNEL_PANIC, VerdictKind.HANG, VerdictKind.INCONCLUSIVE, VerdictKind.UNSTABLE)


class Result(StrEnum):
    """The three-valued answer, and a fourth word for scenarios without one; inconclusive is never green."""

    KEPT = "kept"
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"
    # For a scenario, never for a run: there was no promise to hold it to.
    NOT_JUDGED = "not judged"


EXIT_CODES: Mapping[Result, int] = {Result.KEPT: 0, Result.BROKEN: 1, Result.INCONCLUSIVE: 3}


@dataclass(frozen=True)
class Judgement:
    """Whether the promise was kept, why, and every verdict that broke it, worst first."""

    result: Result
    reasons: tuple[str, ...]
    broken_by: tuple[Verdict, ...]
    # Which of the reasons make it inconclusive.
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One scenario with all that is known about it."""

    outcome: Outcome
    promise: Promise | None
    judgement: Judgement
    # A broken promise here is due to the shim and is not a failure of the engine.
    is_sabotaged: bool
    # What the file system itself lost, if a loss breaks the promise or if only the file system excuses it.
    blame: str = ""
    # Where `rig replay` finds the scenario's run; empty for the default directory.
    run_dir: str = ""

    @property
    def result_text(self) -> str:
        """Return the result as it is shown, marked as a control if the shim is to break the promise."""
        if is_mutant(self.outcome.scenario):
            return {Result.BROKEN: "noticed", Result.KEPT: "survives"}.get(self.judgement.result, "inconclusive")
        if self.is_sabotaged and self.judgement.result is not Result.NOT_JUDGED:
            return f"{self.judgement.result} (control)"
        if self.judgement.result is Result.NOT_JUDGED and not self.is_withheld:
            return "nothing promised"
        return self.judgement.result.value

    @property
    def is_withheld(self) -> bool:
        """Whether a promise that exists could not be held against the engine here."""
        return self.promise is not None and bool(self.promise.withheld)


@dataclass(frozen=True)
class Summary:
    """All scenarios of a run, its controls and the one answer."""

    rows: tuple[Row, ...]
    controls: tuple[ControlResult, ...]
    result: Result

    @property
    def exit_code(self) -> int:
        """Return 0 for kept, 1 for broken, 3 for inconclusive."""
        return EXIT_CODES[self.result]


def judge(outcome: Outcome, promise: Promise | None, exposure_min: int) -> Judgement:
    """Return whether these states alone keep the promise, before the controls are applied."""
    if outcome.settings_mismatches:
        return Judgement(Result.INCONCLUSIVE, outcome.settings_mismatches, (), outcome.settings_mismatches)
    shown = _filesystem_damage(outcome)
    if promise is None:
        unknown = "no promise is known for these settings under this fault"
        return Judgement(Result.INCONCLUSIVE, (unknown, *shown), (), (unknown,))
    compared = compare(outcome.measured)
    plan = outcome.measured.plan
    notes = (
        note_on_shown(outcome, promise), steps_text(outcome), _note_on_repetition(outcome), _note_on_recoveries(outcome)
    )  # fmt: skip
    shown = (*shown, *filter(None, (_uncut(plan), plan.emulated_because, compared.note, *notes)))
    broken_by = worst_first(verdict for verdict in outcome.measured.verdicts if violates(promise, verdict))
    if broken_by:
        reason = f"{len(broken_by)} of {outcome.database_count} states break the promise: {promise.text}"
        also = filter(None, (blindness(outcome.measured.plan), compared.difference))
        return Judgement(Result.BROKEN, (reason, *also, *shown), broken_by)
    doubts = _doubts(outcome, promise, exposure_min)
    if doubts:
        return Judgement(Result.INCONCLUSIVE, (*doubts, *shown), (), doubts)
    if promise.keeps is Keeps.ANYTHING:
        why = f"not judged, because {promise.withheld}" if promise.withheld else "nothing is promised"
        return Judgement(Result.NOT_JUDGED, (f"{why}: {observation(outcome)}", *shown), ())
    return Judgement(Result.KEPT, (f"no state of {outcome.database_count} breaks the promise", *shown), ())


def breaks(scenario: Scenario, verdict: Verdict) -> bool:
    """Return whether a verdict breaks a promise of the engine, so that a run may end there."""
    promise = promise_of(scenario)
    return promise is not None and not is_sabotaged(scenario) and violates(promise, verdict)


def blindness(plan: PlanFacts) -> str:
    """Return which epochs are doubtful, why, and what to do; empty if they are only a small share."""
    count = plan.epoch_count + plan.epochs_doubtful
    if plan.epochs_doubtful <= DOUBTFUL_SHARE_MAX * count:
        return ""
    why = f": {plan.doubt}" if plan.doubt else ""
    return f"{plan.epochs_doubtful} of {count} epochs are doubtful and could hardly be cut{why}; {_AGAINST_DOUBT}"


def _is_own(scenario: Scenario) -> bool:
    """Return whether a scenario measures a program with transactions of its own, which may have threads."""
    engine = find_engine(scenario.engine)
    return engine is not None and engine.own_driver is not None


def _note_on_repetition(outcome: Outcome) -> str:
    if outcome.measured.recording.reproduced is not False or not _is_own(outcome.scenario):
        return ""
    return (
        "its two recordings differ, because the program does not repeat or the host was busy; a new run has other "
        "states, and each recording proves its own"
    )


def _note_on_recoveries(outcome: Outcome) -> str:
    """Return how many recoveries or later lives were cut, and how many states came amid their work; empty for none."""
    spec, plan = SPECS[outcome.scenario.fault], outcome.measured.plan
    if not spec.cuts_recovery:
        return ""
    what, amid = ("later lives", "one had acknowledged a transaction") if spec.later_count else (
        "recoveries", "one had begun to write to the files"
    )  # fmt: skip
    return f"{plan.recovery_count} {what} were recorded and cut; in {plan.inside_count} states {amid}"


def _uncut(plan: PlanFacts) -> str:
    if not plan.epochs_unproven:
        return ""
    count = _epochs_of(plan)
    return f"{plan.epochs_unproven} of {count} epochs were not cut: the logs do not tell what the other disk held"


def _epochs_of(plan: PlanFacts) -> int:
    """Return how many epochs there are, whether they were cut or not."""
    return plan.epoch_count + plan.epochs_doubtful + plan.epochs_unproven


def note_on_shown(outcome: Outcome, promise: Promise) -> str:
    """Return how many states lost what was shown after a restart and is promised by nobody; empty for none."""
    count = sum(verdict.lost_shown > 0 for verdict in outcome.measured.verdicts)
    if promise.covers_shown or not count:
        return ""
    return f"{count} states lost what had only been shown, after a restart; no page promises that it stays"


def steps_text(outcome: Outcome) -> str:
    """Return how many cuts hit the steps to which a user's program gave names."""
    counts = [cuts.text for cuts in step_cuts(outcome.measured)]
    return f"steps: {'; '.join(counts)}" if counts else ""


def _missed_steps(outcome: Outcome) -> Iterator[str]:
    """Yield the steps that few cuts hit, and what to do; under a focus only the steps in it count."""
    focus = outcome.scenario.focus
    for cuts in step_cuts(outcome.measured):
        if cuts.cut_count < STEP_CUTS_MIN and focus in {"", cuts.name}:
            remedy = "more --states, or more such steps" if focus else f"`--focus {cuts.name}` spends all cuts there"
            yield f"too few cuts in a step: {cuts.text}, {STEP_CUTS_MIN} asked for; {remedy}"


def summarise(scenarios: Iterable[MeasuredScenario], exposure_min: int, run_dir: str = "") -> Summary:
    """Judge every scenario of a run and its controls, and return one answer: broken before inconclusive before kept."""
    outcomes = [
        outcome(scenario) for scenario in sorted(scenarios, key=lambda outcome: _scenario_order(outcome.scenario))
    ]
    controls = check_controls(outcomes)
    judged = [replace(_row(outcome, controls, exposure_min), run_dir=run_dir) for outcome in outcomes]
    called = blame.witnesses(row.outcome for row in judged if row.judgement.result is not Result.INCONCLUSIVE)
    rows = tuple(_with_blame(row, called) for row in judged)
    return Summary(rows, controls, _worst(rows))


def together(summaries: Iterable[Summary]) -> Summary:
    """Return the summary of several runs; if they share a scenario with all its settings, the last run counts.

    Each run was judged with its own controls, and keeps its verdicts.
    """
    rows: dict[str, Row] = {}
    controls: list[ControlResult] = []
    for summary in summaries:
        rows.update({row.outcome.scenario.full_name: row for row in summary.rows})
        controls += summary.controls
    ordered = tuple(sorted(rows.values(), key=lambda row: _scenario_order(row.outcome.scenario)))
    return Summary(ordered, tuple(controls), _worst(ordered))


def _worst(rows: Sequence[Row]) -> Result:
    results = [row.judgement.result for row in rows if not row.is_sabotaged]
    result = Result.KEPT if Result.KEPT in results else Result.INCONCLUSIVE
    for worse in (Result.INCONCLUSIVE, Result.BROKEN):
        result = worse if worse in results else result
    return result


def _row(outcome: Outcome, controls: tuple[ControlResult, ...], exposure_min: int) -> Row:
    scenario = outcome.scenario
    promise = promise_of(scenario)
    judgement = judge(outcome, promise, exposure_min)
    voids = doubts(group_of(scenario), controls)
    if judgement.result is not Result.BROKEN and voids:
        reasons, doubted = (*voids, *judgement.reasons), (*voids, *judgement.doubts)
        judgement = replace(judgement, result=Result.INCONCLUSIVE, reasons=reasons, doubts=doubted)
    return Row(outcome, promise, judgement, is_sabotaged(scenario))


def _with_blame(row: Row, called: Mapping[blame.Ground, Sequence[blame.Witness]]) -> Row:
    scenario = row.outcome.scenario
    excused = unsafe(scenario.filesystem, scenario.fault) and row.outcome.losing_count
    if row.is_sabotaged or blame.is_witness(scenario) or not (row.judgement.broken_by or excused):
        return row
    return replace(row, blame=blame.testimony(called.get(blame.ground_of(scenario), ())))


# Why a scenario of these faults is in doubt that has no state inside what it cuts (`PlanFacts.inside_count`).
_NONE_INSIDE: Mapping[str, str] = {
    "recoverycut": "no recovery was cut after it had begun to write to the files of the database",
    "secondcut": "no later life was cut after it had acknowledged a transaction",
}


def _doubts(outcome: Outcome, promise: Promise, exposure_min: int) -> tuple[str, ...]:
    scenario, plan, recording = outcome.scenario, outcome.measured.plan, outcome.measured.recording
    doubts = []
    unjudged_count = sum(outcome.kind_counts.get(kind, 0) for kind in _UNJUDGED)
    if blind := blindness(plan):
        doubts.append(blind)
    if outcome.database_count == 0:
        doubts.append("no state has a verdict on the database")
    if outcome.state_count < plan.state_count:
        doubts.append(f"only {outcome.state_count} of {plan.state_count} planned states were judged")
    if scenario.fault in _NONE_INSIDE and not plan.inside_count and promise.keeps is not Keeps.ANYTHING:
        doubts.append(_NONE_INSIDE[scenario.fault])
    if unjudged_count > UNJUDGED_SHARE_MAX * outcome.state_count:
        doubts.append(f"{unjudged_count} of {outcome.state_count} states hung, panicked or gave no verdict")
    if recording.reproduced is False and not _is_own(scenario):
        doubts.append("a second run of the same scenario gave another recording")
    if strange := compare(outcome.measured).difference:
        doubts.append(strange)
    doubts += _odd(outcome)
    if promise.keeps is not Keeps.ANYTHING:
        doubts += [*_unseen(outcome, exposure_min), *_refusals(outcome, promise)]
    return tuple(doubts)


def _odd(outcome: Outcome) -> Iterator[str]:
    """Yield what contradicts itself, and what says too little about too much."""
    verdicts, plan = outcome.measured.verdicts, outcome.measured.plan
    if unstable_count := outcome.kind_counts.get(VerdictKind.UNSTABLE, 0):
        yield f"{unstable_count} states showed something else when the same files were opened again"
    if plan.epochs_unproven > UNCUT_SHARE_MAX * _epochs_of(plan):
        yield f"most of the recording was not cut; {_AGAINST_DOUBT}"
    # Only such a verdict is inconclusive and says how many transactions there are.
    ahead = [each for each in verdicts if each.kind is VerdictKind.INCONCLUSIVE and each.recovered is not None]
    if ahead:
        yield f"{len(ahead)} states have a transaction that had not begun, for example {ahead[0].state}"
    excused_count = sum(each.kind is VerdictKind.FILESYSTEM_DAMAGE and SEEN_AS in each.detail for each in verdicts)
    if excused_count > EXCUSED_SHARE_MAX * len(verdicts):
        yield f"{excused_count} of {len(verdicts)} states were bad, and only damage of the file system excuses them"


def _refusals(outcome: Outcome, promise: Promise) -> Iterator[str]:
    """Yield that most states were refused, where a promise allows that: they do not show what is kept."""
    count = outcome.kind_counts.get(VerdictKind.UNOPENABLE, 0)
    if promise.may_refuse and count > UNCUT_SHARE_MAX * outcome.database_count:
        yield f"{count} of {outcome.database_count} states were refused, which shows nothing of what is kept"


def _unseen(outcome: Outcome, exposure_min: int) -> Iterator[str]:
    """Yield what too few cuts have shown."""
    scenario, plan = outcome.scenario, outcome.measured.plan
    is_cut_everywhere = not (plan.epochs_sampled or plan.epochs_unproven)
    is_exhaustive = 0 < plan.epoch_count == plan.epochs_exhaustive and is_cut_everywhere
    transaction_count = outcome.measured.recording.transaction_count
    wanted = exposure_wanted(exposure_min, scenario.fault, transaction_count, is_mutant=is_mutant(scenario))
    # A search that doubled its states without a new content has seen what there is to see, unless it saw hardly
    # anything. A setting that syncs only at checkpoints has few contents.
    has_seen_all = plan.is_saturated and outcome.exposure_count * SEEN_PART >= transaction_count
    is_enough = is_exhaustive or has_seen_all or is_cross_check(scenario)
    if not (is_exhaustive or plan.is_saturated or SPECS[scenario.fault].cuts_recovery):
        yield from _missed_steps(outcome)
    if outcome.exposure_count < wanted and not is_enough:
        text = f"too little exposure: {outcome.exposure_count} distinct file contents, {wanted} asked for"
        yield "; ".join(filter(None, (text, plan.ending, _AGAINST_LITTLE[plan.is_saturated])))


def _filesystem_damage(outcome: Outcome) -> tuple[str, ...]:
    count = outcome.kind_counts.get(VerdictKind.FILESYSTEM_DAMAGE, 0)
    repaired_count = sum(verdict.repaired for verdict in outcome.measured.verdicts)
    damaged = (f"{count} states of file-system damage, not blamed on the database",) if count else ()
    return (*damaged, f"{repaired_count} states in which the file system was repaired") if repaired_count else damaged


def _scenario_order(scenario: Scenario) -> tuple[object, ...]:
    return (
        scenario.engine,
        scenario.filesystem,
        settings_rank(scenario),
        not is_default(scenario.workload_name),
        scenario.workload_name,
        scenario.tuned,
        scenario.shim != Shim.NONE,
        scenario.shim,
        scenario.device.name,
        # The first row of a setting shows its speed, and a live cut has none.
        is_live_cut(scenario.fault),
        scenario.fault,
        scenario.id,
    )
