"""What a probe is: a small real experiment without a crash, which returns figures.

A probe gets an empty directory on the user's own disk and may do in it what it likes. Its figures are compared with the
thresholds of the claims that name it; some of them are the claim's control, which must come out the other way. A probe
that cannot be carried out here raises `Unmeasurable` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

Figure = int | float | str | bool
Figures = Mapping[str, Figure]
Probe = Callable[[Path], Figures]


class Unmeasurable(Exception):
    """Why a probe cannot be carried out on this machine, and what would change that."""
