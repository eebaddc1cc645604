"""Start a machine inside its sandbox. Run as a program: `python -I -S launcher.py ORDERS PROGRAM ARGUMENT...`.

ORDERS is JSON, made by `rig.sandbox.sandbox.Sandbox`. The interpreter imports next to nothing, because each machine
pays for it. Two processes stay as long as the machine, and end as it ends: this one, and its child, which is the first
process of the new process namespace. The machine is the child of that, because a first process is not ended by signals
of its own.

Each layer is applied even if another is missing on this host, which the orders must allow. The order matters: a step
comes before the one that forbids it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any, NoReturn

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from rig.sandbox import landlock, linux, seccomp

_NOBODY = 65534
_NAMESPACES = (
    linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_NEWNET
    | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP
)  # fmt: skip
# Where the new root is put together. Nobody else sees it there.
_NEW_ROOT = "/tmp"  # noqa: S108
_SCRATCH = "/dev/shm"  # noqa: S108 - in the new root
_KEPT_FLAGS = {os.ST_NOSUID: linux.MS_NOSUID, os.ST_NODEV: linux.MS_NODEV, os.ST_NOEXEC: linux.MS_NOEXEC}
_EXIT_NOT_STARTED = 125
# An exit status above it tells of a signal, as in a shell.
_SIGNALLED = 128
_DESCRIPTORS_MAX = 1 << 30


def main() -> NoReturn:
    """Become the parent of a machine."""
    orders: dict[str, Any] = json.loads(sys.argv[1])
    lacking: dict[str, str] = {}
    linux.die_with_parent(signal.SIGKILL)
    # The kernel tells of a parent that ends from now on.
    if os.getppid() != orders["parent"]:
        os._exit(_EXIT_NOT_STARTED)
    if (cpu := orders["cpu"]) is not None:
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # If the host runs out of memory, the machine goes first.
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    # An unprivileged user may be unable to reach this folder by its path.
    os.chdir(orders["cwd"])
    if os.geteuid() == 0:
        _apply(orders, lacking, "another user", lambda: _become_nobody(orders["groups"]))
    _apply(orders, lacking, "namespaces", _enter_namespaces)
    # A child cannot see whether a parent outside its process namespace is alive.
    parent = os.pidfd_open(os.getpid())
    first = os.fork()
    if first == 0:
        _become_first(orders, lacking, parent)
    os.closerange(3, _DESCRIPTORS_MAX)
    status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    _end_like(status - _SIGNALLED if status > _SIGNALLED else 0, status)


def _become_nobody(groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    linux.become_dumpable()
    linux.die_with_parent(signal.SIGKILL)


def _enter_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    linux.unshare(_NAMESPACES)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)


def _become_first(orders: dict[str, Any], lacking: dict[str, str], parent: int) -> NoReturn:
    """Become the first process of the namespace: start the machine, and end as it ends."""
    try:
        linux.die_with_parent(signal.SIGKILL)
        if select.select([parent], [], [], 0)[0]:
            os._exit(_EXIT_NOT_STARTED)
        os.close(parent)
        machine = os.fork()
        if machine == 0:
            linux.die_with_parent(signal.SIGKILL)
            _execute(orders, lacking)
        os.closerange(3, _DESCRIPTORS_MAX)
        while (ended := os.waitpid(-1, 0))[0] != machine:
            pass
        code = os.waitstatus_to_exitcode(ended[1])
        # Its end by a signal cannot be repeated here.
        os._exit(code if code >= 0 else _SIGNALLED - code)
    except OSError as error:
        text = str(error).replace("'.'", orders["cwd"])
        os.write(2, f"its sandbox could not be made: {text}\n".encode())
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _execute(orders: dict[str, Any], lacking: dict[str, str]) -> NoReturn:
    """Give up everything but what the orders grant, and execute the program."""
    program, *arguments = sys.argv[2:]
    granted = [(descriptor, right) for descriptor, right in orders["files"]]
    environment = {"TMPDIR": orders["scratch"], **orders["environment"]}
    limits = dict(orders["limits"])
    if "namespaces" not in lacking:
        _enter_root(orders)
        environment["TMPDIR"] = _SCRATCH
        # Without a user namespace of its own, the limit would count all processes of the user.
        limits["RLIMIT_NPROC"] = orders["processes_max"]
    for path, place, right in orders["paths"]:
        granted.append((_open("." if path == orders["cwd"] else path if "namespaces" in lacking else place), right))
    if orders["scratch_bytes"]:
        granted.append((_open(environment["TMPDIR"]), "scratch"))
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    linux.drop_capabilities()
    linux.forgo_privileges()
    _apply(orders, lacking, "Landlock", lambda: landlock.restrict(granted))
    _close_all_but([*orders["kept"], *(descriptor for descriptor, _ in orders["files"])])
    _apply(orders, lacking, "seccomp", lambda: linux.filter_system_calls(seccomp.program(orders["system_calls"])))
    if orders["says"]:
        os.write(1, json.dumps(lacking).encode())
    if missing := [f"{layer}: {reason}" for layer, reason in lacking.items() if layer not in orders["may_lack"]]:
        raise OSError(", ".join(missing))
    os.execve(program, [program, *arguments], environment)  # noqa: S606 - that is what it is for


def _enter_root(orders: dict[str, Any]) -> None:
    """Make a root directory of what was granted, /proc and a scratch folder, and nothing else."""
    paths = [(path, place) for path, place, _ in orders["paths"] if not place.startswith("/proc/")]
    sources = [(_open("." if path == orders["cwd"] else path), place) for path, place in paths]
    old_proc = _open("/proc")
    linux.mount_at("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount_at("tmpfs", _NEW_ROOT, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=755")
    for descriptor, place in sources:
        _bind(descriptor, _NEW_ROOT + place)
    for place, target in orders["links"]:
        os.symlink(target, _NEW_ROOT + place)
    os.mkdir(_NEW_ROOT + "/proc")
    try:
        linux.mount_at("proc", _NEW_ROOT + "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except OSError:
        # In a container, parts of /proc are covered, and the kernel lets nobody uncover them.
        linux.mount_at(f"/proc/self/fd/{old_proc}", _NEW_ROOT + "/proc", None, linux.MS_BIND | linux.MS_REC)
    os.close(old_proc)
    if orders["scratch_bytes"]:
        os.makedirs(_NEW_ROOT + _SCRATCH)
        options = f"size={orders['scratch_bytes']},mode=700"
        linux.mount_at("tmpfs", _NEW_ROOT + _SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    linux.make_root(_NEW_ROOT)
    _make_read_only("/")
    os.chdir(dict(paths).get(orders["cwd"], "/"))


def _bind(descriptor: int, target: str) -> None:
    """Show a folder, read-only, or a file of the host at a path in the new root."""
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    if is_folder:
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    linux.mount_at(f"/proc/self/fd/{descriptor}", target, None, linux.MS_BIND | linux.MS_REC)
    if is_folder:
        _make_read_only(target)
    os.close(descriptor)


def _make_read_only(target: str) -> None:
    # A remount in a user namespace must repeat these flags.
    flags = os.statvfs(target).f_flag
    kept = sum(flag for given, flag in _KEPT_FLAGS.items() if flags & given)
    linux.mount_at("none", target, None, linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | kept)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _close_all_but(descriptors: list[int]) -> None:
    begin = 3
    for descriptor in sorted({*descriptors, _DESCRIPTORS_MAX}):
        os.closerange(begin, descriptor)
        begin = descriptor + 1


def _apply(orders: dict[str, Any], lacking: dict[str, str], layer: str, step: Callable[[], None]) -> None:
    """Apply a layer, or note why it is missing."""
    if layer in orders["without"]:
        lacking[layer] = "left out"
        return
    try:
        step()
    except OSError as error:
        lacking[layer] = str(error)


def _end_like(number: int, status: int) -> NoReturn:
    """End by the signal that ended the machine, or else with its exit status."""
    if number:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(status)


if __name__ == "__main__":
    main()
