"""What the append-only log promises, which settings must fail, and which syncs matter."""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise, matters
from rig.contract.faultspecs import CLOCK_FAULTS, FORGETTING_FAULTS

_SOURCE = "examples/appendlog/appendlog/driver.py [SRC]"
CONTROLS = Controls(must_lose=dict.fromkeys((*FORGETTING_FAULTS, *CLOCK_FAULTS, "livecut-cache"), ("never",)))
KNOWN_BUGS: tuple[KnownBug, ...] = ()


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return that nothing is lost if every record is synced or only the process dies."""
    if fault == "processkill" or (settings["sync"] == "always" and fault in (*FORGETTING_FAULTS, *CLOCK_FAULTS)):
        # Garbage in a block may hit older records too, and a checksum cannot restore them.
        keeps = Keeps.ANYTHING if fault == "shorn" else Keeps.NOTHING_LOST
        return Promise(keeps, atomic=keeps is not Keeps.ANYTHING, bound="", source=_SOURCE, note="")
    return Promise(Keeps.ANYTHING, atomic=False, bound="", source=_SOURCE, note="")


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return that the only sync matters, on every file system."""
    return matters("an acknowledged record may still be in memory", _SOURCE) if kind == "log-commit" else None
