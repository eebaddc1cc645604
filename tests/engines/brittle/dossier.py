"""Each promises to lose nothing, wrongly; without syncs it promises nothing."""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise
from rig.contract.faultspecs import FORGETTING_FAULTS

CONTROLS = Controls(must_lose=dict.fromkeys(FORGETTING_FAULTS, ("never",)))
KNOWN_BUGS: tuple[KnownBug, ...] = ()


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return what a user would expect."""
    is_kept = settings["sync"] == "always" and fault in FORGETTING_FAULTS
    return Promise(Keeps.NOTHING_LOST if is_kept else Keeps.ANYTHING, is_kept, "", "its driver", "")


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return nothing: no sync has a name."""
    return None
