"""The run directories below `runs/` in the current folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rig.contract.errors import StoreError

RUNS = Path("runs")
REPORT = "report.html"
# The name of a run that the user did not name: local time, because people read it.
NAME = "%Y-%m-%d-%H%M%S"
# Begins the name of a folder that holds the runs of one `rig sweep`.
SWEEP = "sweep-"


def runs() -> list[Path]:
    """Return all run directories, the newest first."""
    return sorted((path.parent for path in RUNS.glob("*/manifest.json")), key=begin_of, reverse=True)


def finished_runs() -> list[Path]:
    """Return the runs that were measured to the end, runs of sweeps last; raise StoreError if no run was."""
    of_sweeps = sorted(path.parent for path in RUNS.glob(f"{SWEEP}*/*/manifest.json"))
    finished = [folder for folder in (*runs(), *of_sweeps) if (folder / REPORT).exists()]
    if not finished:
        raise StoreError(
            f"there is no finished run in {RUNS.absolute()}; name one with --run-dir, or make one with `rig run`"
        )
    return finished


def newest_run(having: str = "") -> Path:
    """Return the newest run directory, or the newest with a scenario; raise StoreError if no run fits."""
    for folder in runs():
        if not having or (folder / "scenarios" / having).exists():
            return folder
    what = f"run with the scenario {having!r}" if having else "run"
    raise StoreError(f"there is no {what} in {RUNS.absolute()}; name one with --run-dir, or make one with `rig run`")


def name_of_run(folder: Path) -> str:
    """Return how a command names a run; empty below runs/, where `rig replay` searches by default."""
    return "" if folder.parent == RUNS else str(folder)


def begin_of(folder: Path) -> tuple[datetime, str]:
    """Return when a run was begun, in local time, by its name or by its manifest if the user named it; and its name."""
    try:
        began = datetime.strptime(folder.name, NAME)  # noqa: DTZ007 - see NAME
    except ValueError:
        began = datetime.fromtimestamp((folder / "manifest.json").stat().st_mtime)  # noqa: DTZ006 - see NAME
    return began, folder.name
