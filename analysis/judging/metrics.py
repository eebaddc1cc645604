"""The metrics of one scenario: its verdicts summed up, before anything is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rig.analysis.judging.latencies import Latencies, latencies
from rig.analysis.judging.statistics import Proportion, proportion
from rig.contract.faultspecs import SPECS, is_live_cut
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.engines import find_engine

_DETECTED = (
    VerdictKind.CORRUPT, VerdictKind.UNOPENABLE, VerdictKind.FICKLE, VerdictKind.OUT_OF_MEMORY, VerdictKind.STUCK,
    VerdictKind.DIED,
)  # fmt: skip
_SEVERITY = {kind: rank for rank, kind in enumerate(VerdictKind)}


@dataclass(frozen=True)
class Outcome:
    """The metrics of one scenario.

    Losses are counted over the states that a prefix of the transactions explains, and over unreadable states, which
    have lost everything that was acknowledged.
    """

    measured: MeasuredScenario
    state_count: int
    # States with a verdict on the database.
    database_count: int
    # Distinct disk contents among them, and distinct file contents, which the database saw and on which a zero rests.
    content_count: int
    exposure_count: int
    kind_counts: Mapping[VerdictKind, int]
    # None if no state is explained by a prefix.
    lost_max: int | None
    lost_mean: float | None
    # Number of states by number of transactions lost.
    lost_counts: Mapping[int, int]
    lost_virtual_ns_max: int
    # States that lost an acknowledged transaction or came back damaged after one.
    losing_count: int
    # The share of virtual time in which a cut that drops everything unflushed loses something; None without instants.
    instant_count: int
    instant_share_losing: float | None
    # Distinct file contents that are damaged.
    damage: Proportion
    # States that differ from what was acknowledged: the engine complained, the file system did, or neither.
    detected_count: int
    filesystem_detected_count: int
    silent_count: int
    transactions_per_s: float | None
    flush_per_transaction: float | None
    fua_per_transaction: float | None
    write_amplification: float | None
    # In virtual time; None where the speed is None.
    latencies: Latencies | None
    # Settings for which the value asked for and the value read back differ.
    settings_mismatches: tuple[str, ...]

    @property
    def scenario(self) -> Scenario:
        """Return the scenario that was measured."""
        return self.measured.scenario

    @property
    def noticed_count(self) -> int:
        """Return in how many states engine or file system complained."""
        return self.detected_count + self.filesystem_detected_count

    @property
    def settings_name(self) -> str:
        """Return the settings as spelled in ids, with tuning, workload and shim if they are named."""
        return self.scenario.settings_name


def outcome(measured: MeasuredScenario) -> Outcome:
    """Return the metrics of one scenario; the order of its verdicts does not matter."""
    facts = measured.recording
    judged = [verdict for verdict in measured.verdicts if not verdict.kind.is_infrastructure]
    explained = [verdict for verdict in judged if _is_explained(verdict)]
    lost = [count for count in map(loss_of, judged) if count is not None]
    # A finding in the running machine may name no files. Then it is an exposure only if it is damage.
    exposures = {verdict.exposure for verdict in judged if verdict.files or verdict.kind.is_damage}
    damaged = {verdict.exposure for verdict in judged if verdict.kind.is_damage}
    instants = [verdict for verdict in judged if verdict.instant_weight_ns > 0]
    is_timed = _is_timed(measured.scenario)
    weight_ns = sum(verdict.instant_weight_ns for verdict in instants)
    lost_counts = Counter(lost)
    return Outcome(
        measured=measured,
        state_count=len(measured.verdicts),
        database_count=len(judged),
        content_count=len({verdict.content for verdict in judged}),
        exposure_count=len(exposures),
        kind_counts=dict(
            sorted(Counter(v.kind for v in measured.verdicts).items(), key=lambda item: _SEVERITY[item[0]])
        ),
        lost_max=max(lost_counts, default=None),
        lost_mean=_ratio(sum(lost), len(lost)),
        lost_counts=dict(sorted(lost_counts.items())),
        lost_virtual_ns_max=max((verdict.lost_virtual_ns for verdict in explained), default=0),
        losing_count=sum(map(loses, judged)),
        instant_count=len(instants),
        instant_share_losing=_ratio(sum(v.instant_weight_ns for v in instants if loses(v)), weight_ns),
        damage=proportion(len(damaged), len(exposures)),
        detected_count=sum(verdict.kind in _DETECTED for verdict in judged),
        filesystem_detected_count=sum(verdict.kind is VerdictKind.FILESYSTEM_DAMAGE for verdict in measured.verdicts),
        silent_count=sum(loses(verdict) and verdict.kind not in _DETECTED for verdict in judged),
        transactions_per_s=_ratio(facts.transaction_count * 1_000_000_000, facts.busy_virtual_ns) if is_timed else None,
        flush_per_transaction=_ratio(facts.flush_count, facts.transaction_count),
        fua_per_transaction=None if facts.fua_count is None else _ratio(facts.fua_count, facts.transaction_count),
        write_amplification=_ratio(facts.written_bytes, facts.user_bytes),
        latencies=latencies(facts.latencies_virtual_ns) if is_timed else None,
        settings_mismatches=_settings_mismatches(measured),
    )


def _is_timed(scenario: Scenario) -> bool:
    """Return whether the speed of a recording says something about the setting.

    Supervision stops a workload at its calls, a live cut ends it early, and a special program does other things than
    the workload says.
    """
    is_whole = not scenario.shim.startswith(DROP_PREFIX) and not is_live_cut(scenario.fault)
    return is_whole and scenario.fault not in {"processkill", "killcut"} and scenario.shim in list(Shim)


def loses(verdict: Verdict) -> bool:
    """Return whether an acknowledged transaction is gone, or cannot be relied on because the database is damaged."""
    if verdict.kind.is_infrastructure:
        return False
    return verdict.lost > 0 or (verdict.kind.is_damage and verdict.acked > 0)


def loss_of(verdict: Verdict) -> int | None:
    """Return how many acknowledged transactions a state lost; None if it is damaged in a way that leaves that open."""
    if verdict.kind.is_unreadable:
        return verdict.acked
    return verdict.lost if _is_explained(verdict) else None


def _is_explained(verdict: Verdict) -> bool:
    """Return whether a prefix of the transactions explains the state; each database of a split is a prefix."""
    is_damage = verdict.kind.is_damage and verdict.kind is not VerdictKind.SPLIT
    return not is_damage and not verdict.kind.is_infrastructure


def worst_first(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts by severity, then by transactions lost, then by state id."""
    return tuple(sorted(verdicts, key=lambda v: (-_SEVERITY[v.kind], -loss_at_most(v), v.state)))


def loss_at_most(verdict: Verdict) -> int:
    """Return how many acknowledged transactions a state lost; all, if it is damaged in a way that leaves that open."""
    loss = loss_of(verdict)
    return verdict.acked if loss is None else loss


@dataclass(frozen=True)
class StepCuts:
    """How often the steps of a name were carried out, and how many cuts hit them that say something of the program."""

    name: str
    step_count: int
    cut_count: int

    @property
    def text(self) -> str:
        """Return both counts in a few words."""
        times = "once" if self.step_count == 1 else f"{self.step_count} times"
        return f"{self.name}, carried out {times} and hit by {self.cut_count} cuts"


def step_cuts(measured: MeasuredScenario) -> tuple[StepCuts, ...]:
    """Return the counts of each name that a user's program gave to steps, sorted by name.

    Empty where recoveries are cut: an entry of their logs says nothing about steps of the recording.
    """
    steps = () if SPECS[measured.scenario.fault].cuts_recovery else measured.recording.steps
    entries = [verdict.entry for verdict in measured.verdicts if not verdict.kind.is_infrastructure]
    spans = {name: [(first, last) for own, first, last in steps if own == name] for name, _, _ in steps}
    return tuple(
        StepCuts(
            name,
            len(own),
            sum(any(first < entry <= last for first, last in own) for entry in entries),
        )
        for name, own in sorted(spans.items())
    )


def observation(outcome: Outcome) -> str:
    """Return what came back, for a scenario that is not held to a promise."""
    losing = [verdict for verdict in outcome.measured.verdicts if loses(verdict)]
    damaged_count, total = outcome.damage.count, outcome.damage.total
    lost_count = sum(not verdict.kind.is_damage for verdict in losing)
    wrong_count = len(
        {verdict.exposure for verdict in losing if verdict.kind.is_damage and verdict.kind not in _DETECTED}
    )
    return (
        f"{damaged_count} of {total} file contents came back damaged, {wrong_count} of them silently wrong, and "
        f"{lost_count} of {outcome.database_count} states lost acknowledged transactions"
    )


def _settings_mismatches(measured: MeasuredScenario) -> tuple[str, ...]:
    read_back = measured.recording.settings
    return tuple(
        f"{name}={asked} was asked for, {read_back.get(name, 'nothing')} was read back"
        for name, asked in measured.scenario.settings.items()
        if read_back.get(name) != asked
    )


def settings_rank(scenario: Scenario) -> tuple[tuple[int, str], ...]:
    """Return a sort key that lists settings in the order of the engine's own choices; unknown words come last."""
    engine = find_engine(scenario.engine)
    choices = engine.spec.settings if engine else {}
    return tuple(
        (choices[name].index(value) if value in choices.get(name, ()) else len(choices.get(name, ())), value)
        for name, value in scenario.settings.items()
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
