"""The command `rig`. Exit codes: 0 kept, 1 a promise broken, 2 usage, 3 inconclusive."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rig.contract.errors import RigError, UsageError
from rig.front import options, programs
from rig.front.measuring import extent, measure
from rig.front.outputs import Outputs, output_options
from rig.front.rundirs import RUNS, newest_run
from rig.front.verbs.advise import advise
from rig.front.verbs.claims import claims
from rig.front.verbs.compare import compare
from rig.front.verbs.explain import explain
from rig.front.verbs.export import export
from rig.front.verbs.history import history, query
from rig.front.verbs.images import image
from rig.front.verbs.reports import conclude, conclude_shard, merge, report
from rig.front.verbs.shell import shell
from rig.front.verbs.speed import speed
from rig.front.verbs.sweep import sweep

if TYPE_CHECKING:
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.planning.matrix import Profile
    from rig.shards import Shard

_USAGE, _INCONCLUSIVE = 2, 3


class _Rig(click.Group):
    """Turn each error into one message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            return super().invoke(ctx)
        except UsageError as error:
            _complain(str(error), _USAGE)
        except RigError as error:
            _complain(str(error), _INCONCLUSIVE)
        except KeyboardInterrupt:
            # Click would exit with 1, the code of a broken promise.
            _complain(
                "stopped; what was measured is kept: `rig report` shows it, the same command goes on", _INCONCLUSIVE
            )
        except BrokenPipeError:
            _fall_silent()
            sys.exit(_INCONCLUSIVE)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:
            # Python would exit with 1 too, but a rig that crashed proves nothing.
            logging.getLogger(__name__).exception("this is a bug in the rig")
            sys.exit(_INCONCLUSIVE)


@click.group(cls=_Rig, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--require-sandbox", is_flag=True, help="Start no machine unless all layers of its sandbox are there.")
def main(*, require_sandbox: bool) -> None:
    """Show what a database loses when the power goes, and how fast each setting is."""
    if require_sandbox:
        from rig.sandbox import sandbox

        sandbox.require()


main.add_command(image)
main.add_command(speed)
main.add_command(claims)
main.add_command(advise)
main.add_command(report)
main.add_command(merge)
main.add_command(compare)
main.add_command(history)
main.add_command(query)
main.add_command(sweep)
main.add_command(explain)
main.add_command(export)
main.add_command(shell)


@main.command()
@options.scenarios()
@options.profile()
@options.states()
@options.controls()
@options.library()
def plan(*, scenarios: tuple[str, ...], profile: str, states: int | None, controls: bool, library: str | None) -> None:
    """List the scenarios that a run would measure. SCENARIO may contain * and ?."""
    from rig.contract.faultspecs import SPECS
    from rig.planning import matrix

    wanted = matrix.profile(profile, states or 0)
    chosen, added = _select(scenarios, wanted, controls=controls, is_build=bool(library))
    if added:
        click.echo(added, err=True)
    for scenario in chosen:
        click.echo(scenario.id)
    configured = matrix.configure(chosen, wanted)
    state_count = sum(wanted.states_max_of(scenario) for scenario in configured if SPECS[scenario.fault].model)
    instants = sum(wanted.instants_of(scenario) for scenario in configured)
    most = f"at most {state_count} crash states and {instants} cut instants"
    click.echo(f"{extent(configured)}; {most} (profile {wanted.name})", err=True)


@main.command()
@options.scenarios()
@options.profile()
@options.controls()
@options.device()
@options.seed()
@options.library()
@programs.program_options
@programs.dry_run()
@options.tune()
@options.pause_ms()
@options.states()
@options.fail_fast()
@options.explain()
@options.run_dir(help="Run directory [default: a stopped run of this command in runs/, or a new one].")
@options.jobs()
@options.workers()
@options.dask()
@options.retries()
@options.shard()
@output_options
def run(
    *,
    scenarios: tuple[str, ...],
    profile: str,
    controls: bool,
    device: str,
    seed: int,
    library: str | None,
    program: str | None,
    dry_run: bool,
    tuning: dict[str, str],
    pause_ms: int,
    states: int | None,
    fail_fast: bool,
    explain: bool,
    run_dir: Path | None,
    jobs: int,
    workers: int | None,
    dask: str | None,
    retries: int,
    shard: Shard | None,
    outputs: Outputs,
    transactions: int | None,
    **of_program: Any,
) -> None:
    """Measure scenarios (default: the main matrix), print the table and write the report.

    To resume a run that was stopped, give the same command again.
    """
    from rig.contract.devices import device_named
    from rig.front import selection
    from rig.front.explaining import explain_worst
    from rig.front.verbs.doctor import require_runs
    from rig.planning import matrix

    if shard and outputs != Outputs():
        raise UsageError("a shard alone is not judged: --junit, --summary, --baseline, --history go with `rig merge`")
    if sum(map(bool, (jobs, workers, dask))) > 1:
        raise UsageError("--jobs, --workers and --dask each say where machines run: give one of them")
    if transactions and not program:
        raise UsageError("--transactions goes with --program; a profile sets it for scenarios")
    if program and (scenarios or library):
        raise UsageError("--program is measured alone: leave out --library and the names of scenarios")
    if dry_run:
        sys.exit(programs.rehearse(program, **of_program))
    wanted = matrix.profile(profile, states or 0, transactions or 0)
    # Fail before spending a minute on the image and the templates.
    require_runs(run_dir or RUNS.absolute())
    outputs.check()
    chosen, added, build = _request(scenarios, wanted, library, program, controls=controls, **of_program)
    name = build.name if build else ""
    chosen = matrix.configure(chosen, wanted, device_named(device), seed, name, tuning=tuning, think_ms=pause_ms)
    added = "\n".join(filter(None, (added, selection.tuned_line(tuning, pause_ms))))
    target = measure(
        chosen, wanted, run_dir, build=build, added=added, jobs=jobs, workers=workers or 0, dask=dask or "",
        shard=shard, retries=retries, fails=outputs.end_of(fail_fast), patterns=None if program else scenarios,
    )  # fmt: skip
    if explain and not shard:
        explain_worst(target, wanted.exposure_min, build)
    sys.exit(conclude_shard(target, shard) if shard else conclude(target, wanted.exposure_min, outputs))


@main.command()
@click.argument("scenario")
@click.argument("state")
@options.library()
@options.image(help="The recipe of the run, if the cache has lost it.")
@options.run_dir(help="Run directory [default: the newest in runs/].")
def replay(scenario: str, state: str, library: str | None, image: str | None, run_dir: Path | None) -> None:
    """Rebuild one crash state of a run, reopen the database on it, and compare the verdict with the stored one."""
    from rig.campaign.replay import replay as replay_state
    from rig.front.progress import show
    from rig.machines.guests import guests
    from rig.store import Run

    target = Run.open(run_dir or newest_run(having=scenario))
    stored = target.scenario(scenario)
    build = programs.of_run(stored, library, image)
    with show() as progress, guests([build] if build else [], progress.says) as source:
        answer = replay_state(target, scenario, state, source.of(stored))
    for name, value in answer.facts.items():
        click.echo(f"{name:12} {value}")
    if not answer.agrees:
        _complain("the verdict differs from the stored one", _INCONCLUSIVE)


@main.command()
def doctor() -> None:
    """Check what works on this host, and say how to fix what does not."""
    from rig.front.verbs.doctor import examine, install_line

    checks = []
    for check in examine():
        bad = click.style("no  ", fg="yellow") if check.optional else click.style("MISS", fg="red")
        mark = click.style("ok  ", fg="green") if check.ok else bad
        click.echo(f"{mark} {check.what}: {check.detail}")
        checks.append(check)
    if line := install_line(checks):
        click.echo(f"To install what is missing, run as root: {line}")
    sys.exit(0 if all(check.ok or check.optional for check in checks) else _INCONCLUSIVE)


@main.command()
@click.option("--quick", is_flag=True, help="Fewer repetitions and states, for a first look.")
def bench(*, quick: bool) -> None:
    """Measure the rig itself against its budgets, and print a table."""
    from rig.front.verbs.bench import measure

    measure(click.echo, quick=quick)


def _select(
    patterns: tuple[str, ...], profile: Profile, *, controls: bool, is_build: bool
) -> tuple[list[Scenario], str]:
    """Return the scenarios to measure, and a line naming the controls that were added, or an empty line."""
    from rig.front import selection

    asked = selection.select(patterns, profile, is_build=is_build)
    measured = selection.with_controls(asked) if controls else asked
    return measured, selection.added_line(asked, measured)


def _request(
    scenarios: tuple[str, ...], profile: Profile, library: str | None, program: str | None, *, controls: bool,
    **of_program: Any,
) -> tuple[list[Scenario], str, Library | None]:  # fmt: skip
    """Return the scenarios to measure, a line naming the controls that were added, and the user's build or program."""
    from rig.engines.builds import library_for

    if program:
        selected = programs.select(program, controls=controls, is_whole=profile.is_whole, **of_program)
        return selected.scenarios, selected.added, selected.build
    if given := [name for name, value in of_program.items() if value]:
        spelled = [each.opts[0] for each in click.get_current_context().command.params if each.name in given]
        raise UsageError(f"{' and '.join(sorted(spelled))} only with --program; scenarios are named: rig plan")
    chosen, added = _select(scenarios, profile, controls=controls, is_build=bool(library))
    return chosen, added, library_for({scenario.engine for scenario in chosen}, library) if library else None


def _complain(message: str, code: int) -> None:
    click.echo(click.style("rig: ", fg="red") + message, err=True)
    sys.exit(code)


def _fall_silent() -> None:
    """Discard buffered output: Python flushes it on exit and would report the broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
