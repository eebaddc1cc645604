"""Trials on the user's own disk, as that user.

All files lie in one folder below the user's directory. The folder is removed at the end, even after an error or an
interrupt.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rig.contract.errors import HostError
from rig.host import processes
from rig.host.files import require_space, require_writable
from rig.speed.place import Place, place_of
from rig.speed.session import Survey
from rig.speed.trials import disks, trial
from rig.speed.trials.probe import probe
from rig.speed.trials.trial import TrialOrders

_TRIAL_LIMIT_S = 1800
# For the processes, the probe, and the file system's own needs.
_SPACE_BYTES = 256 << 20


class OnDisk:
    """A folder of the rig on the user's disk."""

    def __init__(self, place: Place, scratch: Path, elsewhere: Path) -> None:
        """Take the place, a folder there, and a folder for unmeasured files, such as the sockets of a server."""
        self._place = place
        self._scratch = scratch
        self.environment = {"TMPDIR": str(elsewhere)}

    def survey(self) -> Survey:
        """Measure a sync, and return the facts about the place."""
        place = self._place
        probed = probe(self._scratch, place.disks)
        described = [disks.describe(disk) for disk in place.disks]
        return Survey(
            place.filesystem, place.options, described, _versions(), probed, (*place.warnings, *probed.warnings)
        )

    def obstacles(self, orders: Mapping[str, TrialOrders]) -> dict[str, str]:
        """Return which trials cannot be carried out here, and why."""
        return {arm: why for arm, order in orders.items() if (why := trial.obstacle(order, str(self._scratch)))}

    def carry_out(self, orders: TrialOrders) -> dict[str, Any]:
        """Carry out a trial in a process of its own; return its facts, or `error` with the reason."""
        folder = self._scratch / "trial"
        folder.mkdir()
        message = {"orders": asdict(orders), "directory": str(folder), "disks": list(map(str, self._place.disks))}
        command = [sys.executable, "-m", trial.__name__]
        try:
            text = json.dumps(message).encode()
            output = processes.run(command, timeout_s=_TRIAL_LIMIT_S, input=text, env=self.environment)
        except HostError as error:
            return {"error": str(error)}
        finally:
            shutil.rmtree(folder)
        facts: dict[str, Any] = json.loads(output)
        return facts


@contextmanager
def on_disk(folder: Path, needed_bytes: int) -> Iterator[OnDisk]:
    """Give a bench in a folder below the user's directory for the length of a block, and leave nothing there.

    Raise UsageError for a place that has no disk, HostError if it lacks space or permission.
    """
    place = place_of(folder)
    require_writable(folder, "choose a directory that is yours: rig speed --dir PATH")
    require_space(folder, _SPACE_BYTES + needed_bytes, "measuring speed")
    made = Path(tempfile.mkdtemp(prefix="rig-speed-", dir=folder))
    elsewhere = Path(tempfile.mkdtemp(prefix="rig-speed-"))
    for each in (made, elsewhere):
        # A server that refuses to run as root runs as another user, who must be able to reach its files.
        each.chmod(0o711)
    try:
        yield OnDisk(place, made, elsewhere)
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)
        shutil.rmtree(made, ignore_errors=True)
        if made.exists():
            raise HostError(f"{made} could not be removed completely; remove it: rm -r {made}")


def _versions() -> Mapping[str, str]:
    return {
        "rig": version("powercut-rig"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
