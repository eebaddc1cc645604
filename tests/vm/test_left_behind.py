"""No machine and no folder outlives the program that started it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.machines.limit import descendants
from rig.machines.template import Template

ROOT = Path(__file__).resolve().parents[2]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only read
PROC = Path("/proc")
_GONE_LIMIT_S = 5
_HOLD = """
import sys, time
from rig.contract.orders import Processor; from rig.images import image, recipes; from rig.machines import usermode
from rig.machines.argv import Role
from rig.machines.template import template

_, kind, ending = sys.argv
guest = image.build(recipes.recipe())
with (
    template(Role.VERIFIER, guest) if kind == "emulated" else usermode.user_mode(guest, (), Processor.PLAIN) as made,
    made.clone() as machine,
):
    print(machine.pid, flush=True)
    if ending == "exception":
        raise RuntimeError("in the block")
    if ending != "end":
        time.sleep(60)
"""


def launchers_of(folder: Path) -> list[Path]:
    """Return the processes that inherited this temporary folder, even if their parents have died."""
    found = []
    for process in PROC.iterdir():
        try:
            if process.name.isdigit() and os.fsencode(f"OF_TEST={folder}") in (process / "environ").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", ["emulated", "user-mode"])
@pytest.mark.parametrize("ending", ["end", "exception", "SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.representative
def test_no_machine_and_no_folder_outlives_a_program_that_ends_by(
    ending: str, kind: str, tmp_path: Path, verifier: Template
) -> None:
    assert verifier.folder.exists()  # so that the child need not boot one
    shared_memory = set(SHARED_MEMORY.iterdir())
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OF_TEST": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _HOLD, kind, ending]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as child:
        assert child.stdout
        machine = int(child.stdout.readline() or "0")
        assert machine, "the child did not get a clone"
        # The machine has no variable of ours. Its launcher has, and so would a program that it starts.
        started = set(descendants(PROC / str(machine)))
        if ending.startswith("SIG"):
            assert len(started) > (kind == "user-mode")
            assert len(launchers_of(tmp_path)) > 1
            child.send_signal(signal.Signals[ending])
        child.wait(20)
    assert (child.returncode == 0) is (ending == "end")

    def leftovers() -> list[Path]:
        return [process for process in {*started, *launchers_of(tmp_path)} if process.exists()]

    deadline = time.monotonic() + _GONE_LIMIT_S
    while leftovers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [] == leftovers()
    assert [] == [path.name for path in tmp_path.iterdir()]
    assert [] == [path for path in set(SHARED_MEMORY.iterdir()) - shared_memory if "rig" in path.name]
