"""Host services: one gateway for subprocesses, and files that are written durably or not at all.

`run` is the only way the host side starts a short-lived program. It takes a list, never a shell string; writes a line
to the debug log that can be pasted; has a time limit, after which the program and everything it started are killed; and
raises a `HostError` that says what to do. Virtual machines live longer and have their own module.
`atomic_write` leaves either the old or the new content under the name, whatever happens, and returns when both the file
and its name are on the disk. `Progress` is what everything that takes long reports to.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rig.contract.errors import HostError, StoreError

_log = logging.getLogger(__name__)


class Progress(Protocol):
    """Receives the progress of what takes long; called from several threads."""

    def says(self, text: str, /) -> None:
        """Show a line of text."""

    def planned(self, count: int, /) -> None:
        """Expect `count` more cuts, trials or probes."""

    def judged(self, count: int, /) -> None:
        """Count cuts, trials or probes that are over."""


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
_MIB = 1 << 20
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


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write at `path`, which need not exist yet."""
    facts = os.statvfs(_existing(path))
    return facts.f_bavail * facts.f_frsize


def require_writable(folder: Path, remedy: str) -> None:
    """Raise HostError, with the remedy, unless this user may write in `folder` or could create it."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            pass
    except OSError as error:
        raise HostError(f"nothing can be written in {folder}: {error.strerror}; {remedy}") from None


def require_space(path: Path, needed_bytes: int, what: str) -> None:
    """Raise HostError unless `needed_bytes` are free at `path`, before anything is written; `what` names their use."""
    available_bytes = free_bytes(path)
    if available_bytes >= needed_bytes:
        return
    raise HostError(
        f"{what} needs {_mib(needed_bytes)} in {path}, which has {_mib(available_bytes)} free; free "
        f"{_mib(needed_bytes - available_bytes)} there, or choose a directory on another disk. Nothing was written."
    )


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


def atomic_write(path: Path, data: bytes) -> None:
    """Write `data` to `path` durably: afterwards the file holds either all of it or its old content.

    Write it to a temporary name in the same directory, sync and rename it, and sync the directory.
    Raise StoreError if that fails; the message says what the file holds now.
    """
    kept = "its earlier content is unchanged" if path.exists() else "it was not created"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            _write_synced(temporary, data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        kept = "it has its new content, which may not survive a power cut yet"
        _sync_directory(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} could not be written ({len(data)} bytes): {error.strerror}; {kept}. {_remedy(error, path)}"
        ) from error


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists and is accessible."""
    existing = path.absolute()
    # Up to Python 3.13 Path.exists() raises for a path that is not accessible.
    while not os.path.exists(existing):  # noqa: PTH110
        existing = existing.parent
    return existing


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


def _mib(size_bytes: int) -> str:
    return f"{-(-size_bytes // _MIB)} MiB"


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remedy(error: OSError, path: Path) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"The disk is full: free some space in {path.parent}, then run the same command again."
    if error.errno == errno.EFBIG:
        return "The limit on the size of files is too low: raise it (ulimit -f), then run the same command again."
    return f"Check that {path.parent} is a directory to which this user may write."
