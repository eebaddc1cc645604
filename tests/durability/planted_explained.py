"""Explain what a quick run finds of the bugs planted in SQLite, and compare with what each patch changed.

    python -m tests.durability.planted_explained [NAME ...]

NAME is a patch in `planted/`; without names all bugs are measured. For each bug the worst state that breaks a promise
is explained. The explanation agrees if it names the file of the patch's line `Cause:`: as one that lacks a sync, or as
one with a write that was enough to be lost or to have landed. What it says goes to the standard error.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rig.analysis.explain.explanation import Explanation, explain
from rig.analysis.explain.story import paragraph
from rig.analysis.judging.outcome import summarise
from rig.analysis.show.broken import breaks
from rig.campaign import evidence
from rig.contract.errors import RigError
from rig.machines.guests import Source, guests
from rig.store import Run
from tests.durability import planting
from tests.durability.planting import Planted

_LIMIT_S = 60


def main(names: list[str]) -> None:
    """Explain the bugs with these names, or all, and print a line for each as soon as it is known."""
    wanted = [one for one in planting.all_planted() if not one.is_harmless and (not names or one.name in names)]
    libraries = planting.libraries(wanted)
    _say("planted", "cause", "explanation")
    _say(*["---"] * 3)
    answers = []
    with guests(list(libraries.values())) as source, tempfile.TemporaryDirectory(prefix="rig-planted-") as scratch:
        for one in wanted:
            answers.append(_answer(one, libraries[one.name].name, source, Path(scratch, one.name)))
            _say(one.name, one.cause, answers[-1])
    for answer in ("agrees", "names something else"):
        _say(f"all that {answer.replace('agrees', 'agree')}", "", f"{answers.count(answer)} of {len(answers)}")


def names_cause(explanation: Explanation, cause: str) -> bool:
    """Return whether an explanation names what a patch changed."""
    kind, _, path = cause.partition(" of ")
    if kind == "no sync":
        return any(blame.missing and blame.synced_path == path for blame in explanation.blames)
    sets = (*explanation.lost, *explanation.landed)
    return any(path in {write.path, *(change.path for change in write.changes)} for each in sets for write in each)


def _answer(one: Planted, library: str, source: Source, folder: Path) -> str:
    try:
        scenarios = planting.scenarios(one, planting.WAYS["life"], library)
        planting.measure(scenarios, source, folder)
        run = Run.open(folder)
        results, _ = run.results()
        broken = breaks(summarise(results, planting.PROFILE.exposure_min))
        if not broken:
            return "not found"
        scenario, state = broken[0].row.outcome.scenario, broken[0].worst.state
        with evidence.of_scenario(run, scenario.id, source.of(scenario)) as found:
            cut = evidence.state_of(found, state)
            explanation = explain(found, cut, evidence.verdict_of(found, run, cut, state), _LIMIT_S)
    except RigError as error:
        return f"none: {error}"
    sys.stderr.write(f"{one.name} {scenario.id} {state}\n{paragraph(explanation)}\n\n")
    return "agrees" if names_cause(explanation, one.cause) else "names something else"


def _say(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
