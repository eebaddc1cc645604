"""Print what each way of measuring finds of the bugs planted in SQLite, as a table in Markdown.

    python -m tests.durability.planted_table [NAME ...]

NAME is a patch in `planted/`; without names all are measured. The last lines count, for each way, the bugs
that at least one crash state shows. A bug that loses something even while the power stays is marked, and
not counted. What broke the promise goes to the standard error.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from rig.contract.errors import HostError
from rig.machines.guests import Source, guests
from tests.durability import planting
from tests.durability.planting import Found, Planted


def main(names: list[str]) -> None:
    """Measure the patches with these names, or all, and print a line for each as soon as it is known."""
    wanted = [one for one in planting.all_planted() if not names or one.name in names]
    libraries = planting.libraries(wanted)
    _say("planted", "needs", "measured", *planting.WAYS)
    _say(*["---"] * (3 + len(planting.WAYS)))
    counts = Counter[tuple[str, str]]()
    with (
        guests(list(libraries.values())) as source,
        tempfile.TemporaryDirectory(prefix="rig-planted-") as scratch,
    ):
        for one in wanted:
            folder, library = Path(scratch, one.name), libraries[one.name]
            (folder / "alone").mkdir(parents=True)
            kind = "harmless" if one.is_harmless else "bug"
            if not planting.needs_cut(one, library, folder / "alone"):
                kind = "needs no cut"
            counts[kind, ""] += 1
            found = {way: _measure(one, way, library.name, source, folder) for way in planting.WAYS}
            counts.update((kind, way) for way, seen in found.items() if any(each.first for each in seen))
            remark = "" if kind == "bug" else f" ({kind})"
            _say(
                f"{one.name}{remark}", one.needs, one.settings, *["; ".join(map(str, seen)) for seen in found.values()]
            )
    for kind in ("bug", "harmless"):
        _say(f"all of kind {kind}", "", "", *[f"{counts[kind, name]} of {counts[kind, '']}" for name in planting.WAYS])


def _measure(one: Planted, way: str, library: str, source: Source, folder: Path) -> list[Found]:
    try:
        found = planting.measure(planting.scenarios(one, planting.WAYS[way], library), source, folder / way)
    except HostError as error:
        sys.stderr.write(f"{one.name} {one.settings} {way}: not measured\n{error}\n\n")
        return []
    for each in found:
        sys.stderr.write(f"{one.name} {one.settings} {each}: {each.result}\n{each.reasons}\n\n")
    return found


def _say(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
