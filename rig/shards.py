"""Shards: a plan split among machines that do not know each other, and their runs put together again.

A plan is split by what each recording and its states cost, so that all shards take about as long. The split depends on
the plan alone: each machine computes all of it and measures its own part. Scenarios that share a recording stay
together. A control may be in another shard than the scenarios that need it, so a shard alone is not judged; the merged
run is. What no shard has measured stays in the merged run as a failure, with the reason, so it can never be green.
"""

from __future__ import annotations

import heapq
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rig.contract.errors import StoreError, UsageError
from rig.contract.faultspecs import SPECS
from rig.contract.scenario import Scenario
from rig.engines import Sharing, engine_named
from rig.planning.matrix import Profile
from rig.store import OF_SHARD, SHARD, Run

_SHARDS_MAX = 1000
# Seconds on two cores without KVM (BENCHMARKS.md): a recording, each of its transactions, and a crash state. First of
# an engine in the process of its driver, then of a server.
_RECORD_S, _TRANSACTION_S, _STATE_S = (1.5, 5.0), (0.02, 0.15), (0.007, 0.4)
# A recovery is recorded in a machine of its own.
_RECOVERY_S = 1.0
_TEMPLATES = "templates"
# Keys of the manifest that differ among the shards of one run.
_OF_ONE = frozenset({SHARD, OF_SHARD, _TEMPLATES})


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a plan, counted from 1."""

    number: int
    count: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """Return the shard in a text such as `3/8`; raise UsageError for any other."""
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count <= _SHARDS_MAX:
            raise UsageError(
                f"a shard is I/N, such as 3/8, with I from 1 to N and N at most {_SHARDS_MAX}; not {text!r}"
            )
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def split(scenarios: Sequence[Scenario], profile: Profile, count: int) -> list[list[Scenario]]:
    """Return the scenarios of each of `count` shards, sorted by id; a small plan leaves some empty."""
    ordered = sorted(scenarios, key=lambda scenario: (scenario.recording_key, scenario.id))
    groups = [list(group) for _, group in groupby(ordered, key=lambda scenario: scenario.recording_key)]
    # The most expensive first, each to the shard that has least so far.
    costed = sorted(((-cost_s(group, profile), group[0].id, group) for group in groups), key=lambda cost: cost[:2])
    shards: list[list[Scenario]] = [[] for _ in range(count)]
    loads = [(0.0, number) for number in range(count)]
    for negative_cost_s, _, group in costed:
        load_s, number = heapq.heappop(loads)
        shards[number] += group
        heapq.heappush(loads, (load_s - negative_cost_s, number))
    return [sorted(shard, key=lambda scenario: scenario.id) for shard in shards]


def cost_s(group: Sequence[Scenario], profile: Profile) -> float:
    """Return about how long one recording and the states of all scenarios that are cut from it take, in seconds."""
    first = group[0]
    rank = int(engine_named(first.engine).spec.sharing is Sharing.SERVER)
    transaction_count = profile.transactions_of(first)
    record_s = _RECORD_S[rank] + transaction_count * _TRANSACTION_S[rank]
    total_s = record_s * (2 if profile.reproduces(first) else 1)
    for scenario in group:
        spec = SPECS[scenario.fault]
        state_count = (
            profile.states_max_of(scenario) + profile.instants_of(scenario) if spec.model else transaction_count
        )
        total_s += state_count * (_STATE_S[rank] + (_RECOVERY_S if spec.cuts_recovery else 0))
    return total_s


def definition_of(definition: dict[str, Any], shard: Shard, own: Sequence[Scenario]) -> dict[str, Any]:
    """Return the manifest of one shard of a run, which measures its own scenarios."""
    return {**definition, SHARD: str(shard), OF_SHARD: [scenario.id for scenario in own]}


def merge(runs: Sequence[Run], folder: Path) -> Run:
    """Put the shards of one run together in a folder and return that run; raise UsageError if they are of several.

    A shard that comes later may be merged into the same folder. Recordings are linked where the file system allows it.
    """
    shards = _shards(runs)
    count = next(iter(shards)).count
    templates: dict[str, Any] = {}
    for run in runs:
        templates |= run.definition.get(_TEMPLATES, {})
    definition = {**_common(runs[0]), _TEMPLATES: templates}
    definition.pop("format")
    merged = Run.create(folder, definition)
    for run in shards.values():
        _take(run, "recordings", folder, _link)
        # Verdicts are appended to, so a link would change the shard.
        _take(run, "scenarios", folder, shutil.copy2)
    missing = [str(Shard(number, count)) for number in range(1, count + 1) if Shard(number, count) not in shards]
    why = f"shard {', '.join(missing)} is missing" if missing else "its shard was stopped before it was measured"
    for scenario_id in definition.get("scenarios", ()):
        place = folder / "scenarios" / scenario_id
        if not (place / "plan.json").exists() and not (place / "failure").exists():
            merged.note_failure(scenario_id, why)
    return merged


def _shards(runs: Sequence[Run]) -> dict[Shard, Run]:
    """Return the runs by shard; raise UsageError if they are not the shards of one run."""
    shards: dict[Shard, Run] = {}
    for run in runs:
        if SHARD not in run.definition:
            raise UsageError(
                f"{run.folder} is a whole run, not a shard; `rig report` makes one report of several whole runs"
            )
        shard = Shard.of(str(run.definition[SHARD]))
        if shard in shards:
            raise UsageError(f"{shards[shard].folder} and {run.folder} are both shard {shard}")
        shards[shard] = run
    first, *others = runs
    for run in others:
        common, own = _common(first), _common(run)
        differing = sorted(key for key in {*common, *own} if common.get(key) != own.get(key))
        if differing:
            raise UsageError(f"{first.folder} and {run.folder} are shards of two runs: {', '.join(differing)} differ")
    if len({shard.count for shard in shards}) > 1:
        raise UsageError(f"these are shards of different splits: {', '.join(map(str, shards))}")
    return shards


def _common(run: Run) -> dict[str, Any]:
    """Return what all shards of a run share."""
    return {key: value for key, value in run.definition.items() if key not in _OF_ONE}


def _take(run: Run, part: str, folder: Path, copy: Callable[[str, str], object]) -> None:
    """Copy each folder below a part of a run, in place of what an earlier merge left there."""
    for source in sorted((run.folder / part).glob("*/")):
        try:
            shutil.rmtree(folder / part / source.name, ignore_errors=True)
            shutil.copytree(source, folder / part / source.name, copy_function=copy)
        except OSError as error:
            raise StoreError(f"{source} could not be copied to {folder / part}: {error}") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
