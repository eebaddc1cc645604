"""A folder with little space, for root and for every other user."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_MOUNTED = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && shift && exec "$@"'


def little_room(folder: Path, size_bytes: int) -> tuple[list[str], int]:
    """Return a command prefix that limits the space in `folder`, and the error number of a write beyond the limit.

    The prefix mounts a small disk in a mount namespace that ends with the command; users other than root get it in a
    user namespace. On a machine that refuses both it limits the size of files.
    """
    for own in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        prefix = ["unshare", *own, "sh", "-c", _MOUNTED, str(size_bytes), str(folder)]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix, errno.ENOSPC
    return ["prlimit", f"--fsize={size_bytes}:"], errno.EFBIG


def output(argv: list[str]) -> list[str]:
    """Run a Python program that may import our modules, and return the lines it printed."""
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (0, "") == (done.returncode, done.stderr), done.stderr
    return done.stdout.splitlines()
