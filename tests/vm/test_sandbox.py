"""A machine that has been conquered can do nothing to its host, whichever layer of its sandbox is missing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rig.host import processes
from rig.images import cpio
from rig.images.usermodekernel import PROGRAM
from rig.machines import template as vm_template
from rig.machines import usermode
from rig.machines.memoryfile import memory_file
from rig.machines.pool import Clones
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.sandbox import sandbox
from rig.sandbox.sandbox import Sandbox

_LIMIT_S = 60
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_PROCESSES_TRIED = 3000

# Without a layer, these are left to the layers of the host: permissions, and what the kernel grants to nobody.
_ONLY = {
    "namespaces": {"fork without end", "fill /dev/shm"},
    "Landlock": {"write into a file that it may read", "make a file that it may read writable"},
    "seccomp": {
        "userfaultfd", "io_uring_setup", "unshare", "clone into a user namespace", "perf_event_open", "add_key", "bpf",
        "a system call of x32", "a system call of i386", "clone3", "listen", "connect by UDP", "open a process outside",
        "open a packet socket", "make a file that it may read writable", "mount",
    },
}  # fmt: skip


def facts(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}


def family(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from family(int(child))


@pytest.mark.representative
def test_a_machine_has_no_privileges_no_user_of_ours_and_only_the_files_that_it_was_given(
    checker: Clones, recorder: Template
) -> None:
    with checker.clone() as verifying, recorder.clone() as recording:
        for machine in (verifying, recording):
            for process in family(machine.pid):
                status = facts(process)
                assert ("1", "2") == (status["NoNewPrivs"], status["Seccomp"])
                assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
                assert "0" not in status["Uid"].split()
                for name in _NAMESPACES:
                    ours, theirs = (Path(f"/proc/{pid}/ns/{name}").readlink() for pid in (os.getpid(), process))
                    assert ours != theirs, name
            opened = {str(path.readlink()) for path in Path(f"/proc/{machine.pid}/fd").iterdir()}
            files = {path for path in opened if path.startswith("/") and not path.startswith("/memfd:")}
            assert all(re.search(r"/(images|templates)/|^/dev/(null|random|shm/#\d+)", path) for path in files), files


@dataclass(frozen=True)
class Victim:
    """What a conquered machine is after."""

    secret: Path
    folder: Path
    process: subprocess.Popen[bytes]
    port: int
    path: Path
    name: str

    @property
    def words(self) -> tuple[object, ...]:
        """What `conquered.c` knows about them."""
        return self.secret, self.folder, self.process.pid, self.port, self.path, self.name


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    secret = tmp_path / "secret"
    secret.write_text("the user's own")
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o777)
    # Any user that a machine runs as may reach them, as far as permissions go.
    for path in (*tmp_path.parents, tmp_path, folder):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o755)
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ends = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        name = f"rig-victim-{os.getpid()}"
        for end, address in zip(ends, (str(tmp_path / "socket"), f"\0{name}"), strict=True):
            end.bind(address)
            end.listen()
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        stack.callback(process.kill)
        yield Victim(secret, folder, process, port.getsockname()[1], tmp_path / "socket", name)


def compile_program(name: str, folder: Path) -> Path:
    source = Path(__file__).with_name(f"{name}.c")
    words = ["cc", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(folder / name), str(source)]
    processes.run(words, timeout_s=_LIMIT_S)
    return folder / name


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conquered")
    folder.chmod(0o755)
    return compile_program("conquered", folder).rename(folder / PROGRAM)


@pytest.fixture(params=["emulated", "user-mode"])
def confined(
    request: pytest.FixtureRequest, program: Path, verifier: Template, user_mode: UserMode, tmp_path: Path
) -> Iterator[tuple[Sandbox, int]]:
    """The sandbox of a kind of machine in which the program has the machine's place, and a file that it may read."""
    (tmp_path / "given").write_bytes(b"given")
    with open(tmp_path / "given", "rb") as file:
        files = {file.fileno(): "read"}
        if request.param == "emulated":
            box = vm_template._sandbox(verifier.spec, files)
            around = [(str(program.parent), "/conquered", "programs")]
            yield replace(box, paths=[*box.paths, *around], cwd=str(program.parent)), file.fileno()
        else:
            kernel = shutil.copytree(user_mode.kernel.folder, tmp_path / "kernel")
            shutil.copy(program, kernel / PROGRAM)
            yield replace(user_mode, kernel=replace(user_mode.kernel, folder=kernel))._sandbox(files), file.fileno()


@pytest.mark.parametrize("without", ["nothing", "namespaces", "Landlock", "seccomp"])
def test_a_conquered_machine_is_refused_everything(without: str, confined: tuple[Sandbox, int], victim: Victim) -> None:
    with memory_file("report") as report:
        box, given = confined
        box = replace(box, files={**box.files, report.fileno(): "write"})
        tried = 0 if without == "namespaces" else _PROCESSES_TRIED
        words = [report.fileno(), given, *victim.words, tried]
        box.open_to_nobody()
        command = box.command([f"./{PROGRAM}", *map(str, words)], without=[without])
        ended = subprocess.run(
            command,
            pass_fds=box.descriptors,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            start_new_session=True,
        )
        report.seek(0)
        attempts = report.read().decode().splitlines()
    assert (0, ["end"]) == (ended.returncode, attempts[-1:]), (ended.stderr, attempts)
    assert len(attempts) > 40
    done = {line.partition(":")[0] for line in attempts[:-1] if ": refused" not in line}
    assert done <= _ONLY.get(without, set()), attempts
    assert victim.process.poll() is None
    assert [] == list(victim.folder.iterdir())


def test_a_hostile_guest_reaches_nothing_through_the_kernel_s_own_devices(
    victim: Victim, user_mode: UserMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compile_program("hostile_init", tmp_path)
    (tmp_path / "initrd").write_bytes(cpio.archive({"init": (program.read_bytes(), 0o755), "dev/.keep": (b"", 0o644)}))
    given = usermode._command
    monkeypatch.setattr(usermode, "_command", lambda *fds: [*given(*fds), f"SECRET={victim.secret}"])
    monkeypatch.setattr(usermode, "READY", "END")
    with replace(user_mode, initrd=tmp_path / "initrd").clone() as machine:
        said = machine.console_text()
        sockets = Path(f"/proc/{machine.pid}/net/unix").read_text().splitlines()[1:]
    outcome = dict(
        line.strip().split(": ")
        for line in said.splitlines()
        if re.match(r"[a-z][^:]*: [A-Zd]", line) and "_" not in line
    )
    assert "done" == outcome.pop("mount the host's files"), "hostfs is built into this kernel, so the sandbox must hold"
    # What is there, it may open only by name.
    assert ["/host has:", "/host/kernel has:"] == [line.strip() for line in said.splitlines() if " has:" in line]
    assert not [line for line in sockets if line.split()[7:]], "a socket with a name"
    assert 10 == len(outcome)
    assert "done" not in outcome.values(), said


def test_the_attempts_succeed_where_nothing_confines_them(program: Path, victim: Victim, tmp_path: Path) -> None:
    (tmp_path / "given").touch()
    with memory_file("report") as report, open(tmp_path / "given", "rb") as given:
        fds = [report.fileno(), given.fileno()]
        subprocess.run(
            [program, *map(str, [*fds, *victim.words, 0])], pass_fds=fds, timeout=_LIMIT_S, check=False, cwd=tmp_path
        )
        report.seek(0)
        attempts = report.read().decode()
    for attempt in (
        "read a secret", "read a secret by a relative path", "list the user's folder", "write into the user's folder",
        "write beside its own program", "make a folder", "make a link", "connect to a TCP port", "connect by UDP",
        "connect to a socket of the user", "connect to an abstract socket", "listen", "signal a process outside",
        "open a process outside",
    ):  # fmt: skip
        assert f"{attempt}: done" in attempts, attempts


@pytest.mark.representative
def test_a_required_sandbox_that_lacks_a_layer_starts_nothing(
    verifier: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.REQUIRED, "1")
    box = vm_template._sandbox(verifier.spec, {})
    for layer in ("namespaces", "Landlock", "seccomp"):
        command = box.command(["/usr/bin/true"], without=[layer])
        ended = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False, text=True)
        assert (125, f"its sandbox could not be made: {layer}: left out\n") == (ended.returncode, ended.stderr)
    command = box.command(["/usr/bin/true"])
    assert 0 == subprocess.run(command, timeout=_LIMIT_S, check=False).returncode


def test_a_machine_ends_as_its_program_ends(user_mode: UserMode) -> None:
    """The kernel of a user-mode machine may send signals, so its sandbox is the one to show that."""
    paths, links = sandbox.of_system(Path("/usr/bin/dash"))
    box = replace(user_mode._sandbox({}), paths=paths, links=links, cwd="/")
    for script, status in (("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9)):
        assert status == subprocess.run(box.command(["/usr/bin/dash", "-c", script]), check=False).returncode
