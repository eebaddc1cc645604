"""What works on this host, and the command that mends what does not."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rig import host
from rig.contract.errors import HostError, RigError
from rig.machines import image
from rig.machines.accelerator import best_accelerator
from rig.machines.argv import Accelerator
from rig.machines.template import PROGRAM, qemu_version

_QEMU_OLDEST = (6, 2)
_SPACE_BYTES = 4 << 30
_MEMORY_BYTES = 2 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `detail` says what is there, or how to get it."""

    ok: bool
    what: str
    detail: str
    optional: bool = False


def examine() -> Iterator[Finding]:
    """Look at everything that a run needs; each finding comes as soon as it is known."""
    qemu = _qemu()
    yield qemu
    for program in ("mmdebstrap", "mke2fs", "tar", "setpriv", "prlimit", "taskset", "chrt"):
        found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        package = host.PACKAGE_OF_PROGRAM.get(program, program)
        yield Finding(bool(found), program, found or f"apt-get install {package}")
    folder = image.cache_folder()
    yield _space("cache", folder)
    yield _space("current folder", Path.cwd())
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield Finding(
        available >= _MEMORY_BYTES, "memory", f"{available >> 20} MiB free; a run wants {_MEMORY_BYTES >> 20} MiB"
    )
    recipe = image.recipe()
    built = image.is_built(recipe)
    yield Finding(built, "guest image", recipe.digest if built else "rig image build", optional=True)
    if built and qemu.ok:
        yield _accelerator(recipe)


def require_qemu() -> str:
    """Return the version line of QEMU; raise HostError, one line with the fix, if it is missing or too old."""
    version = qemu_version()
    numbers = re.search(r"version (\d+)\.(\d+)", version)
    if not numbers or tuple(map(int, numbers.groups())) < _QEMU_OLDEST:
        oldest = ".".join(map(str, _QEMU_OLDEST))
        raise HostError(f"{version}: older than {oldest}; install qemu-system-x86 of Debian 12 or later")
    return version


def _qemu() -> Finding:
    try:
        return Finding(ok=True, what=PROGRAM, detail=require_qemu())
    except RigError as error:
        return Finding(ok=False, what=PROGRAM, detail=str(error))


def _space(what: str, folder: Path) -> Finding:
    free = host.free_bytes(folder)
    detail = f"{free >> 20} MiB free in {folder}"
    return Finding(free >= _SPACE_BYTES, f"space, {what}", f"{detail}; a run wants {_SPACE_BYTES >> 20} MiB")


def _accelerator(recipe: image.Recipe) -> Finding:
    accelerator, reason = best_accelerator(image.build(recipe))
    return Finding(accelerator is Accelerator.KVM, "KVM", reason, optional=True)
