"""Limits on real machines: one that spins, halts or is stopped is late; one on a busy host is not.

The guests are boot sectors, the program that a PC reads from its first disk.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig.contract.errors import VmError
from rig.machines import limit as limits
from rig.machines.machine import Machine, start
from rig.machines.memoryfile import by_descriptor
from rig.machines.template import PROGRAM
from rig.sandbox.sandbox import Sandbox, of_system

_SPIN = bytes.fromhex("ebfe")  # jmp $
_HALT = bytes.fromhex("faf4ebfd")  # cli; hlt; jmp to the hlt
_TIMES = re.compile(r"it ran for (\S+) s and waited (\S+) s for a processor, in (\S+) s by the wall clock")


@contextmanager
def guest(program: bytes, folder: Path) -> Iterator[Machine]:
    disk = folder / "disk"
    disk.write_bytes(program.ljust(510, b"\0") + b"\x55\xaa")

    emulator = shutil.which(PROGRAM) or PROGRAM
    paths, links = of_system(Path(emulator))
    with open(disk, "r+b") as file:

        def command(channel_fd: int, monitor_fd: int) -> list[str]:
            return [
                emulator, "-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-m", "16",
                "-drive", f"file={by_descriptor(file)},format=raw,if=ide",
                "-device", "virtio-serial-pci", "-chardev", f"socket,id=channel,fd={channel_fd}",
                "-device", "virtserialport,chardev=channel",
                "-chardev", f"socket,id=monitor,fd={monitor_fd}", "-mon", "chardev=monitor,mode=control",
            ]  # fmt: skip

        sandbox = Sandbox("emulator", 16 << 20, paths, {file.fileno(): "write"}, links=links)
        with start(command, sandbox, console=folder / "console", disk=file, one_cpu=False) as machine:
            yield machine


def times(error: pytest.ExceptionInfo[TimeoutError]) -> tuple[float, ...]:
    found = _TIMES.search(str(error.value))
    assert found, error.value
    return tuple(map(float, found.groups()))


def test_a_guest_that_spins_is_late_by_its_processor_time(tmp_path: Path) -> None:
    with guest(_SPIN, tmp_path) as machine, pytest.raises(TimeoutError, match="no answer within 3 s: ") as error:
        machine.receive(3)
    assert times(error)[0] > 1.5


def test_a_guest_that_halts_is_late_too(tmp_path: Path) -> None:
    with guest(_HALT, tmp_path) as machine:
        # The firmware runs first.
        with pytest.raises(TimeoutError):
            machine.receive(5)
        with pytest.raises(TimeoutError, match="no answer within 2 s: ") as error:
            machine.receive(2)
    assert times(error)[0] < 1


def test_a_machine_that_is_stopped_is_late_too(tmp_path: Path) -> None:
    with guest(_SPIN, tmp_path) as machine:
        os.kill(machine.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError, match=r"no answer within 2 s: .*still running") as error:
            machine.receive(2)
        assert times(error)[0] < 0.5
        with pytest.raises(VmError, match=r"no READY within 2 s: .*still running"):
            machine.wait_for_console("READY", "FAILED", 2)


@pytest.mark.usefixtures("crowded")
def test_a_machine_on_a_busy_processor_gets_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This host may be busy already.
    monkeypatch.setattr(limits, "_WALL_FACTOR", 100)
    with guest(_SPIN, tmp_path) as machine, pytest.raises(TimeoutError, match="no answer within 2 s: ") as error:
        machine.receive(2)
    processor_s, waited_s, wall_s = times(error)
    assert processor_s < 2.5
    assert waited_s > 2
    assert wall_s > 4


@pytest.fixture
def crowded() -> Iterator[None]:
    """Share one processor with three programs that never sleep."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    # One session each: a kernel that divides processor time among sessions then gives each program a full share.
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin, start_new_session=True) for _ in range(3)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, before)
