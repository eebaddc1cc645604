"""A baseline: a small committed file with what is expected of each scenario, and the evidence for it.

The file is JSON, sorted, with three lines for each scenario: its id, what is expected, and the evidence. So a diff
shows which expectation changed and on which run the new one rests. An expectation is a result, and figures with the
bounds within which another run of the same tree may find them (`rig.analysis.history.spans`).

No entry is inconclusive: a run without an answer is no evidence, so it replaces nothing. Sabotaged scenarios have no
entry, because they test the rig; what they must show is among the controls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rig.analysis.history import spans
from rig.analysis.history.spans import FigureSpan
from rig.analysis.judging.metrics import loss_of
from rig.analysis.judging.outcome import Result, Row, Summary
from rig.contract.devices import DEFAULT_DEVICE
from rig.contract.errors import UsageError
from rig.contract.results import Verdict
from rig.contract.scenario import Scenario
from rig.host.files import atomic_write

_FORMAT = 1
_DIGEST_LENGTH = 16


@dataclass(frozen=True)
class Provenance:
    """The run that an entry rests on; digests are shortened."""

    profile: str
    seed: int
    transactions: int
    # Crash states with a verdict on the database.
    states: int
    build: str
    image: str
    kernel: str
    qemu: str
    template: str
    recording: str

    def is_as_long_as(self, other: Provenance) -> bool:
        """Return whether two runs looked equally closely, so that their figures can be compared."""
        return (self.profile, self.transactions) == (other.profile, other.transactions)


@dataclass(frozen=True)
class Entry:
    """What is expected of one scenario."""

    result: str
    # Distinct file contents.
    exposure: FigureSpan
    # Share of states that came back damaged.
    damaged: FigureSpan
    # Acknowledged transactions lost by the worst state, and by the states on average; None if no state shows it.
    lost_max: FigureSpan | None
    lost_mean: FigureSpan | None
    # Transactions per virtual second; None where the workload was not timed.
    per_virtual_s: FigureSpan | None
    evidence: Provenance


@dataclass(frozen=True)
class Baseline:
    """Entries by `key_of` their scenario, and for each group of scenarios the names of the controls that fired."""

    entries: Mapping[str, Entry]
    controls: Mapping[str, tuple[str, ...]]


def key_of(row: Row) -> str:
    """Return the name of a row in a baseline."""
    return name_of(row.outcome.scenario)


def name_of(scenario: Scenario) -> str:
    """Return the name of a scenario in a baseline: its own name, and the device unless it is the default."""
    return with_device(scenario.own_name, scenario.device.name)


def with_device(name: str, device: str) -> str:
    """Return a name with the device, unless that is the default."""
    return name if device == DEFAULT_DEVICE else f"{name} on {device}"


def baseline_of(summary: Summary, profile: str, name: Callable[[Row], str] = key_of) -> Baseline:
    """Return what a run shows, as a baseline whose entries have these names."""
    answered = [row for row in summary.rows if not row.is_sabotaged and row.judgement.result is not Result.INCONCLUSIVE]
    fired: dict[str, list[str]] = {}
    for control in summary.controls:
        if control.fired:
            fired.setdefault(str(control.group), []).append(control.name)
    return Baseline(
        {name(row): entry_of(row, profile) for row in answered},
        {group: tuple(sorted(names)) for group, names in fired.items()},
    )


def entry_of(row: Row, profile: str) -> Entry:
    """Return what one scenario shows; some state must have a verdict on the database."""
    outcome, measured = row.outcome, row.outcome.measured
    judged = [verdict for verdict in measured.verdicts if not verdict.kind.is_infrastructure]
    losses = [verdict for verdict in judged if loss_of(verdict) is not None]
    facts = measured.recording
    is_timed = outcome.transactions_per_s is not None and facts.latencies_virtual_ns
    return Entry(
        result=row.judgement.result.value,
        exposure=spans.count(outcome.exposure_count),
        damaged=spans.mean_loss(measured, judged, _is_damaged),
        lost_max=spans.most_lost(measured, losses, _loss) if losses else None,
        lost_mean=spans.mean_loss(measured, losses, _loss) if losses else None,
        per_virtual_s=spans.per_s(facts.latencies_virtual_ns) if is_timed else None,
        evidence=evidence_of(row, profile),
    )


def evidence_of(row: Row, profile: str) -> Provenance:
    """Return what the figures of a scenario rest on."""
    facts = row.outcome.measured.recording
    return Provenance(
        profile=profile,
        seed=facts.seed,
        transactions=facts.transaction_count,
        states=row.outcome.database_count,
        build=facts.engine_version,
        image=_short(facts.image),
        kernel=facts.kernel,
        qemu=facts.qemu_version,
        template=_short(facts.template),
        recording="+".join(_short(log.digest) for log in facts.logs),
    )


def update(old: Baseline | None, new: Baseline) -> Baseline:
    """Return a baseline in which the entries of a run replace the old entries of the same scenarios."""
    if old is None:
        return new
    return replace(old, entries={**old.entries, **new.entries}, controls={**old.controls, **new.controls})


def read(path: Path) -> Baseline:
    """Return the baseline in a file; raise UsageError if it is none."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["format"] != _FORMAT:
            raise UsageError(f"{path} has format {known['format']}, this version reads {_FORMAT}; {_REMEDY}")
        entries = {name: _entry(**parts) for name, parts in known["scenarios"].items()}
        controls = {group: tuple(names) for group, names in known["controls"].items()}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {_REMEDY}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} is not a baseline: {error!r}; {_REMEDY}") from None
    return Baseline(entries, controls)


_REMEDY = "--update-baseline writes it"


def write(baseline: Baseline, path: Path) -> None:
    """Write a baseline, durably or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text_of(baseline).encode())


def text_of(baseline: Baseline) -> str:
    """Return a baseline as text: sorted, a line for each expectation, one for each evidence, one for each group."""
    scenarios = [
        f'  {json.dumps(name)}: {{\n   "expected": {_line(_expectation(entry))},\n'
        f'   "evidence": {_line(asdict(entry.evidence))}\n  }}'
        for name, entry in sorted(baseline.entries.items())
    ]
    groups = [f"  {json.dumps(group)}: {_line(list(names))}" for group, names in sorted(baseline.controls.items())]
    return f'{{\n "format": {_FORMAT},\n "scenarios": {_object(scenarios)},\n "controls": {_object(groups)}\n}}\n'


def _object(members: Sequence[str]) -> str:
    return "{\n" + ",\n".join(members) + "\n }" if members else "{}"


def _entry(expected: Mapping[str, Any], evidence: Mapping[str, Any]) -> Entry:
    figures: dict[str, Any] = {name: _span(value) for name, value in expected.items() if name != "result"}
    return Entry(result=str(Result(expected["result"])), evidence=Provenance(**evidence), **figures)


def _span(value: Mapping[str, float] | None) -> FigureSpan | None:
    return None if value is None else FigureSpan(value["value"], value.get("from"), value.get("to"))


def _expectation(entry: Entry) -> dict[str, Any]:
    figures = {name: getattr(entry, name) for name in ("exposure", "damaged", "lost_max", "lost_mean", "per_virtual_s")}
    return {"result": entry.result, **{name: _figure(span) for name, span in figures.items()}}


def _figure(span: FigureSpan | None) -> dict[str, float] | None:
    if span is None:
        return None
    parts = {"value": span.value, "from": span.low, "to": span.high}
    return {name: _round_figure(value) for name, value in parts.items() if value is not None}


def _round_figure(value: float) -> float:
    """Return a figure with six significant digits: enough for a per cent, and short enough to review."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def _line(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _is_damaged(verdict: Verdict) -> float:
    return float(verdict.kind.is_damage)


def _loss(verdict: Verdict) -> float:
    return float(loss_of(verdict) or 0)


def _short(digest: str) -> str:
    return digest[:_DIGEST_LENGTH]
