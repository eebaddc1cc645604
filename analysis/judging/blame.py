"""Whether a loss may be the file system's: what it lost by itself, without a database, in the same run.

A witness is a scenario of an engine that is no database and shows what a file system keeps (`Spec.is_witness`): it
calls fsync, fdatasync or msync as the manual pages say, or opens with O_DSYNC, and looks at its files. If data is lost
after these calls returned, the file system or the disk lost it. A witness is compared with the scenarios on the same
file system and device under the same fault. It proves that data is lost there without a database. It does not prove
that a certain state of a database lost its transactions that way. Witnesses that lose nothing only make the engine
suspect. So a broken promise stays broken, and the report adds what the witnesses show. Why no recording has a witness
of its own: docs/explanation/how-it-works.md.

Even on a file system on which nothing is promised (`rig.filesystems.FileSystem.unsafe`), a witness is held to what the
manual pages promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rig.analysis.dossiers import Keeps
from rig.analysis.judging.metrics import Outcome
from rig.analysis.judging.promises import promise_for, violates
from rig.contract.orders import Shim
from rig.contract.scenario import Scenario
from rig.engines import find_engine

# File system, fault and device: what a witness and a database must have in common.
Ground = tuple[str, str, str]
_NAMES_MAX = 3


@dataclass(frozen=True)
class Witness:
    """What one scenario without a database lost after it had been synced."""

    scenario: str
    lost_count: int
    state_count: int
    exposure_count: int


def witnesses(outcomes: Iterable[Outcome]) -> Mapping[Ground, Sequence[Witness]]:
    """Return the witnesses among scenarios that have an answer, by ground, in the order of the outcomes."""
    called: dict[Ground, list[Witness]] = {}
    for outcome in outcomes:
        scenario = outcome.scenario
        if not is_witness(scenario) or scenario.shim != Shim.NONE or not outcome.database_count:
            continue
        promise = promise_for(scenario.engine, scenario.settings, scenario.fault, scenario.shim)
        if promise is None or promise.keeps is Keeps.ANYTHING:
            continue
        lost_count = sum(violates(promise, verdict) for verdict in outcome.measured.verdicts)
        witness = Witness(scenario.id, lost_count, outcome.database_count, outcome.exposure_count)
        called.setdefault(ground_of(scenario), []).append(witness)
    return called


def ground_of(scenario: Scenario) -> Ground:
    """Return what a scenario and its witnesses have in common."""
    return scenario.filesystem, scenario.fault, scenario.device.name


def is_witness(scenario: Scenario) -> bool:
    """Return whether a scenario has no database, so that it shows what the file system itself keeps."""
    engine = find_engine(scenario.engine)
    return engine is not None and engine.spec.is_witness


def testimony(called: Sequence[Witness]) -> str:
    """Return what the witnesses of a loss say about it; empty without witnesses."""
    if not called:
        return ""
    losing = sorted((witness for witness in called if witness.lost_count), key=lambda witness: -witness.lost_count)
    if not losing:
        states, exposures = (
            sum(witness.state_count for witness in called),
            sum(witness.exposure_count for witness in called),
        )
        return (
            f"its file system lost nothing synced without a database: {_scenarios(len(called))}, {states} states, "
            f"{exposures} file contents"
        )
    shown = ", ".join(
        f"{witness.scenario} in {witness.lost_count} of {witness.state_count} states" for witness in losing[:_NAMES_MAX]
    )
    others = f", and {len(losing) - _NAMES_MAX} more" if len(losing) > _NAMES_MAX else ""
    return f"its file system lost synced data without a database, too, so this may be its loss: {shown}{others}"


def _scenarios(count: int) -> str:
    return f"{count} scenario{'' if count == 1 else 's'}"
