"""Experiments with a file system that need no database, each in a machine of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rig.machines.pool import Clones

_LIMIT_S = 180


def figures(machines: Clones, filesystem: str, name: str, package: str = "") -> Mapping[str, Any]:
    """Carry out an experiment (`rig.guest.fileprobe`) in a clone of a verifier; raise VmError if it fails."""
    with machines.clone() as machine:
        machine.send({"probe": {"filesystem": filesystem, "name": name, "package": package}})
        report: Mapping[str, Any] = machine.receive(_LIMIT_S)["figures"]
        return report
