"""What a run inherits from the login and the host, and whether that is enough: limits, and settings of the kernel.

Users meet these before anything else: a service with a small limit, a container with a small /dev/shm.
`.ci/login` gives our own tests the values of a fresh login on Debian.
"""

from __future__ import annotations

import mmap
import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rig.host.files import free_bytes

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - one file without a name is mapped there
_SHARED_MEMORY_BYTES = 640 << 20
# A campaign has some 80 open files at most (BENCHMARKS.md).
_OPEN_FILES = 512
_PROCESSES = 512
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
# Documentation/admin-guide/LSM/Yama.rst: from 2 on, a process may not trace even its own children.
_PTRACE_SCOPE_MAX = 1
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
# Documentation/mm/overcommit-accounting.rst: 2 refuses memory that is reserved and never used.
_OVERCOMMIT_NEVER = 2


@dataclass(frozen=True)
class Check:
    """The result of one check; `detail` says what was found, or how to get it.

    `package` is the Debian package that contains it, if there is one.
    """

    ok: bool
    what: str
    detail: str
    optional: bool = False
    package: str = ""


def examine() -> Iterator[Check]:
    """Check everything inherited, and yield each result."""
    yield _limit("open files", resource.RLIMIT_NOFILE, _OPEN_FILES, f"ulimit -n {_OPEN_FILES}")
    yield _limit("processes", resource.RLIMIT_NPROC, _PROCESSES, f"ulimit -u {_PROCESSES}")
    yield _limit("address space", resource.RLIMIT_AS, resource.RLIM_INFINITY, "ulimit -v unlimited")
    yield _limit("file size", resource.RLIMIT_FSIZE, resource.RLIM_INFINITY, "ulimit -f unlimited")
    yield _shared_memory()
    yield _kernel_setting(
        _PTRACE_SCOPE, _PTRACE_SCOPE_MAX, "user-mode machines trace their own processes; without them emulation is used"
    )
    yield _kernel_setting(
        _OVERCOMMIT, _OVERCOMMIT_NEVER - 1, "machines reserve more memory than they use; some may not start"
    )


def _limit(what: str, number: int, least: int, fix: str) -> Check:
    soft, _ = resource.getrlimit(number)
    ok = soft == resource.RLIM_INFINITY or (least != resource.RLIM_INFINITY and soft >= least)
    words = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    return Check(ok, what, f"the limit is {words}" if ok else f"the limit is {words}; raise it: {fix}")


def _shared_memory() -> Check:
    """Check that the memory of machines can lie in /dev/shm: it needs room, and code there must be executable."""
    what = str(_SHARED_MEMORY)
    try:
        free = free_bytes(_SHARED_MEMORY)
        with tempfile.TemporaryFile(dir=_SHARED_MEMORY) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError as error:
        detail = (
            f"{os.strerror(error.errno or 0)}; mount it as a tmpfs without noexec, or user-mode machines cannot start"
        )
        return Check(ok=False, what=what, detail=detail, optional=True)
    detail = f"{free >> 20} MiB free; each machine needs up to {_SHARED_MEMORY_BYTES >> 20} MiB there, or in the cache"
    return Check(free >= _SHARED_MEMORY_BYTES, what, detail, optional=True)


def _kernel_setting(path: Path, most: int, why: str) -> Check:
    what = path.relative_to("/proc/sys").as_posix().replace("/", ".")
    try:
        value = int(path.read_text())
    except OSError:  # this kernel was built without it
        return Check(ok=True, what=what, detail="this kernel does not have it")
    detail = str(value) if value <= most else f"{value}, where at most {most} is needed: {why}"
    return Check(value <= most, what, detail, optional=True)
