"""The command `rig speed`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rig.contract.devices import DEFAULT_DEVICE
from rig.contract.errors import RigError, UsageError
from rig.front import options

if TYPE_CHECKING:
    from rig.speed.session import Bench, SpeedPlan
    from rig.speed.trials.loads import Load

_REPEATS, _REPEATS_VIRTUAL = 10, 2


def _numbers(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    """Return a list such as `1,10,100` as numbers."""
    words = text.split(",") if text else []
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(f"--rows takes numbers above 0, separated by commas, such as 1,10,100,2000; not {text!r}")
    return tuple(dict.fromkeys(map(int, words)))


@click.command()
@click.argument("arms", nargs=-1, metavar="[ARM]...")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A directory on the disk to measure.",
)
@options.fs(help="Measure in a virtual machine instead, on this file system.")
@options.device(default=None, show_default=False, help=f"The modelled disk for --fs.  [default: {DEFAULT_DEVICE}]")
@click.option(
    "--document", metavar="NAME", help="Carry out a document's own workload, such as S0, and show its figures."
)
@options.transactions(help="Transactions of each writer in each trial.")
@click.option(
    "--rows",
    callback=_numbers,
    default="",
    help="Rows that a transaction inserts, such as 1,10,100 [default: the ledger].",
)
@click.option("--filled", type=click.IntRange(min=0), default=0, help="Rows in the table before a trial; needs --rows.")
@click.option(
    "--writers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that write; needs --rows."
)
@click.option(
    "--readers",
    type=click.IntRange(min=0),
    default=0,
    help="Processes that look up single rows meanwhile; needs --rows and --filled.",
)
@options.pause_ms(default=0, help="Mean pause of each writer and reader before each transaction or read.")
@options.tune()
@click.option(
    "--scale",
    type=options.Finite(min=0, min_open=True),
    default=1.0,
    help="Size of a document's workload; 0.1 is for a first look.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help=f"Counted rounds, after a warm-up.  [default: {_REPEATS}; with --fs {_REPEATS_VIRTUAL}, to see them agree]",
)
@options.seed(help="Seed of the order of the arms and of what they write.")
@click.option(
    "--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Where to store every single measurement."
)
def speed(
    *, arms: tuple[str, ...], folder: Path | None, filesystem: str | None, device: str | None, document: str | None,
    transactions: int, rows: tuple[int, ...], filled: int, writers: int, readers: int, pause_ms: int,
    tuning: dict[str, str], scale: float, repeats: int | None, seed: int, file: Path | None,
) -> None:  # fmt: skip
    """Measure how fast settings are: with --dir on your own disk, without a virtual machine; with --fs in one.

    In a virtual machine the clock counts instructions and the disk is a model, so the figures are the same on every
    run and every host, and about the software alone.

    ARM is a setting as in the names of scenarios, such as wal_full or 'wal_*', or with its engine: ENGINE-SETTING. The
    other arms are compared with the first. Without any, all settings of the default engine are measured. With
    --document, ARM is one of its arms, such as 'wal-*', and the arms that it is compared with are measured too.
    """
    from rig.analysis.show.speedtable import print_speeds
    from rig.front.progress import show
    from rig.front.terminal import standard_output
    from rig.speed import session, speeds
    from rig.speed.arms import arms_of
    from rig.speed.trials.loads import Load

    _require_consistent(folder, filesystem, device)
    loads = [Load(each, transactions, writers, seed, filled, readers, pause_ms) for each in rows or (0,)]
    if document:
        if rows or filled or tuning or pause_ms or loads[0].is_shared:
            raise UsageError(
                "--document brings its own load: leave out --rows, --filled, --writers, --readers, --pause-ms, --tune"
            )
        plan = _of_document(document, seed, scale)
        plan = session.narrow(plan, arms) if arms else plan
    else:
        _require_possible(loads[0])
        plan = session.of_arms(arms_of(arms, loads, tuning), seed)
    repeats = repeats or (_REPEATS_VIRTUAL if filesystem else _REPEATS)
    if file:
        _require_storable(file)
    try:
        with show("measuring", "trials measured") as progress:
            if repeats < _REPEATS and not filesystem:
                progress.says(
                    f"warning: intervals need at least {_REPEATS} rounds; --repeats {repeats} is only for a first look"
                )
            with _bench(plan, folder, filesystem, device or DEFAULT_DEVICE, progress.says) as bench:
                measurement = session.measure(plan, bench, repeats, seed, progress)
    except KeyboardInterrupt:
        raise RigError(f"stopped; nothing is kept{f', and nothing is left in {folder}' if folder else ''}") from None
    if file:
        speeds.save(measurement, file)
    print_speeds(measurement, standard_output())
    if file:
        click.echo(f"every measurement: {file}")


def _require_consistent(folder: Path | None, filesystem: str | None, device: str | None) -> None:
    """Raise UsageError unless the options say where to measure, once."""
    if (folder is None) == (filesystem is None):
        raise UsageError("say where: --dir DIRECTORY for your own disk, or --fs WORD for a virtual machine")
    if device and not filesystem:
        raise UsageError("--device goes with --fs: your own disk is as fast as it is")


def _require_possible(load: Load) -> None:
    """Raise UsageError for a load that cannot be carried out."""
    if not load.rows and (load.filled or load.is_shared):
        raise UsageError("--filled, --writers and --readers go with --rows: the ledger is the work of one connection")
    if load.readers and not load.filled:
        raise UsageError("--readers look up rows that are there before: give --filled too")


@contextmanager
def _bench(
    plan: SpeedPlan, folder: Path | None, filesystem: str | None, device: str, says: Callable[[str], None]
) -> Iterator[Bench]:
    """Give the place that is measured for the length of a block."""
    if folder:
        from rig.speed.ondisk import on_disk

        with on_disk(folder, plan.needed_bytes) as bench:
            yield bench
        return
    from rig.campaign.speed import InGuest, disk_mib
    from rig.contract.devices import device_named
    from rig.engines import load
    from rig.filesystems import Mirrored, filesystem_named
    from rig.machines.guests import guests
    from rig.planning import matrix

    assert filesystem
    on, disk, first = filesystem_named(filesystem), device_named(device), next(iter(plan.arms.values()))[0]
    if isinstance(on, Mirrored):
        raise UsageError(f"rig speed measures on one disk, and {on.word} lies on two")
    # Every scenario of an engine on this file system has the machine that the engine and the file system need.
    scenarios = {
        module: matrix.select([f"{load(module).name}-{filesystem}-*_powercut"])[0]
        for module in {orders.engine_module for orders, _ in plan.arms.values()}
    }
    size_mib = disk_mib(on, plan.needed_bytes)
    with guests([], says) as source:
        yield InGuest(lambda module: source.recorder_of(scenarios[module]), on, disk, first, size_mib)


def _require_storable(file: Path) -> None:
    """Raise an error if nothing can be stored there, before any time is spent on measuring."""
    from rig.host.files import require_writable

    folder = file.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--json {file}: there is no directory {folder}")
    require_writable(folder, "choose another file: --json FILE")


def _of_document(name: str, seed: int, scale: float) -> SpeedPlan:
    from rig.analysis.documents.replications import replications
    from rig.speed import session

    workloads = [replication for replication in replications() if replication.name == name]
    if not workloads:
        names = sorted({replication.name for replication in replications()})
        raise UsageError(f"unknown document {name!r}; there are: {', '.join(names)}")
    return session.of_document(workloads, seed, scale)
