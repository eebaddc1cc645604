"""Print what each workload finds of the bugs planted in SQLite, as a table in Markdown.

    python -m tests.durability.planted_table [NAME ...]

NAME is a patch in `planted/`; without names all are measured.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rig.machines import campaign
from tests.durability import planting
from tests.durability.planting import Planted

_WORKLOADS = ("ledger", "life")


def main(names: list[str]) -> None:
    """Measure the patches with these names, or all, and print a line for each as soon as it is known."""
    wanted = [one for one in planting.planted() if not names or one.name in names]
    libraries = planting.libraries(wanted)
    _say("planted", "needs", "measured", *_WORKLOADS)
    _say(*["---"] * (3 + len(_WORKLOADS)))
    with (
        campaign.machines(campaign.Silent(), list(libraries.values())) as machines,
        tempfile.TemporaryDirectory(prefix="rig-planted-") as scratch,
    ):
        for one in wanted:
            found = [_found(one, workload, libraries[one.name].name, machines, scratch) for workload in _WORKLOADS]
            _say(one.name, one.needs or "harmless", f"{one.settings}_{one.fault}", *found)


def _found(one: Planted, workload: str, library: str, machines: campaign.Machines, scratch: str) -> str:
    wanted = planting.scenario(one, workload, library)
    return planting.measured(wanted, machines, Path(scratch) / one.name / workload).text


def _say(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
