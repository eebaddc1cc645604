"""The sandbox of machines, as the host side sees it: what one is granted, and which layers this host has.

Five layers; each holds without the others: no new privileges and no capabilities; limits on resources; a
filter of system calls; Landlock; namespaces. What they keep out is in docs/explanation/security.md. `launcher.py`
applies them in a process of its own.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rig.contract.errors import HostError
from rig.host import processes

# On top of the guest's RAM: the emulator itself, translated code and thread stacks.
_OVERHEAD_BYTES = 4096 << 20
# A user-mode machine has a process for each process of the guest. The limit counts the processes of one user namespace.
_PROCESSES_MAX = 1024
_PROBE_LIMIT_S = 20
_LAUNCHER = Path(__file__).with_name("launcher.py")
# What a dynamically linked program of the system needs.
_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin")
# The same of a program elsewhere, next to its folder.
_AROUND = ("lib", "lib64", "libexec", "share/qemu")
LAYERS = ("namespaces", "Landlock", "seccomp", "another user")
# Set by `rig --require-sandbox`; a test runner sets it by itself.
REQUIRED = "RIG_REQUIRE_SANDBOX"


@dataclass(frozen=True)
class Sandbox:
    """What a machine is granted on this host."""

    # A key of `rig.sandbox.seccomp.SYSTEM_CALLS`.
    system_calls: str
    memory_bytes: int
    # What it may open: each path here, the same path as the machine has it, and a key of `rig.sandbox.landlock.RIGHTS`.
    paths: Sequence[tuple[str, str, str]]
    # Open files that the machine inherits and may open again, each with such a key.
    files: Mapping[int, str]
    # What else it inherits: its channel, for example.
    kept: Sequence[int] = ()
    # Symbolic links for the machine.
    links: Mapping[str, str] = field(default_factory=dict)
    # The folder that the program is started in: one of the paths, or the root.
    cwd: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    # How much it may write into files without a name, and the folder for them if it has no namespaces of its own.
    scratch_bytes: int = 0
    scratch: str = "/"
    # The processor that it is kept on.
    cpu: int | None = None

    @property
    def descriptors(self) -> list[int]:
        """Return what the launcher must inherit."""
        return [*self.files, *self.kept]

    def open_to_nobody(self) -> None:
        """Let the user who stands in for root open the files again. Who else reaches them, their folders decide."""
        if os.geteuid() == 0:
            for descriptor, right in self.files.items():
                wanted = 0o666 if right == "write" else 0o444
                mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                if mode | wanted != mode:
                    os.fchmod(descriptor, mode | wanted)

    def command(self, program: Sequence[str], *, without: Sequence[str] = (), says: bool = False) -> list[str]:
        """Return the command with which this process starts a program, unless a layer is missing that this host has.

        `without` leaves out layers, for tests. If the launcher `says` why layers are missing, as a JSON object on its
        standard output, any may be.
        """
        may_lack = [*LAYERS] if says else []
        if not says and not os.environ.get(REQUIRED):
            may_lack = [*lacking(), *without]
        paths = [entry for entry in self.paths if Path(entry[0]).exists()]
        orders = {
            "system_calls": self.system_calls,
            "paths": paths,
            "files": list(self.files.items()),
            "kept": list(self.kept),
            "links": list(self.links.items()),
            "cwd": self.cwd,
            "environment": dict(self.environment),
            "scratch_bytes": self.scratch_bytes,
            "scratch": self.scratch,
            # Those who may open a device are often a group.
            "groups": sorted({Path(path).stat().st_gid for path, _, right in paths if right == "device"}),
            "limits": {
                "RLIMIT_CORE": 0,
                "RLIMIT_AS": self.memory_bytes + _OVERHEAD_BYTES,
                # A user-mode machine's RAM begins somewhere in a sparse file.
                "RLIMIT_FSIZE": self.memory_bytes + _OVERHEAD_BYTES,
            },
            "processes_max": _PROCESSES_MAX,
            "cpu": self.cpu,
            "without": list(without),
            "may_lack": may_lack,
            "says": says,
            # If the launcher has another parent, this process has died, and nothing may start.
            "parent": os.getpid(),
        }
        return [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(orders), *program]


def of_system(program: Path) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
    """Return the paths and links for a program of this host: what the system has, and what lies around the program."""
    system = [Path(name) for name in _SYSTEM_FOLDERS]
    links = {str(path): str(path.readlink()) for path in system if path.is_symlink()}
    folders = [path for path in system if path.is_dir() and not path.is_symlink()]
    if not any(program.is_relative_to(folder) for folder in system):
        folders += [program.parent, *(program.parent.parent / name for name in _AROUND)]
    return [(str(path), str(path), "programs") for path in folders], links


def require() -> None:
    """Have no machine start from now on if a layer is missing; raise HostError if one is."""
    if missing := lacking():
        reasons = "; ".join(f"no {layer}: {reason}" for layer, reason in sorted(missing.items()))
        raise HostError(
            f"the sandbox of machines is not whole here ({reasons}); docs/explanation/security.md says more"
        )
    os.environ[REQUIRED] = "1"


@cache
def lacking() -> Mapping[str, str]:
    """Return why layers are missing on this host, by layer; empty if all are there. Raises HostError."""
    program = Path("/usr/bin/true")
    paths, links = of_system(program)
    command = Sandbox("emulator", 0, paths, {}, links=links).command([str(program)], says=True)
    missing: dict[str, str] = json.loads(processes.run(command, timeout_s=_PROBE_LIMIT_S))
    return missing
