"""One gateway for subprocesses, and how much memory they can get.

`run` is the only way the host side starts a short-lived program. It takes a list, never a shell string; writes a line
to the debug log that can be pasted; has a time limit, after which the program and everything it started are killed; and
raises a `HostError` that says what to do. Virtual machines live longer and have their own module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rig.contract.errors import HostError

_log = logging.getLogger(__name__)


# Program -> Debian package, for the message that a program is missing; bootstrap.sh installs what every clone needs.
PACKAGE_OF_PROGRAM: Mapping[str, str] = {
    "chromium": "chromium",
    "cpio": "cpio",
    "debugfs": "e2fsprogs",
    "gcc": "gcc",
    "git": "git",
    "ldconfig": "libc-bin",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "npm": "npm",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "ruby": "ruby",
    "unshare": "util-linux",
    "vagrant": "vagrant",
    "zstd": "zstd",
}

# On Debian these are not on a user's PATH, but mke2fs and others are there and need no privilege.
_SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_STDERR_LINES_SHOWN = 8
_MEMORY = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    input: bytes | None = None,  # noqa: A002 - the name that subprocess.run has for it
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> bytes:
    """Run a program to its end and return its standard output.

    `argv[0]` is looked up on PATH and in the system directories. `env` is added to our environment, and the locale set
    to English. Without `input` the program reads an empty standard input.
    Raise HostError if the program does not exist, exits with a status other than 0, or runs longer than `timeout_s`.
    """
    if isinstance(argv, str) or not argv:
        raise TypeError(f"argv is a list of words that begins with a program, not {argv!r}")
    program = argv[0]
    search_path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_DIRECTORIES])
    executable = shutil.which(program, path=search_path)
    if executable is None:
        raise HostError(f"the program {program} is not installed: {_how_to_install(program)}")
    _log.debug("%s", _pasteable(argv, env, cwd))
    try:
        process = subprocess.Popen(
            [executable, *argv[1:]],
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": search_path, "LC_ALL": "C.UTF-8", **(env or {})},
            cwd=cwd,
            # A separate process group, so that everything the program started can be killed with it.
            process_group=0,
        )
    except OSError as error:
        raise HostError(
            f"{program} could not be started: {error}; the command was: {_pasteable(argv, env, cwd)}"
        ) from error
    with process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _kill_group(process)
            _, stderr = process.communicate()
            raise HostError(
                f"{program} was not done after its limit of {timeout_s:g} s and was killed"
                f"{_last_lines(stderr)}\nto see what it waits for, run: {_pasteable(argv, env, cwd)}"
            ) from error
        except BaseException:
            _kill_group(process)
            # An interrupted Popen waits only a quarter of a second, and a sync may take longer to end.
            process.wait()
            raise
    if process.returncode != 0:
        raise HostError(
            f"{program} {_ending(process.returncode)}{_last_lines(stderr)}\n"
            f"to see it again, run: {_pasteable(argv, env, cwd)}"
        )
    return stdout


def available_memory_bytes() -> int:
    """Return how much memory programs can get without swapping, which includes the page cache (proc(5), MemAvailable).

    sysconf counts only memory without any use as available: next to none on a host that has read many files. A
    container or service may get less than the host has: the limits of its control groups count too.
    """
    fields = dict(line.split(":") for line in _MEMORY.read_text().splitlines())
    return min([int(fields["MemAvailable"].split()[0]) << 10, *_left_to_our_groups()])


def _left_to_our_groups() -> Iterator[int]:
    """Yield what each of our control groups may still take; their page cache is given back when memory is short.

    Source: Documentation/admin-guide/cgroup-v2.rst, memory.max, memory.current and memory.stat.
    """
    own = next((line[3:] for line in _GROUPS.read_text().splitlines() if line.startswith("0::")), "/")
    folder = _GROUP_ROOT / own.lstrip("/")
    for group in (folder, *folder.parents):
        if not group.is_relative_to(_GROUP_ROOT):
            return
        try:
            most = (group / "memory.max").read_text().strip()
            current = int((group / "memory.current").read_text())
            counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except OSError:  # the root has no limit, and version 1 has other files
            continue
        if most != "max":
            yield int(most) - current + int(counts["inactive_file"]) + int(counts["active_file"])


def _pasteable(argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> str:
    line = shlex.join([*(["env", *(f"{name}={value}" for name, value in env.items())] if env else []), *argv])
    return f"cd {shlex.quote(str(cwd))} && {line}" if cwd else line


def _how_to_install(program: str) -> str:
    package = PACKAGE_OF_PROGRAM.get(Path(program).name)
    if package is None:
        return "install it, or put its directory on PATH"
    return f"on Debian and Ubuntu it is in the package {package} (apt-get install --no-install-recommends {package})"


def _ending(returncode: int) -> str:
    if returncode > 0:
        return f"failed with exit status {returncode}"
    return f"was killed by signal {-returncode} ({signal.strsignal(-returncode)})"


def _last_lines(stderr: bytes) -> str:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "; it wrote nothing to its standard error"
    return "; its last words:\n" + "\n".join(f"  {line}" for line in lines[-_STDERR_LINES_SHOWN:])


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
