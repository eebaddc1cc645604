"""The metrics of one scenario: its verdicts summed up, before anything is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rig.analysis.judging.latencies import Latencies, latencies
from rig.analysis.judging.statistics import Proportion, proportion
from rig.contract.arms import is_live_cut
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from rig.contract.scenario import name_of
from rig.engines import found

_DETECTED = (
    VerdictKind.CORRUPT, VerdictKind.UNOPENABLE, VerdictKind.FICKLE, VerdictKind.OUT_OF_MEMORY, VerdictKind.STUCK,
    VerdictKind.DIED,
)  # fmt: skip
# An unreadable database has lost everything that was acknowledged.
_UNREADABLE = (VerdictKind.UNOPENABLE, VerdictKind.OUT_OF_MEMORY, VerdictKind.STUCK, VerdictKind.DIED)
_SEVERITY = {kind: rank for rank, kind in enumerate(VerdictKind)}


@dataclass(frozen=True)
class Outcome:
    """The metrics of one scenario.

    Losses are counted over the states that a prefix of the transactions explains, and over unreadable states, which
    have lost everything that was acknowledged.
    """

    scenario: MeasuredScenario
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
    def noticed_count(self) -> int:
        """Return in how many states engine or file system complained."""
        return self.detected_count + self.filesystem_detected_count

    @property
    def settings_name(self) -> str:
        """Return the settings as spelled in ids, with tuning, workload and shim if they are named."""
        scenario = self.scenario
        return name_of(scenario.settings, scenario.workload_name, scenario.shim, scenario.tuned)


def outcome(scenario: MeasuredScenario) -> Outcome:
    """Return the metrics of one scenario; the order of its verdicts does not matter."""
    facts = scenario.recording
    judged = [verdict for verdict in scenario.verdicts if not verdict.kind.is_infrastructure]
    # The loss of a split is certain too: each of its databases is a prefix.
    explained = [one for one in judged if not one.kind.is_damage or one.kind is VerdictKind.SPLIT]
    lost = [one.lost for one in explained] + [one.acked for one in judged if one.kind in _UNREADABLE]
    # A finding in the running machine may name no files. Then it is an exposure only if it is damage.
    exposures = {verdict.exposure for verdict in judged if verdict.files or verdict.kind.is_damage}
    damaged = {verdict.exposure for verdict in judged if verdict.kind.is_damage}
    instants = [verdict for verdict in judged if verdict.instant_weight_ns > 0]
    is_timed = _is_timed(scenario)
    weight_ns = sum(verdict.instant_weight_ns for verdict in instants)
    lost_counts = Counter(lost)
    return Outcome(
        scenario=scenario,
        state_count=len(scenario.verdicts),
        database_count=len(judged),
        content_count=len({verdict.content for verdict in judged}),
        exposure_count=len(exposures),
        kind_counts=dict(
            sorted(Counter(v.kind for v in scenario.verdicts).items(), key=lambda item: _SEVERITY[item[0]])
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
        filesystem_detected_count=sum(one.kind is VerdictKind.FILESYSTEM_DAMAGE for one in scenario.verdicts),
        silent_count=sum(loses(verdict) and verdict.kind not in _DETECTED for verdict in judged),
        transactions_per_s=_ratio(facts.transaction_count * 1_000_000_000, facts.busy_virtual_ns) if is_timed else None,
        flush_per_transaction=_ratio(facts.flush_count, facts.transaction_count),
        fua_per_transaction=None if facts.fua_count is None else _ratio(facts.fua_count, facts.transaction_count),
        write_amplification=_ratio(facts.written_bytes, facts.user_bytes),
        latencies=latencies(facts.latencies_virtual_ns) if is_timed else None,
        settings_mismatches=_settings_mismatches(scenario),
    )


def _is_timed(scenario: MeasuredScenario) -> bool:
    """Return whether the speed of a recording says something about the setting.

    Supervision stops a workload at its calls, a live cut ends it early, and a special program does other things than
    the workload says.
    """
    is_whole = not scenario.shim.startswith(DROP_PREFIX) and not is_live_cut(scenario.fault)
    return is_whole and scenario.fault != "processkill" and scenario.shim in list(Shim)


def loses(verdict: Verdict) -> bool:
    """Return whether an acknowledged transaction is gone, or cannot be relied on because the database is damaged."""
    if verdict.kind.is_infrastructure:
        return False
    return verdict.lost > 0 or (verdict.kind.is_damage and verdict.acked > 0)


def worst_first(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts by severity, then by transactions lost, then by state id."""
    return tuple(sorted(verdicts, key=lambda v: (-_SEVERITY[v.kind], -v.lost, v.state)))


def seen(outcome: Outcome) -> str:
    """Return what came back, for a scenario that is not held to a promise."""
    losing = [one for one in outcome.scenario.verdicts if loses(one)]
    damaged_count, total = outcome.damage.count, outcome.damage.total
    lost_count = sum(not one.kind.is_damage for one in losing)
    wrong_count = len({one.exposure for one in losing if one.kind.is_damage and one.kind not in _DETECTED})
    return (
        f"{damaged_count} of {total} file contents came back damaged, {wrong_count} of them silently wrong, and "
        f"{lost_count} of {outcome.database_count} states lost acknowledged transactions"
    )


def _settings_mismatches(scenario: MeasuredScenario) -> tuple[str, ...]:
    read_back = scenario.recording.settings
    return tuple(
        f"{name}={asked} was asked for, {read_back.get(name, 'nothing')} was read back"
        for name, asked in scenario.settings.items()
        if read_back.get(name) != asked
    )


def settings_rank(scenario: MeasuredScenario) -> tuple[tuple[int, str], ...]:
    """Return a sort key that lists settings in the order of the engine's own choices; unknown words come last."""
    engine = found(scenario.engine)
    choices = engine.spec.settings if engine else {}
    return tuple(
        (choices[name].index(value) if value in choices.get(name, ()) else len(choices.get(name, ())), value)
        for name, value in scenario.settings.items()
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
