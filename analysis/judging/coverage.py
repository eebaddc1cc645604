"""Which situations the workloads reached or never reached, and how many crash states cut into each.

Two kinds are counted. A situation *comes about* while a workload is recorded, in a transaction or an event; a crash
state cuts into it if its instant lies between the marks around the situation. A situation is *met* when a database is
opened on a crash state. Controls and mutants count too: their workloads take the same paths. A recording counts once,
even if several scenarios are cut from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rig.analysis.judging.outcome import Result, Summary
from rig.contract.faultspecs import SPECS
from rig.contract.results import MeasuredScenario
from rig.contract.scenario import COMPANY_FAULTS, WRITEBACK, Scenario
from rig.engines import Spec, find_engine
from rig.filesystems import is_served
from rig.workloads import situations

NEVER = "never reached"
# A client of a network file system sends its cached writes of a file when it is asked about the file, so the rig does
# not ask.
NOT_SOUGHT = "not looked for"
_NAMES_MAX = 4


@dataclass(frozen=True)
class Reached:
    """How often a situation was reached: in the recordings, and by crash states that were judged."""

    recorded_count: int
    state_count: int
    # Whether anybody looked; if not, both counts are 0.
    is_sought: bool = True

    @property
    def text(self) -> str:
        """Return both counts in a few words."""
        if not self.is_sought:
            return NOT_SOUGHT
        if not self.recorded_count and not self.state_count:
            return NEVER
        return f"{self.recorded_count} recorded, {self.state_count} cut"


@dataclass(frozen=True)
class Coverage:
    """The situations of one engine: for each a column for each workload."""

    engine: str
    workloads: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Reached, ...]], ...]
    # The same for what opening met; a recording has nothing to count.
    met: tuple[tuple[str, tuple[int, ...]], ...]
    # Workload -> the events that were skipped, and how often.
    skipped: tuple[tuple[str, str], ...]


def coverages(summary: Summary) -> list[Coverage]:
    """Return the situations of each engine whose recordings report any."""
    scenarios = sorted((row.outcome.measured for row in summary.rows), key=lambda scenario: scenario.scenario.engine)
    engines = {engine: list(own) for engine, own in groupby(scenarios, key=lambda scenario: scenario.scenario.engine)}
    return [
        _coverage(engine, own)
        for engine, own in engines.items()
        if find_engine(engine) and any(scenario.recording.reached for scenario in own)
    ]


def lines(summary: Summary) -> list[str]:
    """Return a line for each workload, for the text table: how many situations it reached."""
    text_lines = []
    for coverage in coverages(summary):
        for index, workload in enumerate(coverage.workloads):
            count = sum(columns[index].is_sought for _, columns in coverage.lines) + len(coverage.met)
            reached_count = count - len(_missing(coverage, index))
            text_lines.append(f"{coverage.engine}, {workload}: {reached_count} of {count} situations reached")
    return text_lines


def not_reached(summary: Summary) -> str:
    """Return a sentence for the answer of a run: the situations that no workload reached; empty if each was reached."""
    parts = []
    for coverage in coverages(summary):
        missing = [set(_missing(coverage, index)) for index in range(len(coverage.workloads))]
        words = [word for word in _words_of(coverage) if all(word in some for some in missing)]
        more = [f"{len(words) - _NAMES_MAX} more (see the report)"] if len(words) > _NAMES_MAX else []
        if words:
            parts.append(f"{coverage.engine}: {', '.join([*words[:_NAMES_MAX], *more])}")
    return f" Situations not reached: {'; '.join(parts)}." if parts else ""


def not_written_back(summary: Summary) -> str:
    """Return a sentence for the answer of a run: programs that kept a promise while nothing reached the disk early."""
    scenarios = [row.outcome.scenario for row in summary.rows]
    tried = {scenario.measured_name for scenario in scenarios if scenario.tuned == WRITEBACK}
    kept = {
        row.outcome.scenario.measured_name for row in summary.rows
        if row.judgement.result is Result.KEPT and not row.is_sabotaged and _may_be_early(row.outcome.scenario)
    } - tried  # fmt: skip
    if not kept:
        return ""
    return (
        " Not tried: pages that reach the disk before they are synced. "
        f"`--neighbour {WRITEBACK}` measures {' and '.join(sorted(kept))} with such pages."
    )


def _may_be_early(scenario: Scenario) -> bool:
    """Return whether a scenario of a user's program could be measured with pages that are early."""
    is_possible = scenario.fault in COMPANY_FAULTS[WRITEBACK] and not is_served(scenario.filesystem)
    return bool(scenario.tuning.get("program")) and is_possible


def _words_of(coverage: Coverage) -> list[str]:
    return [word for word, _ in (*coverage.lines, *coverage.met)]


def _missing(coverage: Coverage, index: int) -> list[str]:
    """Return the situations that a workload never reached."""
    missing = [word for word, columns in coverage.lines if columns[index].text == NEVER]
    return missing + [word for word, counts in coverage.met if not counts[index]]


def _coverage(engine: str, scenarios: Sequence[MeasuredScenario]) -> Coverage:
    known = find_engine(engine)
    assert known
    workloads = tuple(sorted({scenario.scenario.workload_name for scenario in scenarios}))
    by_workload = [
        [scenario for scenario in scenarios if scenario.scenario.workload_name == name] for name in workloads
    ]
    spec, nothing = known.spec, Reached(0, 0)
    reached = [_unsought(own, spec) | _reach(own) for own in by_workload]
    met = [
        Counter(word for scenario in own for verdict in scenario.verdicts for word in _words(verdict.met))
        for own in by_workload
    ]
    crowd = (word for word in situations.OF_WRITERS if any(word in own for own in reached))
    named = (*situations.OF_TRANSACTIONS, *crowd, *spec.situations, *situations.of_events(spec.events))
    return Coverage(
        engine,
        workloads,
        tuple((word, tuple(own.get(word, nothing) for own in reached)) for word in named),
        tuple((word, tuple(own[word] for own in met)) for word in spec.met),
        tuple((name, _skips(own)) for name, own in zip(workloads, by_workload, strict=True) if _skips(own)),
    )


def _unsought(scenarios: Iterable[MeasuredScenario], spec: Spec) -> dict[str, Reached]:
    if not all(is_served(scenario.scenario.filesystem) for scenario in scenarios):
        return {}
    return {word: Reached(0, 0, is_sought=False) for word in spec.situations}


def _reach(scenarios: Sequence[MeasuredScenario]) -> dict[str, Reached]:
    recorded, states = Counter[str](), Counter[str]()
    keys: set[str] = set()
    for scenario in scenarios:
        is_new = scenario.recording.key not in keys
        keys.add(scenario.recording.key)
        # Cuts of a later life are in another recording.
        spec = SPECS.get(scenario.scenario.fault)
        is_later = spec is not None and spec.later_count > 0
        entries = [] if is_later else [verdict.entry for verdict in scenario.verdicts]
        for word, first, last in scenario.recording.reached:
            recorded[word] += is_new
            states[word] += sum(first < entry <= last for entry in entries)
    return {word: Reached(recorded[word], states[word]) for word in recorded | states}


def _skips(scenarios: Iterable[MeasuredScenario]) -> str:
    counts = Counter[str]()
    for recording in {scenario.recording.key: scenario.recording for scenario in scenarios}.values():
        counts.update(recording.skipped)
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))


def _words(met: str) -> list[str]:
    return met.split(", ") if met else []
