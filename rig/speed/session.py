"""A measurement from its first trial to its last: rounds in random order, each trial in a fresh folder and process.

A round holds every arm once, in an order drawn from the seed, so that other activity on the host affects all arms
alike. Round 0 is the warm-up and is stored, but not counted. Everything that is written lies in one folder below the
user's directory, which is removed at the end, even after an error or an interrupt.
"""

from __future__ import annotations

import json
import platform
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from rig import host
from rig.contract.errors import EngineError, HostError, UsageError
from rig.engines import Engine
from rig.engines.replications import Metric, Replication
from rig.speed import disks
from rig.speed.arms import Arm
from rig.speed.place import Place, place_of
from rig.speed.probe import probe
from rig.speed.speeds import WARM_UP, ArmFacts, Speeds, Trial
from rig.speed.trial import Orders

_PER_SECOND = Metric("transactions_per_s", "tx/s", more_is_better=True)
_TRIAL_LIMIT_S = 1800
# For the processes, the probe, and the file system's own needs.
_SPACE_BYTES = 256 << 20


class Progress(Protocol):
    """Receives the progress of a measurement."""

    def says(self, text: str) -> None:
        """Show a line."""

    def planned(self, cut_count: int) -> None:
        """Expect so many trials."""

    def judged(self, cut_count: int) -> None:
        """Count trials that are over."""


@dataclass(frozen=True)
class Plan:
    """What is measured: for each arm a function that makes its orders, and its facts."""

    experiment: str
    replication: Replication | None
    metrics: Sequence[Metric]
    arms: Mapping[str, tuple[Callable[[str, tuple[str, ...]], Orders], ArmFacts]]
    needed_bytes: int


def of_arms(arms: Sequence[Arm], seed: int) -> Plan:
    """Return the plan of settings under loads."""

    def order(arm: Arm) -> Callable[[str, tuple[str, ...]], Orders]:
        return lambda folder, below: Orders(arm.engine.module, folder, below, seed, arm.all_settings, arm.load)

    # Each arm is compared with the first of the same load.
    base_of = {arm.load: arm.name for arm in reversed(arms)}
    facts = {
        arm.name: (order(arm), ArmFacts(arm.engine.name, arm.all_settings, arm.load.name, base_of[arm.load], {}))
        for arm in arms
    }
    needed = _SPACE_BYTES + max(arm.load.estimated_bytes for arm in arms)
    return Plan("settings", None, (_PER_SECOND,), facts, needed)


def of_replication(engine: Engine, replication: Replication, seed: int, scale: float) -> Plan:
    """Return the plan of a document's own workload."""

    def order(arm: str) -> Callable[[str, tuple[str, ...]], Orders]:
        return lambda folder, below: Orders(
            engine.module, folder, below, seed, {}, document=replication.name, arm=arm, scale=scale
        )

    load = f"scale {scale:g}"
    facts = {
        arm: (order(arm), ArmFacts(engine.name, {}, load, replication.bases.get(arm, replication.arms[0]), {}))
        for arm in replication.arms
    }
    return Plan(replication.name, replication, replication.metrics, facts, _SPACE_BYTES + replication.needed_bytes)


def measure(plan: Plan, folder: Path, repeats: int, seed: int, progress: Progress) -> Speeds:
    """Measure a plan in a folder below the user's directory, and leave nothing there.

    Raise UsageError for a place that has no disk, HostError if it lacks space or permission, EngineError for a trial
    that failed.
    """
    place = place_of(folder)
    host.require_writable(folder, "choose a directory that is yours: rig speed --dir PATH")
    host.require_space(folder, plan.needed_bytes, "measuring speed")
    with _scratch(folder) as scratch:
        hindered = _hindered(plan, scratch)
        arms = [name for name in plan.arms if name not in hindered]
        if len(arms) < 1:
            raise UsageError("nothing can be measured here: " + "; ".join(f"{k}: {v}" for k, v in hindered.items()))
        found = probe(scratch, place.disks)
        for line in (*place.warnings, *found.warnings, *(f"{arm} is left out: {why}" for arm, why in hindered.items())):
            progress.says(f"warning: {line}")
        progress.planned(len(arms) * (repeats + 1))
        trials, read_back = [], dict[str, Mapping[str, str]]()
        for number, name in schedule(arms, repeats, seed):
            told = _carried_out(plan, name, scratch, place)
            read_back[name] = told.pop("read_back")
            trials.append(_trial(told, number, name))
            progress.judged(1)
    replication = plan.replication
    return Speeds(
        experiment=plan.experiment,
        document=replication.file if replication else "",
        metrics=plan.metrics,
        versions=_versions(),
        filesystem=place.filesystem,
        options=place.options,
        disks=[disks.described(disk) for disk in place.disks],
        probe=found,
        warnings=(*place.warnings, *found.warnings),
        seed=seed,
        repeats=repeats,
        arms={name: _with(plan.arms[name][1], read_back[name]) for name in arms},
        trials=trials,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        figures=[one for one in replication.figures if {one.arm, one.base} <= set(arms)] if replication else (),
        absent={**(replication.absent if replication else {}), **hindered},
    )


def schedule(arms: Sequence[str], repeats: int, seed: int) -> Iterator[tuple[int, str]]:
    """Yield the round and the arm of every trial, in the order of the seed."""
    draw = random.Random(f"speed {seed}")
    for number in range(WARM_UP, repeats + 1):
        order = list(arms)
        draw.shuffle(order)
        yield from ((number, name) for name in order)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rig-speed-", dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if made.exists():
            raise HostError(f"{made} could not be removed completely; remove it: rm -r {made}")


def _hindered(plan: Plan, scratch: Path) -> dict[str, str]:
    """Return the arms that cannot be carried out here, each with the reason."""
    replication = plan.replication
    if not replication:
        return {}
    return {arm: why for arm in plan.arms if (why := replication.hindrance(arm, str(scratch)))}


def _carried_out(plan: Plan, name: str, scratch: Path, place: Place) -> dict[str, Any]:
    folder = scratch / "trial"
    folder.mkdir()
    make_orders, facts = plan.arms[name]
    orders = make_orders(str(folder), tuple(map(str, place.disks)))
    try:
        told = host.run([sys.executable, "-m", "rig.speed.trial"], timeout_s=_TRIAL_LIMIT_S, input=orders.message)
    except HostError as error:
        raise EngineError(f"{name} could not be measured: {error}") from None
    finally:
        shutil.rmtree(folder)
    found: dict[str, Any] = json.loads(told)
    if "error" in found:
        raise EngineError(f"{name} could not be measured: {found['error']}")
    for setting, asked in facts.settings.items():
        # An engine ignores what it does not know, so what is not read back was not set either.
        back = found["read_back"].get(setting, "nothing")
        if back != asked:
            raise EngineError(f"{name}: {setting}={asked} was asked for, {back} was read back; nothing is measured")
    return found


def _trial(told: dict[str, Any], number: int, name: str) -> Trial:
    disk = disks.Counters(**told["disk"]) if told["disk"] else None
    return Trial(**{**told, "disk": disk, "round": number, "arm": name})


def _with(facts: ArmFacts, read_back: Mapping[str, str]) -> ArmFacts:
    return ArmFacts(**{**asdict(facts), "read_back": read_back})


def _versions() -> dict[str, str]:
    return {
        "rig": version("powercut-rig"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
