"""The command `rig export`: a crash state in a folder that anyone can use without the rig."""

from __future__ import annotations

from pathlib import Path

import click

from rig.front import options, programs
from rig.front.rundirs import newest_run


@click.command()
@click.argument("scenario")
@click.argument("state")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--fixture", is_flag=True, help="Also write the files themselves, as a fixture for an engine's tests.")
@click.option(
    "--run-program", is_flag=True, help="Run your program here, outside a machine, to see what the script shows."
)
@options.library()
@options.image(help="The recipe of the run, if the cache has lost it.")
@options.run_dir(help="Run directory [default: the newest in runs/].")
def export(
    *, scenario: str, state: str, folder: Path, fixture: bool, run_program: bool, library: str | None,
    image: str | None, run_dir: Path | None,
) -> None:  # fmt: skip
    """Write a crash state into FOLDER: disk image, files, and a script that shows the verdict without the rig."""
    from rig.campaign.evidence import of_scenario, of_state, verdict_of
    from rig.campaign.export import export as export_state
    from rig.front.progress import show
    from rig.machines.guests import guests
    from rig.store import Run

    target = Run.open(run_dir or newest_run(having=scenario))
    stored = target.scenario(scenario)
    build = programs.of_run(stored, library, image)
    with (
        show("exporting", "states judged") as progress,
        guests([build] if build else [], progress.says) as source,
        of_scenario(target, scenario, source.of(stored)) as of_run,
        of_state(target, of_run, state) as (evidence, crash_state),
    ):
        verdict = verdict_of(evidence, target, crash_state, state)
        exported = export_state(
            evidence, crash_state, verdict, folder, fixture=fixture, build=build, runs_program=run_program
        )
    if exported.printed:
        click.echo(exported.printed, nl=False)
    else:
        click.echo(exported.failure, err=True)
    click.echo(f"exported to {exported.folder}")
