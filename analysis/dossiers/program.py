"""What a user's program is held against: the promises that the user names, and none that anybody documents."""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise
from rig.contract.faultspecs import ERROR_FAULTS, FORGETTING_FAULTS, SPECS
from rig.engines.program.promises import Promised, promises_of

# Its control is the program itself under a shim that swallows its syncs.
CONTROLS = Controls()
KNOWN_BUGS: tuple[KnownBug, ...] = ()
_SOURCE = "the promise that the program is held against (--promise)"
_KEEPS = {Promised.DURABLE: Keeps.NOTHING_LOST, Promised.PREFIX: Keeps.SUFFIX, Promised.ATOMIC: Keeps.ANY_WHOLE}
# What is allowed for the transaction in flight, or the first one that is not there whole.
_AT_THE_END = {
    Promised.DURABLE: "a transaction in flight may be",
    Promised.PREFIX: "the transaction after the last whole one may be",
}


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return the promise where the disk is honest, also while it returns errors; elsewhere nothing is promised."""
    given = promises_of(settings.get("promise", ""))
    # The strictest one says how much may be lost.
    strictest = next((promise for promise in Promised if promise in given), None)
    if strictest is None:
        return None
    if fault not in (*FORGETTING_FAULTS, *ERROR_FAULTS) or SPECS[fault].is_unpromised:
        return Promise(Keeps.ANYTHING, atomic=False, bound="", source=_SOURCE, note="")
    may_tear = Promised.ATOMIC not in given
    how = "there in part" if may_tear else "there whole or missing, never in part"
    bound = f"{_AT_THE_END[strictest]} {how}" if strictest in _AT_THE_END else ""
    # What its `recover` says is all that the user of a restarted program sees.
    return Promise(
        _KEEPS[strictest], atomic=True, bound=bound, source=_SOURCE, note="", covers_shown=True, may_tear=may_tear
    )


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return that nothing is known about leaving a sync out."""
    return None
