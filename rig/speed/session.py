"""A measurement from its first trial to its last: rounds in random order, each trial in a fresh folder and process.

A round holds every arm once, in an order drawn from the seed, so that other activity on the host affects all arms
alike. Round 0 is the warm-up and is stored, but not counted: the disk space is watched meanwhile, which slows it down.
Virtual figures repeat to the digit; if they do not, a run is made again.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Protocol

from rig.contract.errors import EngineError, UsageError
from rig.contract.messages import decode
from rig.engines import engine_named
from rig.host.progress import Progress
from rig.speed.arms import Arm
from rig.speed.speeds import WARM_UP, ArmFacts, Speeds, Trial
from rig.speed.trials.disks import Disk
from rig.speed.trials.probe import SyncProbe
from rig.speed.trials.replication import NEEDED_BYTES_MIN, Figure, Metric, Replication
from rig.speed.trials.trial import TrialOrders

_PER_SECOND = Metric("transactions_per_s", "tx/s", more_is_better=True)
_READS_PER_SECOND = Metric("reads_per_s", "reads/s", more_is_better=True)
# As for a recording: a race in QEMU makes a rare run differ, see docs/explanation/how-it-works.md.
_FURTHER_RUNS_MAX = 8


@dataclass(frozen=True)
class SpeedPlan:
    """What is measured: for each arm its orders and its facts."""

    experiment: str
    metrics: Sequence[Metric]
    arms: Mapping[str, tuple[TrialOrders, ArmFacts]]
    # Roughly how much one trial keeps on the disk.
    needed_bytes: int
    # For a document: its file, its figures, and its rows without an arm -> why.
    document: str = ""
    figures: Sequence[Figure] = ()
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """The facts about a bench that are stored with the figures; see `rig.speed.speeds`."""

    filesystem: str
    options: Sequence[str]
    disks: Sequence[Disk]
    versions: Mapping[str, str]
    probe: SyncProbe
    warnings: tuple[str, ...] = ()
    virtual: Mapping[str, str] = field(default_factory=dict)


class Bench(Protocol):
    """Where trials are carried out: a directory on the user's disk, or a virtual machine."""

    def survey(self) -> Survey:
        """Measure a sync, and return the facts about the bench."""

    def obstacles(self, orders: Mapping[str, TrialOrders]) -> dict[str, str]:
        """Return why trials cannot be carried out here, by arm; arms whose trials can are left out."""

    def carry_out(self, orders: TrialOrders) -> dict[str, Any]:
        """Carry out a trial in an empty directory; return its facts, or `error` with the reason."""


def of_arms(arms: Sequence[Arm], seed: int) -> SpeedPlan:
    """Return the plan of settings under loads."""
    # Each arm is compared with the first of the same load.
    base_of = {arm.load: arm.name for arm in reversed(arms)}
    facts = {
        arm.name: (
            TrialOrders(arm.engine.module, seed, arm.all_settings, arm.load),
            ArmFacts(arm.engine.name, arm.all_settings, arm.load.name, base_of[arm.load], {}),
        )
        for arm in arms
    }
    metrics = (_PER_SECOND, _READS_PER_SECOND) if any(arm.load.readers for arm in arms) else (_PER_SECOND,)
    return SpeedPlan("settings", metrics, facts, max(arm.load.estimated_bytes for arm in arms))


def of_document(parts: Sequence[Replication], seed: int, scale: float) -> SpeedPlan:
    """Return the plan of a document's workloads, with one engine or with several, with the arms of all workloads.

    Raise UsageError if two of them contradict each other.
    """
    _require_agreement(parts)
    load = f"scale {scale:g}"
    return SpeedPlan(
        experiment=parts[0].name,
        metrics=list(dict.fromkeys(metric for part in parts for metric in part.metrics)),
        arms={
            arm: (
                TrialOrders(
                    engine_named(part.engine).module, seed, {}, workload=part.carry_out.__module__, arm=arm, scale=scale
                ),
                ArmFacts(part.engine, {}, load, part.bases.get(arm, part.arms[0]), {}),
            )
            for part in parts
            for arm in part.arms
        },
        needed_bytes=max(NEEDED_BYTES_MIN, *(round(part.needed_bytes * scale) for part in parts)),
        document=parts[0].file,
        figures=[figure for part in parts for figure in part.figures],
        absent={row: why for part in parts for row, why in part.absent.items()},
    )


def narrow(plan: SpeedPlan, patterns: Sequence[str]) -> SpeedPlan:
    """Return a plan with only the arms that match the patterns, and the arms that these are compared with.

    Raise UsageError for a pattern that matches no arm.
    """
    for pattern in patterns:
        if not any(fnmatchcase(arm, pattern) for arm in plan.arms):
            raise UsageError(f"{plan.experiment} has no arm {pattern!r}; it has: {', '.join(plan.arms)}")
    wanted = {arm for arm in plan.arms if any(fnmatchcase(arm, pattern) for pattern in patterns)}
    while bases := {plan.arms[arm][1].base for arm in wanted} - wanted:
        wanted |= bases
    return replace(plan, arms={arm: what for arm, what in plan.arms.items() if arm in wanted})


def _require_agreement(workloads: Sequence[Replication]) -> None:
    """Raise UsageError if workloads of a document name an arm twice, or a metric or the document's file in two ways."""
    meanings: dict[str, tuple[object, str]] = {}
    for workload in workloads:
        parts: list[tuple[str, object]] = [(f"its arm {arm}", workload) for arm in workload.arms]
        parts += [(f"its metric {metric.name}", metric) for metric in workload.metrics]
        for what, meant in [*parts, ("its file", workload.file)]:
            first, whose = meanings.setdefault(what, (meant, workload.engine))
            if first != meant:
                raise UsageError(
                    f"the document {workload.name} cannot be measured: {what} is one thing in {whose}, and another "
                    f"in {workload.engine}"
                )


def measure(plan: SpeedPlan, bench: Bench, repeats: int, seed: int, progress: Progress) -> Speeds:
    """Measure a plan on a bench.

    Raise UsageError if no arm can be carried out there, EngineError for a trial that failed.
    """
    hindered = bench.obstacles({arm: orders for arm, (orders, _) in plan.arms.items()})
    arms = [name for name in plan.arms if name not in hindered]
    if not arms:
        raise UsageError("nothing can be measured here: " + "; ".join(dict.fromkeys(hindered.values())))
    survey = bench.survey()
    for line in (*survey.warnings, *_omissions(hindered)):
        progress.says(f"warning: {line}")
    progress.expect(len(arms) * (repeats + 1))
    trials, read_back = [], dict[str, Mapping[str, str]]()
    for number, name in schedule(arms, repeats, seed):
        facts = _carry_out(plan, name, bench, is_watched=number == WARM_UP)
        read_back[name] = facts.pop("read_back")
        trials.append(decode(Trial, facts | {"round": number, "arm": name}))
        progress.advance(1)
    if survey.virtual:
        agreed = {
            (trial.round, trial.arm): trial for name in arms for trial in _agreeing(plan, name, bench, trials, progress)
        }
        trials = [agreed.get((trial.round, trial.arm), trial) for trial in trials]
    return Speeds(
        experiment=plan.experiment,
        document=plan.document,
        metrics=plan.metrics,
        **vars(survey),
        seed=seed,
        repeats=repeats,
        arms={name: replace(plan.arms[name][1], read_back=read_back[name]) for name in arms},
        trials=trials,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        figures=[figure for figure in plan.figures if {figure.arm, figure.base} <= set(arms)],
        absent={**plan.absent, **hindered},
    )


def schedule(arms: Sequence[str], repeats: int, seed: int) -> Iterator[tuple[int, str]]:
    """Yield the round and the arm of every trial, in the order that the seed gives."""
    draw = random.Random(f"speed {seed}")
    for number in range(WARM_UP, repeats + 1):
        order = list(arms)
        draw.shuffle(order)
        yield from ((number, name) for name in order)


def _omissions(hindered: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each reason for which arms are left out."""
    for why in dict.fromkeys(hindered.values()):
        arms = [arm for arm, reason in hindered.items() if reason == why]
        yield f"{', '.join(arms)} {'is' if len(arms) == 1 else 'are'} left out: {why}"


def _agreeing(plan: SpeedPlan, name: str, bench: Bench, trials: Sequence[Trial], progress: Progress) -> list[Trial]:
    """Return an arm's counted trials if all took the same time; else as many equal ones, from these and further runs.

    After `_FURTHER_RUNS_MAX` further runs the first ones stand: `Speeds.spread` tells by how much they differ.
    """
    first = [trial for trial in trials if trial.arm == name and trial.round != WARM_UP]
    seen = list(first)
    for _ in range(_FURTHER_RUNS_MAX):
        usual = statistics.mode(trial.wall_ns for trial in seen)
        same = [trial for trial in seen if trial.wall_ns == usual]
        if len(same) >= len(first):
            return [replace(trial, round=counterpart.round) for trial, counterpart in zip(same, first, strict=False)]
        progress.says(f"the runs of {name} differ, so it runs again")
        facts = _carry_out(plan, name, bench, is_watched=False) | {"round": len(seen), "arm": name}
        seen.append(decode(Trial, facts, allow_more=True))
    return first


def _carry_out(plan: SpeedPlan, name: str, bench: Bench, *, is_watched: bool) -> dict[str, Any]:
    orders, facts = plan.arms[name]
    answer = bench.carry_out(replace(orders, watched=is_watched))
    if "error" in answer:
        raise EngineError(f"{name} could not be measured: {answer['error']}")
    for setting, asked in facts.settings.items():
        # An engine ignores settings that it does not know, so a setting that is not read back was not set either.
        back = answer["read_back"].get(setting, "nothing")
        if back != asked:
            raise EngineError(f"{name}: {setting}={asked} was asked for, {back} was read back; nothing is measured")
    return answer
