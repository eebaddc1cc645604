"""Print what each workload finds of the bugs planted in SQLite, as a table in Markdown.

    python -m tests.durability.planted_table [NAME ...]

NAME is a patch in `planted/`; without names all are measured. The last lines count, for each workload, the bugs of
which at least one crash state shows something.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from rig.machines import campaign
from tests.durability import planting
from tests.durability.planting import Found, Planted

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
        counts = Counter[tuple[bool, str]]()
        for one in wanted:
            found = [_found(one, workload, libraries[one.name].name, machines, scratch) for workload in _WORKLOADS]
            counts.update((one.is_harmless, name) for name, seen in zip(_WORKLOADS, found, strict=True) if seen.first)
            texts = [seen.text for seen in found]
            _say(one.name, one.needs or "harmless", f"{one.settings}_{one.fault}", *texts)
    for is_harmless, kind in ((False, "bugs"), (True, "harmless changes")):
        of_kind = sum(one.is_harmless is is_harmless for one in wanted)
        _say(kind, "found", "", *[f"{counts[is_harmless, workload]} of {of_kind}" for workload in _WORKLOADS])


def _found(one: Planted, workload: str, library: str, machines: campaign.Machines, scratch: str) -> Found:
    wanted = planting.scenario(one, workload, library)
    found = planting.measured(wanted, machines, Path(scratch) / one.name / workload)
    # Details are for whoever wants to know more; the table goes to the standard output.
    sys.stderr.write(f"{wanted.id} {one.name}\n{found.reasons}\n\n")
    return found


def _say(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
