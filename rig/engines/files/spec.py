"""The spec of the file patterns: their one setting names what is done to a file, and what makes it durable."""

from __future__ import annotations

from rig.engines.engine import Spec
from rig.engines.files.promises import SILENT, WORDS

SPEC = Spec(
    name="files",
    settings={"pattern": WORDS},
    unprotected={"pattern": SILENT},
    are_alternatives=False,
    # Syncs that are system calls of their own, so that they can be swallowed.
    strict=("append-fsync", "create-synced"),
    cross_checks=("append-fsync", "append-none"),
    warm=("append-fsync",),
    immune=dict.fromkeys(("killcut", "secondcut"), "a pattern of file use recovers nothing that it could go on with"),
    is_witness=True,
    is_default=False,
)
