"""The stored form of `rig speed --json FILE`: one JSON object with every single measurement.

    format      "powercut-rig speed 4"; a reader must refuse what it does not know; 1 had no `virtual`, 2 no `reads`,
                3 no `busy_ns`, `space`, `live_bytes` and `allocated_bytes`
    made        when, as UTC in ISO 8601
    experiment  "settings", or the name of a document
    document    the document's file; empty for settings
    metrics     list of {name, unit, more_is_better}; the first is the main one
    figures     what the document says: list of {arm, base, metric, ratio, line, value, base_value, what}
    absent      what was not measured -> why
    versions    of the rig, Python and the kernel; what the engines read back is in the arms
    place       {filesystem, options, disks: list of {name, model, write_cache, rotational}, virtual}; no paths.
                `virtual` is empty for a real disk. For one in a virtual machine, whose clock counts instructions and
                the delays of a modelled disk, it has {filesystem, device, delays, clock, instructions_per_s, qemu} as
                texts; `filesystem` is then the word of the rig, such as btrfs.zstd
    probe       {sync_s, sync_s_min, flush_per_sync}: a sync of one block, before the first trial
    warnings    what a reader needs to know about the disk, as sentences
    seed        for the order of the arms and for the written data
    repeats     counted rounds; round 0 was the warm-up, in which the disk space is watched
    arms        arm -> {engine, settings, load, base, read_back}; the base is the arm to compare with
    trials      list, in the order in which they ran, of
        round, arm      a round holds every arm once, in random order
        metrics         metric -> figure of this trial
        counts          other counts of the workload, such as errors
        latencies_ns    of every transaction, in order of their ends for each writer
        reads           of readers next to the writers: {count, sample_ns, longest_ns}, the latencies of a part of the
                        reads, evenly spread, and the longest of all; null without readers
        wall_ns         the measured time
        transactions, rows, user_bytes      what was written; the bytes count keys and values
        live_bytes      of keys and values, written before or in the measured time, that were there at its end; null for
                        a document's own workload
        allocated_bytes     disk space of all files at that time; null if they cannot be seen
        disk            {write_count, written_bytes, flush_count, flush_ms} of the disks during the trial, of all
                        programs; null if they cannot be read; the last two are null if the kernel counts no flushes
        process_bytes   bytes that the trial and what it started caused to be written to a disk; null if unknown
        cpu_s           processor time of the trial and what it started, user and system; null if unknown
        busy_ns         how long the processors of the machine were not idle, with any program, but without the
                        polling of dm-delay, see `rig.speed.trials.busy`; null if unknown
        space           of a trial that was watched, the disk space that files took, at least: {peak_bytes, files,
                        groups}. peak_bytes: all files at one instant. files: path -> bytes of each file. groups: the
                        same for all files at one instant whose paths differ only in numbers; null if not watched
        files           name -> bytes when the measured time ended, before the database was closed

Figures of different files are comparable only if their places and probes are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rig.contract.errors import StoreError
from rig.host.files import atomic_write
from rig.speed.trials.disks import Counters, Disk
from rig.speed.trials.probe import SyncProbe
from rig.speed.trials.replication import Figure, Metric

FORMAT = "powercut-rig speed 4"
_FORMATS = {FORMAT, *(f"powercut-rig speed {number}" for number in (1, 2, 3))}
WARM_UP = 0
# Runs of each arm in a virtual machine, to see whether they agree.
RUNS_MIN = 2
# A key of `virtual`: how many instructions the clock counts in a second.
INSTRUCTIONS = "instructions_per_s"
# The file's name in a run directory, whose report shows these figures next to its virtual ones.
BESIDE = "speed.json"
# The load of a document's own workload at the sizes that the document has.
WHOLE = "scale 1"


@dataclass(frozen=True)
class Reads:
    """What the readers of a trial did, all together."""

    count: int
    sample_ns: Sequence[int]
    longest_ns: int


@dataclass(frozen=True)
class Space:
    """The most disk space that files took in a trial, at least."""

    peak_bytes: int
    files: Mapping[str, int]
    groups: Mapping[str, int]


@dataclass(frozen=True)
class Trial:
    """One arm carried out once."""

    round: int
    arm: str
    wall_ns: int
    transactions: int
    rows: int
    user_bytes: int
    metrics: Mapping[str, float]
    counts: Mapping[str, float]
    latencies_ns: Sequence[int]
    disk: Counters | None
    process_bytes: int | None
    cpu_s: float | None
    files: Mapping[str, int]
    reads: Reads | None = None
    busy_ns: int | None = None
    space: Space | None = None
    live_bytes: int | None = None
    allocated_bytes: int | None = None


@dataclass(frozen=True)
class ArmFacts:
    """What an arm is."""

    engine: str
    settings: Mapping[str, str]
    load: str
    base: str
    read_back: Mapping[str, str]


@dataclass(frozen=True)
class Speeds:
    """Everything that one `rig speed` measured."""

    experiment: str
    document: str
    metrics: Sequence[Metric]
    versions: Mapping[str, str]
    filesystem: str
    options: Sequence[str]
    disks: Sequence[Disk]
    probe: SyncProbe
    warnings: Sequence[str]
    seed: int
    repeats: int
    arms: Mapping[str, ArmFacts]
    trials: Sequence[Trial]
    made: str
    figures: Sequence[Figure] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    virtual: Mapping[str, str] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Return by what share the times of an arm's undisturbed trials differ at most; 0 if every digit agrees."""
        times = [[trial.wall_ns for trial in self.undisturbed(arm)] for arm in self.arms]
        return max((max(each) / min(each) - 1 for each in times), default=0.0)

    @property
    def run_count(self) -> int:
        """Return how many undisturbed trials each arm has."""
        return min((len(self.undisturbed(arm)) for arm in self.arms), default=0)

    def undisturbed(self, arm: str) -> list[Trial]:
        """Return the trials of an arm without a watcher; in formats before `space`, this includes the warm-up."""
        return [trial for trial in self.trials if trial.arm == arm and trial.space is None]

    def counted(self, arm: str) -> list[Trial]:
        """Return the trials of an arm by round, without the warm-up."""
        found = [trial for trial in self.trials if trial.arm == arm and trial.round != WARM_UP]
        return sorted(found, key=lambda trial: trial.round)


def save(speeds: Speeds, path: Path) -> None:
    """Store what was measured, durably or not at all."""
    message = {"format": FORMAT, **asdict(speeds)}
    place = {name: message.pop(name) for name in ("filesystem", "options", "disks", "virtual")}
    text = json.dumps({**message, "place": place}, indent=1, allow_nan=False)
    atomic_write(path, text.encode() + b"\n")


def load(path: Path) -> Speeds:
    """Return what was stored; raise StoreError if it is something else."""
    try:
        message = json.loads(path.read_bytes())
        if message.pop("format") not in _FORMATS:
            raise StoreError(f"{path} is not of the format {FORMAT!r}; measure again: rig speed --json {path}")
        return _checked(_speeds(message))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} holds no measurement of speed ({error}); measure again: rig speed --json {path}"
        ) from None


def beside(folder: Path) -> Speeds | None:
    """Return the real figures that a user has put into a run directory, or None.

    Raise StoreError for anything else.
    """
    path = folder / BESIDE
    found = load(path) if path.exists() else None
    if found and found.virtual:
        raise StoreError(
            f"{path} is from a virtual machine, and a run has virtual figures of its own; "
            f"measure a real disk: rig speed --dir DIR --json {path}"
        )
    return found


def _speeds(message: dict[str, Any]) -> Speeds:
    place = message.pop("place")
    return Speeds(
        **{
            **message,
            "metrics": [Metric(**one) for one in message["metrics"]],
            "figures": [Figure(**one) for one in message["figures"]],
            "probe": SyncProbe(**message["probe"]),
            "arms": {name: ArmFacts(**one) for name, one in message["arms"].items()},
            "trials": [_trial(one) for one in message["trials"]],
            "filesystem": place["filesystem"],
            "options": place["options"],
            "disks": [Disk(**one) for one in place["disks"]],
            "virtual": dict(place.get("virtual", {})),
        }
    )


def _checked(speeds: Speeds) -> Speeds:
    """Return the measurement; raise ValueError if it is incomplete, or if its figures are no numbers."""
    if not speeds.metrics:
        raise ValueError("it has no metric")
    for name, facts in speeds.arms.items():
        trials = [trial for trial in speeds.trials if trial.arm == name]
        rounds = sorted(trial.round for trial in trials)
        # Arms are compared round by round, so a missing round would pair the others wrongly.
        if len(rounds) != speeds.repeats + 1 or rounds != list(range(WARM_UP, speeds.repeats + 1)):
            raise ValueError(f"{name} has rounds {rounds}, not {WARM_UP} to {speeds.repeats}, each once")
        if len({frozenset(trial.metrics) for trial in trials}) > 1:
            raise ValueError(f"the rounds of {name} have different metrics")
        if facts.base not in speeds.arms:
            raise ValueError(f"the base of {name} is {facts.base!r}, which is no arm")
    for figure in speeds.figures:
        if not {figure.arm, figure.base} <= set(speeds.arms) or not figure.ratio > 0:
            raise ValueError(f"line {figure.line} of the document is about no arm, or its ratio is not above 0")
    for number in _numbers(speeds):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise ValueError(f"{number!r} stands where a number is wanted")
    return speeds


def _numbers(speeds: Speeds) -> Iterator[Any]:
    """Yield all numbers that the analysis calculates with."""
    yield from (speeds.seed, speeds.probe.sync_s, speeds.probe.sync_s_min)
    for one in speeds.trials:
        yield from (one.wall_ns, one.transactions, one.rows, one.user_bytes)
        yield from (*one.metrics.values(), *one.counts.values(), *one.latencies_ns)
        if one.reads:
            yield from (one.reads.count, one.reads.longest_ns, *one.reads.sample_ns)
        if one.space:
            yield from (one.space.peak_bytes, *one.space.files.values(), *one.space.groups.values())
        yield from (
            number
            for number in (
                one.process_bytes,
                one.cpu_s,
                one.busy_ns,
                one.live_bytes,
                one.allocated_bytes,
                one.disk and one.disk.flush_count,
            )
            if number is not None
        )


def _trial(message: dict[str, Any]) -> Trial:
    disk = Counters(**message["disk"]) if message["disk"] else None
    reads = Reads(**message["reads"]) if message.get("reads") else None
    space = Space(**message["space"]) if message.get("space") else None
    return Trial(**{**message, "disk": disk, "reads": reads, "space": space})
