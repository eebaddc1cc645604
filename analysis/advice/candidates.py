"""The settings among which advice chooses: what all stored runs together show about each, fault by fault.

A loss or damage that any run saw, with any workload, counts against its setting without further proof. A zero needs
proof: a run in which the promise was kept with the default workload, enough exposure and every control fired. The speed
is measured with the default workload; if runs differ, the lowest counts. Scenarios under a shim test the rig and are
left out. Two builds of an engine, and two values of a tuning, are two candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rig.analysis.dossiers import Promise
from rig.analysis.judging.metrics import loses, settings_rank, worst_first
from rig.analysis.judging.outcome import Result, Row
from rig.analysis.judging.randomcut import RandomCut, random_cut
from rig.analysis.judging.statistics import Proportion
from rig.analysis.show.findings import is_comparable
from rig.contract.orders import Shim
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec, is_default
from rig.engines import find_engine


@dataclass(frozen=True)
class Piece:
    """One scenario of one run; `run` is the directory as the user names it."""

    run: str
    profile: str
    row: Row


@dataclass(frozen=True)
class Showing:
    """What is known about one candidate under one fault."""

    fault: str
    # The scenario that a zero rests on: the conclusive one with the most file contents; None if not measured.
    piece: Piece | None
    # Why a zero may not rest on that scenario; empty if it may.
    doubts: tuple[str, ...]
    promise: Promise | None
    # Why the candidate broke its promise, with any workload; empty if it kept the promise.
    broken: str
    # The worst of all runs and workloads.
    lost_max: int
    lost_s_max: float
    damage: Proportion
    # States in which the file system itself was damaged.
    harmed_count: int
    # The worst state seen and the run it is in, if anything was lost or damaged.
    worst: tuple[Piece, Verdict] | None


@dataclass(frozen=True)
class Candidate:
    """One setting of one build of an engine on one file system and device."""

    engine: str
    version: str
    filesystem: str
    device: str
    # `name` is spelled as in ids; `variant` is any further tuning, such as `pause=100ms`, or empty.
    name: str
    variant: str
    # The places of its settings among the engine's choices, the least synced first.
    rank: tuple[tuple[int, str], ...]
    # Per virtual second, inside commits; None if no scenario has a speed.
    transactions_per_s: float | None
    showings: tuple[Showing, ...]
    # None unless a scenario with cut instants was measured.
    cut: RandomCut | None

    @property
    def title(self) -> str:
        """Return the settings as spelled in ids, then any tuning."""
        return f"{self.name} {self.variant}".strip()

    @property
    def place(self) -> str:
        """Return engine, version, file system and device in a few words."""
        return f"{self.engine} {self.version.partition(' ')[0]} on {self.filesystem}, device {self.device}"

    @property
    def loss(self) -> tuple[bool, int]:
        """Return what makes one candidate worse than another: damage first, then the most transactions lost."""
        return any(showing.damage.count for showing in self.showings), max(
            (showing.lost_max for showing in self.showings), default=0
        )


def candidates(pieces: Iterable[Piece], faults: Sequence[str]) -> tuple[Candidate, ...]:
    """Return the candidates among the pieces, with a showing for each fault; the order of the pieces never matters."""
    groups: dict[tuple[str, ...], list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: (piece.run, piece.row.outcome.scenario.id)):
        scenario = piece.row.outcome.scenario
        if scenario.fault in faults and scenario.shim == Shim.NONE and is_comparable(piece.row):
            groups.setdefault(_key(piece), []).append(piece)
    return tuple(_candidate(key, groups[key], faults) for key in sorted(groups))


def differing(scenario: Scenario) -> dict[str, str]:
    """Return the tuning of a scenario that differs from the usual tuning of its engine, sorted."""
    engine = find_engine(scenario.engine)
    spec = engine.spec if engine else None
    usual = {**spec.tuning, **spec.tuning_of.get(scenario.workload_name, {})} if spec else {}
    return {name: value for name, value in sorted(scenario.tuning.items()) if usual.get(name) != value}


def variant(scenario: Scenario) -> str:
    """Return what else than file system and device distinguishes a scenario from others with its id; may be empty."""
    words = [f"{name}={value}" for name, value in differing(scenario).items()]
    if scenario.workload.think_ms != WorkloadSpec.think_ms:
        words.append(f"pause={scenario.workload.think_ms}ms")
    return " ".join(words)


def _key(piece: Piece) -> tuple[str, ...]:
    scenario = piece.row.outcome.scenario
    name = "_".join(scenario.settings.values())
    version = piece.row.outcome.measured.recording.engine_version
    return scenario.engine, version, scenario.filesystem, scenario.device.name, name, variant(scenario)


def _candidate(key: tuple[str, ...], pieces: Sequence[Piece], faults: Sequence[str]) -> Candidate:
    plain = [piece for piece in pieces if is_default(piece.row.outcome.scenario.workload_name)]
    speeds = [speed for piece in plain if (speed := piece.row.outcome.transactions_per_s) is not None]
    cuts = [cut for piece in sorted(plain, key=_strength, reverse=True) if (cut := random_cut(piece.row.outcome))]
    engine, version, filesystem, device, name, tuned = key
    return Candidate(
        engine, version, filesystem, device, name, tuned,
        rank=settings_rank(pieces[0].row.outcome.scenario),
        transactions_per_s=min(speeds, default=None),
        showings=tuple(
            _showing(fault, [piece for piece in pieces if piece.row.outcome.scenario.fault == fault])
            for fault in faults
        ),
        cut=cuts[0] if cuts else None,
    )  # fmt: skip


def _showing(fault: str, pieces: Sequence[Piece]) -> Showing:
    plain = [piece for piece in pieces if is_default(piece.row.outcome.scenario.workload_name)]
    best = max(plain, key=_strength, default=None)
    outcomes = [piece.row.outcome for piece in pieces]
    damages = [outcome.damage for outcome in outcomes if outcome.damage.count]
    broken = [piece.row for piece in pieces if piece.row.judgement.result is Result.BROKEN]
    harmed = {
        verdict: piece
        for piece in pieces
        for verdict in piece.row.outcome.measured.verdicts
        if loses(verdict) or verdict.kind.is_damage
    }
    worst = worst_first(harmed)
    unseen = Proportion(0, 0, 1.0)
    return Showing(
        fault=fault,
        piece=best,
        doubts=_doubts(best),
        promise=next((piece.row.promise for piece in pieces), None),
        broken=f"{broken[0].outcome.scenario.id}: {broken[0].judgement.reasons[0]}" if broken else "",
        lost_max=max((outcome.lost_max or 0 for outcome in outcomes), default=0),
        lost_s_max=max((outcome.lost_virtual_ns_max / 1e9 for outcome in outcomes), default=0.0),
        damage=max(damages, key=lambda damage: damage.count, default=best.row.outcome.damage if best else unseen),
        harmed_count=sum(outcome.kind_counts.get(VerdictKind.FILESYSTEM_DAMAGE, 0) for outcome in outcomes),
        worst=(harmed[worst[0]], worst[0]) if worst else None,
    )


def _doubts(best: Piece | None) -> tuple[str, ...]:
    if best is None:
        return ("not measured",)
    if best.row.outcome.transactions_per_s is None:
        return ("its speed was not measured",)
    return best.row.judgement.doubts


def _strength(piece: Piece) -> tuple[object, ...]:
    """Return how good a piece is as evidence; the name of the run decides between equals."""
    is_conclusive = piece.row.judgement.result is not Result.INCONCLUSIVE
    return is_conclusive, piece.row.outcome.exposure_count, piece.row.outcome.state_count, piece.run
