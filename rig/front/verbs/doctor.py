"""Check what works on this host, and name the command that fixes what does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rig.contract.errors import HostError, RigError
from rig.contract.orders import Processor
from rig.front import inherited
from rig.front.inherited import Check
from rig.host.cache import require_cache
from rig.host.files import free_bytes, require_writable
from rig.host.processes import PACKAGE_OF_PROGRAM, available_memory_bytes
from rig.images import image, recipes
from rig.machines import usermode
from rig.machines.accelerator import best_accelerator
from rig.machines.argv import Accelerator
from rig.machines.template import PROGRAM, require_qemu
from rig.sandbox import sandbox

_SPACE_BYTES = 4 << 30
_MEMORY_BYTES = 2 << 30


# What a run needs besides QEMU. bootstrap.sh, which needs no Python, has the same list; a test compares the two.
_PROGRAMS = ("mmdebstrap", "mke2fs", "tar")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def examine() -> Iterator[Check]:
    """Check everything that a run needs, and yield each result at once."""
    qemu = _qemu()
    yield qemu
    yield from (_program(program) for program in _PROGRAMS)
    yield _keyring()
    available = available_memory_bytes()
    yield Check(
        available >= _MEMORY_BYTES, "memory", f"{available >> 20} MiB free; a run needs {_MEMORY_BYTES >> 20} MiB"
    )
    yield from inherited.examine()
    yield _sandbox()
    yield _folder("current folder", lambda: require_runs(Path.cwd()))
    cache = _folder("cache", require_cache)
    yield cache
    if cache.ok:
        yield from _image(qemu)


def install_line(checks: Iterable[Check]) -> str:
    """Return the one command that installs everything missing, or nothing if no package would help."""
    packages = sorted({check.package for check in checks if check.package and not check.ok})
    return f"apt-get install --no-install-recommends {' '.join(packages)}" if packages else ""


def require_runs(folder: Path) -> Path:
    """Return the folder; raise HostError, one line with the fix, if this user cannot make a run directory there."""
    require_writable(folder, "name a folder for the run: --run-dir FOLDER")
    return folder


def _qemu() -> Check:
    package = PACKAGE_OF_PROGRAM[PROGRAM]
    try:
        return Check(ok=True, what=PROGRAM, detail=require_qemu(), package=package)
    except RigError as error:
        return Check(ok=False, what=PROGRAM, detail=str(error), package=package)


def _program(program: str) -> Check:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    package = PACKAGE_OF_PROGRAM.get(program, program)
    return Check(bool(path), program, path or f"in the Debian package {package}", package=package)


def _sandbox() -> Check:
    what = "sandbox of machines"
    try:
        missing = sandbox.lacking()
    except HostError as error:
        return Check(ok=False, what=what, detail=str(error))
    reasons = [f"no {layer}: {reason}" for layer, reason in sorted(missing.items())]
    has_all = "seccomp, namespaces and Landlock"
    detail = f"{'; '.join(reasons)}; the other layers hold" if reasons else has_all
    return Check(not missing, what, detail, optional=True)


def _keyring() -> Check:
    package = "debian-archive-keyring"
    exists = _KEYRING.exists()
    detail = str(_KEYRING) if exists else f"in the Debian package {package}"
    return Check(exists, "Debian's keys", detail, package=package)


def _folder(what: str, writable: Callable[[], Path]) -> Check:
    try:
        folder = writable()
    except HostError as error:
        return Check(ok=False, what=what, detail=str(error))
    free = free_bytes(folder)
    detail = f"{free >> 20} MiB free in {folder}; a run needs {_SPACE_BYTES >> 20} MiB"
    return Check(free >= _SPACE_BYTES, what, detail)


def _image(qemu: Check) -> Iterator[Check]:
    recipe = recipes.recipe()
    built = image.is_built(recipe)
    fix = "not built yet; to build it (needs no root): rig image build"
    yield Check(built, "guest image", recipe.digest if built else fix, optional=True)
    if built and qemu.ok:
        best = best_accelerator(image.build(recipe))
        detail = "; ".join(filter(None, (best.reason, best.advice)))
        has_kvm = best.accelerator is not Accelerator.TCG
        yield Check(has_kvm, "KVM", detail, optional=True)
        if not has_kvm:
            yield _user_mode(image.build(recipe))


def _user_mode(guest: image.Image) -> Check:
    what = "user-mode machines"
    if not image.is_built(recipes.recipe(usermode.RECIPE)):
        return Check(ok=False, what=what, detail=f"not built yet: rig image build {usermode.RECIPE}", optional=True)
    if obstacle := usermode.obstacle(guest, Processor.PLAIN):
        return Check(ok=False, what=what, detail=f"{obstacle}; emulation works as well, only slower", optional=True)
    return Check(ok=True, what=what, detail="one answered: crash states are checked in them", optional=True)
