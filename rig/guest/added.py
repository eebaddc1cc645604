"""Code that a machine gets after it has booted: an archive on the recording's disk, unpacked next to our code."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

from rig.guest.devices import disks

_FOLDER = Path("/run")


def unpack() -> None:
    """Unpack the archive over existing files, and drop the disk's cache: the disk differs from clone to clone."""
    with open(disks.RECORDING_DISK, "rb") as disk:
        unpacked = subprocess.run(
            ["busybox", "cpio", "-i", "-d", "-u"], stdin=disk, cwd=_FOLDER, capture_output=True, check=False
        )
        disks.forget(disk.fileno())
    if unpacked.returncode:
        raise OSError(f"what was added does not unpack: {unpacked.stderr.decode(errors='replace')}")
    importlib.invalidate_caches()
