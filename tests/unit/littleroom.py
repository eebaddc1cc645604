"""A place where little fits, for root and for everyone else."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MOUNTED = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && shift && exec "$@"'


def little_room(folder: Path, size_bytes: int) -> tuple[list[str], int]:
    """Return what to put before a command so that only so much fits in `folder`, and the error number it then meets.

    That is a small disk in a mount namespace, which ends with the command; everyone may have one in a user namespace.
    A machine that refuses both still limits how large a file gets.
    """
    for own in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        prefix = ["unshare", *own, "sh", "-c", _MOUNTED, str(size_bytes), str(folder)]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix, errno.ENOSPC
    return ["prlimit", f"--fsize={size_bytes}:"], errno.EFBIG


def output(argv: list[str]) -> list[str]:
    """Run a Python program that may import what is ours, and return the lines it printed."""
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (0, "") == (done.returncode, done.stderr), done.stderr
    return done.stdout.splitlines()
