"""Check that QEMU is installed and new enough for the rig."""

from __future__ import annotations

import re

from rig.contract.errors import HostError
from rig.machines.template import qemu_version

_QEMU_OLDEST = (6, 2)


def require_qemu() -> str:
    """Return the version line of QEMU; raise HostError, one line with the fix, if it is missing or too old."""
    version = qemu_version()
    numbers = re.search(r"version (\d+)\.(\d+)", version)
    if not numbers or tuple(map(int, numbers.groups())) < _QEMU_OLDEST:
        oldest = ".".join(map(str, _QEMU_OLDEST))
        raise HostError(f"{version}: older than {oldest}; install qemu-system-x86 of Debian 12 or later")
    return version
