"""What a user's program is held against: the promise that the user names, and none that anybody documents."""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise
from rig.contract.arms import FORGETTING_FAULTS, SPECS
from rig.engines.program.promises import Promised

# Its control is the program itself under a shim that swallows its syncs.
CONTROLS = Controls()
KNOWN_BUGS: tuple[KnownBug, ...] = ()
_SOURCE = "the promise that the program is held against (--promise)"
_KEEPS: Mapping[str, tuple[Keeps, str]] = {
    Promised.DURABLE: (Keeps.NOTHING_LOST, "a transaction in flight may be there in part"),
    Promised.PREFIX: (Keeps.SUFFIX, "the transaction after the last whole one may be there in part"),
    Promised.ATOMIC: (Keeps.ANY_WHOLE, ""),
}


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return the promise where the disk is honest; elsewhere nothing is promised."""
    keeps, bound = _KEEPS.get(settings.get("promise", ""), (None, ""))
    if keeps is None:
        return None
    if fault not in FORGETTING_FAULTS or SPECS[fault].is_unpromised:
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=_SOURCE, note="")
    return Promise(keeps, atomic=True, bound=bound, source=_SOURCE, note="")


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return that nothing is known about leaving a sync out."""
    return None
