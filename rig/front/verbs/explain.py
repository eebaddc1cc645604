"""The command `rig explain`: why a crash state of a run breaks a promise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.errors import UsageError
from rig.front import options
from rig.front.rundirs import newest_run

if TYPE_CHECKING:
    from rig.contract.results import MeasuredScenario, Verdict
    from rig.store import Run

_FORMATS = ("text", "markdown", "html")


@click.command()
@click.argument("scenario", required=False, default="")
@click.argument("state", required=False, default="")
@click.option("--worst", is_flag=True, help="Explain the worst state of the scenario, or of the whole run.")
@click.option("--all-distinct", is_flag=True, help="Explain one state of each kind of broken promise.")
@options.output_format(type=click.Choice(_FORMATS), help="For a terminal, for an issue tracker, or as a page.")
@options.library()
@options.image(help="The recipe of the run, if the cache has lost it.")
@options.run_dir(help="Run directory [default: the newest in runs/].")
def explain(
    *, scenario: str, state: str, worst: bool, all_distinct: bool, wanted: str, library: str | None, image: str | None,
    run_dir: Path | None,
) -> None:  # fmt: skip
    """Say why a crash state breaks a promise: the smallest loss, in files and calls, and which sync is missing."""
    from rig.analysis.explain.story import Narrative, Telling, lines, markdown, page
    from rig.analysis.judging.promises import promise_of
    from rig.front.explaining import explain_stored, keep
    from rig.store import Run

    target = Run.open(run_dir or newest_run(having=scenario))
    chosen = _states_to_explain(target, scenario, state, worst=worst, all_distinct=all_distinct)
    for rank, (measured, verdict) in enumerate(chosen):
        explanation = explain_stored(target, measured.scenario.id, verdict.state, library, image)
        replay_line = f"rig replay {measured.scenario.id} {verdict.state} --run-dir {target.folder}"
        promise = promise_of(measured.scenario)
        story = Narrative.of(explanation, promise)
        keep(target, measured.scenario.id, Telling(verdict.state, story))
        if wanted == "markdown":
            click.echo(markdown(explanation, promise, replay_line))
            continue
        if wanted == "html":
            click.echo(page(story, replay_line))
            continue
        click.echo(f"{chr(10) if rank else ''}{measured.scenario.id} {verdict.state}: {verdict.kind}")
        for line in (*lines(explanation), "", replay_line):
            click.echo(line)


def _states_to_explain(
    target: Run, scenario: str, state: str, *, worst: bool, all_distinct: bool
) -> Sequence[tuple[MeasuredScenario, Verdict]]:
    """Return what to explain; raise UsageError if nothing is broken, or if it is not clear what is meant."""
    if bool(state) + worst + all_distinct != 1:
        raise UsageError("name a scenario and a state, or give --worst or --all-distinct")
    results, damaged = target.results([scenario] if scenario else None)
    if damaged:
        raise damaged[0]
    if state:
        verdicts = [
            (measured, verdict) for measured in results for verdict in measured.verdicts if verdict.state == state
        ]
        if not verdicts:
            raise UsageError(f"{state!r} is no state that {scenario} was judged on")
        return verdicts[-1:]
    broken = broken_states(results, any_loss=bool(scenario))
    if not broken:
        raise UsageError(f"no promise was broken in {target.folder}: there is nothing to explain")
    return broken[:1] if worst else broken


def broken_states(
    results: Sequence[MeasuredScenario], *, any_loss: bool = False
) -> list[tuple[MeasuredScenario, Verdict]]:
    """Return the worst state of each scenario and kind of verdict that breaks its promise, controls last.

    With `any_loss`, and where no promise is known, a loss counts that the promise allows.
    """
    from rig.analysis.judging.controls import is_sabotaged
    from rig.analysis.judging.metrics import loss_at_most
    from rig.analysis.judging.promises import promise_of, violates

    worst: dict[tuple[str, str], tuple[MeasuredScenario, Verdict]] = {}
    for measured in results:
        promise = promise_of(measured.scenario)
        for verdict in measured.verdicts:
            is_loss = verdict.kind.is_damage or verdict.lost > 0
            if not (is_loss and verdict.entry and (any_loss or promise is None or violates(promise, verdict))):
                continue
            key = (measured.scenario.id, verdict.kind)
            if key not in worst or loss_at_most(verdict) > loss_at_most(worst[key][1]):
                worst[key] = measured, verdict

    def place(pair: tuple[MeasuredScenario, Verdict]) -> tuple[bool, bool, int, str]:
        scenario, verdict = pair[0].scenario, pair[1]
        return is_sabotaged(scenario), not verdict.kind.is_damage, -loss_at_most(verdict), scenario.id

    return sorted(worst.values(), key=place)
