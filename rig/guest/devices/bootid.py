"""The boot id of a machine: programs ask it whether the page cache has survived since they wrote.

A clone has the boot id of its template, so two lives that are recorded in clones of one template would have the same,
though the power went between them. So a life that is recorded after a cut shows one of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.filesystems import kernel

SHOWN, _FILE = "/proc/sys/kernel/random/boot_id", Path("/run/boot_id")
# Flags of mount(2) and umount2(2).
_MS_BIND, _MNT_DETACH = 1 << 12, 2


@contextmanager
def new_boot(life: str) -> Iterator[None]:
    """Show all programs the boot id of a life, made from its name, for the length of a block."""
    digits = hashlib.blake2b(life.encode(), digest_size=16).hexdigest()
    _FILE.write_text(f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}\n")
    kernel.mount(str(_FILE), "none", "", SHOWN, _MS_BIND)
    try:
        yield
    finally:
        kernel.unmount(SHOWN, _MNT_DETACH)
