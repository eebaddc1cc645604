"""The dry run of a user's program: what it printed, which files it changed and synced, and what is wrong, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rig.contract.orders import ILLEGAL, Processor
from rig.contract.results import Verdict, VerdictKind

if TYPE_CHECKING:
    from rig.campaign.rehearsal import FileCalls, ProgramStep
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.store import Run

_KEPT, _INCONCLUSIVE = 0, 3
_UNSEEN = "the rig sees no sync through RWF_DSYNC or io_uring"
# How a recovery fails that would fail without a cut too.
_NOT_OPENED = {VerdictKind.UNOPENABLE, VerdictKind.DIED, VerdictKind.STUCK, VerdictKind.OUT_OF_MEMORY}
# The steps without which nothing can be measured; the others are for faults that let a program work on.
_NEEDED = 2


def dry_run(scenario: Scenario, build: Library, echo: Callable[[str], None]) -> int:
    """Carry out a program in a guest, say how it went, and return the exit code."""
    from rig.front.progress import show

    with show("carrying out the program") as progress:
        steps = _steps(scenario, build, progress.says)
    for line in report(steps):
        echo(line)
    return _INCONCLUSIVE if is_wrong(steps) else _KEPT


def void_if_it_never_opens(
    target: Run, scenarios: Sequence[Scenario], build: Library, says: Callable[[str], None] = lambda _: None
) -> None:
    """Void the scenarios of a program that no cut after an acknowledgement could open, if none is needed for that."""
    judged = [scenario for scenario in scenarios if _never_opens(target.verdicts(scenario.id)[0])]
    if not judged:
        return
    says("no crash state could be opened, so the program is carried out without a cut")
    steps = _steps(judged[0], build, says)
    if is_wrong(steps):
        for scenario in judged:
            why = f"without any cut, `{steps[-1].name}` {steps[-1].wrong.removeprefix('it ')}"
            target.void(scenario, f"the program fails {why}; try it with --dry-run")


def _never_opens(verdicts: Sequence[Verdict]) -> bool:
    acked = [verdict for verdict in verdicts if verdict.acked and not verdict.kind.is_infrastructure]
    return bool(acked) and all(verdict.kind in _NOT_OPENED for verdict in acked)


def _steps(scenario: Scenario, build: Library, says: Callable[[str], None]) -> Sequence[ProgramStep]:
    """Carry out the program in a guest, on a modern processor if it needs one."""
    from rig.campaign.rehearsal import rehearse
    from rig.engines import engine_named
    from rig.engines.builds import builds_of
    from rig.images import image, recipes
    from rig.machines.guests import guests

    with guests([], says) as source:
        guest = image.build(recipes.recipe_of(scenario), says)
        builds_of(engine_named(scenario.engine)).require_loadable(build, guest.contents)
        steps = rehearse(scenario, build, source.verifier_of(scenario))
        if scenario.processor is Processor.PLAIN and any(ILLEGAL in step.wrong for step in steps):
            says("the program died by SIGILL on the plain processor, so it is started on the modern one")
            scenario = replace(scenario, processor=Processor.MODERN)
            steps = rehearse(scenario, build, source.verifier_of(scenario))
    return steps


def report(steps: Sequence[ProgramStep]) -> list[str]:
    """Return lines on each step, then what is wrong or strange, then what to do next."""
    lines = [line for step in steps for line in _step_lines(step)]
    if is_wrong(steps):
        return [*lines, f"wrong: `{steps[-1].name}`: {steps[-1].wrong}"]
    ending = "the program keeps to the protocol; to cut its power, leave out --dry-run"
    return [*lines, *_doubts(steps[0]), *_idle(steps[-1]), ending]


def is_wrong(steps: Sequence[ProgramStep]) -> bool:
    """Return whether a step has failed without which nothing can be measured."""
    return any(step.wrong for step in steps[:_NEEDED])


def _step_lines(step: ProgramStep) -> list[str]:
    lines = [f"{step.name}: {step.wrong or step.answer}, {step.s} s"]
    lines += (
        [f"  on standard error: {step.last_words}"] if step.last_words and step.last_words not in step.wrong else []
    )
    return lines + [f"  {name}: {_counts(calls)}" for name, calls in sorted(step.files.items())]


def _counts(calls: FileCalls) -> str:
    counts = {"made": calls.made, "changed": calls.changed, "renamed": calls.renamed, "synced": calls.synced}
    return ", ".join(f"{word} {_times(count)}" for word, count in counts.items() if count or word == "synced")


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _idle(last: ProgramStep) -> list[str]:
    words = "note: faults that let it work on after a cut, such as secondcut, get no result"
    return [f"{words}: `{last.name}`: {last.wrong}"] if last.wrong else []


def _doubts(run: ProgramStep) -> list[str]:
    """Return what looks as if acknowledged transactions could be lost."""
    if (everything := run.files.get("*")) and everything.synced:
        return []
    if not any(calls.changed for calls in run.files.values()):
        return [
            "note: it changes no file that is seen, and io_uring and AIO are not seen: what it acknowledges may be lost"
        ]
    if not any(calls.synced for calls in run.files.values()):
        return [f"note: it never syncs a file, so what it acknowledges may be lost; {_UNSEEN}"]
    notes = [
        f"note: {name} is changed and never synced; {_UNSEEN}"
        for name, calls in sorted(run.files.items())
        if calls.changed and not calls.synced and not calls.renamed
    ]
    if any(calls.made for calls in run.files.values()) and not _syncs_a_directory(run):
        notes.append("note: it makes files and never syncs their directory, so their names may be lost")
    return notes


def _syncs_a_directory(run: ProgramStep) -> bool:
    folders = {name.rpartition("/")[0] or "." for name, calls in run.files.items() if calls.made}
    return any(run.files[name].synced for name in folders if name in run.files)
