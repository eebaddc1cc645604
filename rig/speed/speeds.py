"""The stored form of `rig speed --json FILE`: one JSON object with every single measurement.

docs/reference/files.md says what each field means. Fields that a later format added have defaults, so that older files
can be read: 1 had no `virtual`, 2 no `reads`, 3 no `busy_ns`, `space`, `live_bytes` and `allocated_bytes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rig.contract.errors import StoreError
from rig.contract.messages import decode
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
        times = [[trial.wall_ns for trial in self.undisturbed_trials(arm)] for arm in self.arms]
        return max((max(each) / min(each) - 1 for each in times), default=0.0)

    @property
    def run_count(self) -> int:
        """Return how many undisturbed trials each arm has."""
        return min((len(self.undisturbed_trials(arm)) for arm in self.arms), default=0)

    def undisturbed_trials(self, arm: str) -> list[Trial]:
        """Return the trials of an arm without a watcher; in formats before `space`, this includes the warm-up."""
        return [trial for trial in self.trials if trial.arm == arm and trial.space is None]

    def counted_trials(self, arm: str) -> list[Trial]:
        """Return the trials of an arm by round, without the warm-up."""
        trials = [trial for trial in self.trials if trial.arm == arm and trial.round != WARM_UP]
        return sorted(trials, key=lambda trial: trial.round)


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
        place = message.pop("place")
        return _check(decode(Speeds, message | place))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} holds no measurement of speed ({error}); measure again: rig speed --json {path}"
        ) from None


def beside(folder: Path) -> Speeds | None:
    """Return the real figures that a user has put into a run directory, or None.

    Raise StoreError for anything else.
    """
    path = folder / BESIDE
    speeds = load(path) if path.exists() else None
    if speeds and speeds.virtual:
        raise StoreError(
            f"{path} is from a virtual machine, and a run has virtual figures of its own; "
            f"measure a real disk: rig speed --dir DIR --json {path}"
        )
    return speeds


def _check(speeds: Speeds) -> Speeds:
    """Return the measurement; raise ValueError if it is incomplete."""
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
    return speeds
