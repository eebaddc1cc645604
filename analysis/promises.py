"""What is promised for a scenario, by the dossier of its engine, and whether a verdict breaks it."""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Keeps, Promise, dossier_of
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.results import Verdict, VerdictKind


def promise_for(engine: str, settings: Mapping[str, str], fault: str, shim: str) -> Promise | None:
    """Return what the documentation promises for these settings under this fault, or None if it is not known.

    A scenario without a promise can only be inconclusive. Under an unknown shim no promise is known.
    """
    dossier = dossier_of(engine)
    is_known = shim in list(Shim) or shim in dossier.CONTROLS.programs or shim.startswith(DROP_PREFIX)
    return dossier.promise(settings, fault) if is_known else None


def violates(promise: Promise, verdict: Verdict) -> bool:
    """Return whether this one verdict breaks the promise; a verdict that is not about the database never does."""
    if verdict.kind.is_infrastructure or promise.keeps is Keeps.ANYTHING:
        return False
    if verdict.kind.is_damage and (promise.atomic or promise.keeps is Keeps.SUFFIX):
        return True
    lost_max = {Keeps.NOTHING_LOST: 0, Keeps.LAST: 1}.get(promise.keeps)
    # A lost suffix of length 0 contradicts itself; it counts as 1, which breaks the strictest promise.
    lost = max(verdict.lost, int(verdict.kind is VerdictKind.LOST_SUFFIX))
    return lost_max is not None and lost > lost_max
