"""mount(2) and umount2(2) from this process, with options."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rig.filesystems import kernel

MOUNT_POINT = "/mnt"
_RELEASE_LIMIT_S, _RELEASE_LOOK_S = 10, 0.01


def mount(device: str, filesystem: str, options: str = "", point: str = MOUNT_POINT) -> None:
    """Mount; raise OSError with the kernel's errno."""
    kernel.mount(device, filesystem, options, point)


def unmount(point: str = MOUNT_POINT) -> None:
    """Unmount; raise OSError with the kernel's errno."""
    kernel.unmount(point)


def release(point: str = MOUNT_POINT) -> None:
    """Unmount; kill any process that an engine has left behind with open files there. Raise OSError."""
    until_s = time.monotonic() + _RELEASE_LIMIT_S
    while True:
        try:
            return unmount(point)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until_s:
                raise
        for pid in holders(point) - {os.getpid()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_RELEASE_LOOK_S)


def holders(point: str) -> set[int]:
    """Return the processes that have a file below a directory open or mapped, or are in it."""
    return {
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if any(f"{place}/".startswith(f"{point}/") for place in _places(folder))
    }


def _places(process: Path) -> list[str]:
    paths = []
    with suppress(OSError):  # it has just ended
        for path in (process / "cwd", *(process / "fd").iterdir()):
            with suppress(FileNotFoundError):  # just closed, such as the descriptor that lists them
                paths.append(os.readlink(path))
        paths += [line.split(maxsplit=5)[-1] for line in (process / "maps").read_text().splitlines()]
    return paths


@contextmanager
def mount_point(device: str, filesystem: str, options: str = "") -> Iterator[str]:
    """Mount for the length of a block; the value is the mount point."""
    mount(device, filesystem, options)
    try:
        yield MOUNT_POINT
    finally:
        release()


def join_options(*options: str) -> str:
    """Return mount options as one word, without empty ones."""
    return ",".join(option for option in options if option)
