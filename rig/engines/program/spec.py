"""The spec of a user's program: its one setting is the promise that it must keep."""

from __future__ import annotations

from rig.engines.engine import Spec
from rig.engines.program.promises import PROMISES

SPEC = Spec(
    name="program",
    settings={"promise": PROMISES},
    # Whatever a program promises, it must lose something without its syncs.
    strict=PROMISES,
    needs_build=True,
    # Under emulation on a slow host, Node was still starting after ten.
    state_limit_s=30,
    # Enough for a program that keeps each entry in a file of its own.
    file_count=1000,
    own_workloads=("creation",),
    says_failures=True,
    warm=PROMISES[:1],
)
