"""What the manual pages of Linux promise to programs of each pattern; unpromised patterns are measured too."""

from __future__ import annotations

from collections.abc import Mapping

from rig.analysis.dossiers import Controls, Expectation, Keeps, KnownBug, Promise
from rig.contract.faultspecs import FORGETTING_FAULTS, SPECS
from rig.engines.files.promises import PATTERNS

# Patterns without a sync must lose a record, and a file.
CONTROLS = Controls(
    must_lose=dict.fromkeys(FORGETTING_FAULTS, ("append-none", "create-none")),
    # They close the new file; `append` keeps its file open.
    closing=("create-none", "create-synced"),
)
KNOWN_BUGS: tuple[KnownBug, ...] = ()


def promise(settings: Mapping[str, str], fault: str) -> Promise | None:
    """Return the promise where the disk is honest; elsewhere nothing is promised."""
    kept = PATTERNS.get(settings.get("pattern", ""))
    if kept is None:
        return None
    if not kept.source or fault not in FORGETTING_FAULTS or SPECS[fault].is_unpromised:
        keeps, bound, source = Keeps.ANYTHING, "", kept.source or "nothing is synced"
    else:
        keeps = Keeps.SUFFIX if kept.only_order else Keeps.NOTHING_LOST
        bound, source = "a transaction in flight may be there in part", kept.source
    # The first transaction also prepares the files. Until its calls have returned, nothing is promised about them.
    return Promise(keeps, atomic=keeps is not Keeps.ANYTHING, bound=bound, source=source, note="", begins_with_ack=True)


def expectation(filesystem: str, settings: Mapping[str, str], kind: str) -> Expectation | None:  # noqa: ARG001
    """Return that nothing is known about leaving a sync out."""
    return None
