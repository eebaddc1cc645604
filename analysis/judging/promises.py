"""What is promised for a scenario, and whether a verdict breaks it.

The dossier of an engine says what its documentation promises, and assumes a file system that keeps what was synced. On
a file system that does not keep it under the fault in question, nothing is promised: a loss there is shown and not
blamed on anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rig.analysis.dossiers import Keeps, Promise, dossier_of
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.filesystems import unsafe


def promise_of(scenario: Scenario) -> Promise | None:
    """Return what is promised for a scenario on its file system, or None if it is not known."""
    promised = promise_for(scenario.engine, scenario.all_settings, scenario.fault, scenario.shim)
    why = unsafe(scenario.filesystem, scenario.fault)
    if not promised or not why:
        return _withheld_by_fault(promised, scenario)
    withheld = "" if promised.keeps is Keeps.ANYTHING else why
    note = f"{scenario.filesystem}: {why}"
    return replace(promised, keeps=Keeps.ANYTHING, atomic=False, bound="", note=note, withheld=withheld)


def _withheld_by_fault(promised: Promise | None, scenario: Scenario) -> Promise | None:
    """Return the promise, marked as withheld if one is made for power cuts and none for this fault."""
    if not promised or promised.keeps is not Keeps.ANYTHING:
        return promised
    plain = dossier_of(scenario.engine).promise(scenario.all_settings, "powercut")
    if not plain or plain.keeps is Keeps.ANYTHING:
        return promised
    return replace(promised, withheld=f"no promise is made for {scenario.fault}")


def promise_for(engine: str, settings: Mapping[str, str], fault: str, shim: str) -> Promise | None:
    """Return what the documentation promises for these settings under a fault, or None if that is not known.

    A scenario without a promise can only be inconclusive. Under an unknown shim no promise is known.
    """
    dossier = dossier_of(engine)
    is_known = shim in list(Shim) or shim in dossier.CONTROLS.programs or shim.startswith(DROP_PREFIX)
    return dossier.promise(settings, fault) if is_known else None


def violates(promise: Promise, verdict: Verdict) -> bool:
    """Return whether this one verdict breaks the promise; a verdict that is not about the database never does."""
    if verdict.kind.is_infrastructure or promise.keeps is Keeps.ANYTHING:
        return False
    if promise.begins_with_ack and not verdict.acked:
        return False
    if promise.may_refuse and verdict.kind is VerdictKind.UNOPENABLE:
        return False
    is_allowed_split = verdict.kind is VerdictKind.SPLIT and not promise.across
    if promise.keeps is Keeps.ANY_WHOLE:
        return verdict.kind.is_damage and verdict.kind is not VerdictKind.HOLE
    if verdict.kind.is_damage and not is_allowed_split and (promise.atomic or promise.keeps is Keeps.SUFFIX):
        return True
    lost_max = {Keeps.NOTHING_LOST: 0, Keeps.LAST: 1}.get(promise.keeps)
    # A lost suffix of length 0 contradicts itself; it counts as 1, which breaks the strictest promise.
    lost = max(verdict.lost, int(verdict.kind is VerdictKind.LOST_SUFFIX))
    lost -= 0 if promise.covers_shown else verdict.lost_shown
    return lost_max is not None and lost > lost_max
