"""Carry out one experiment with a file system in this guest, on two empty disks in its RAM."""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

from rig.filesystems import filesystem_named
from rig.guest.devices import disks

_DISK_COUNT = 2
# Sparse: only what is written takes memory.
_DISK_MIB = 256


def carried_out(filesystem: str, name: str) -> dict[str, Any]:
    """Return the figures of an experiment in the module `probes` of a file system."""
    disks.require_modules(filesystem_named(filesystem).modules)
    probes = importlib.import_module(f"rig.filesystems.{filesystem}probes").PROBES
    nodes = [disks.add_cached_disk(number, _DISK_MIB) for number in range(_DISK_COUNT)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            return dict(probes[name](nodes, folder))
    finally:
        disks.remove_cached_disks()
