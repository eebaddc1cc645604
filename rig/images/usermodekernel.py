"""The kernel of user-mode machines as an image: a program, the C library that it needs, and an initrd."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from rig.contract.errors import HostError
from rig.host import processes
from rig.host.cache import lock
from rig.images import initrd
from rig.images.recipes import RECIPES, Recipe

PROGRAM = "linux"
# A folder next to the program.
LIBRARIES = "lib"
_LOADER = f"{LIBRARIES}/ld.so"
_HOME = "usr/lib/x86_64-linux-gnu"
_KERNEL = "usr/bin/linux.uml"
_MODULES = "usr/lib/uml/modules"
# What the kernel needs on a processor whose state is too long for it.
_LONG_STATE_SOURCE = RECIPES / "xstate.c"
_COMPILER_LIMIT_S = 60
_INTERPRETER = b"/lib64/ld-linux-x86-64.so.2\0"


def is_in(root: Path) -> bool:
    """Return whether a root directory has this kernel."""
    return (root / _KERNEL).exists()


def fill(folder: Path, root: Path, wanted: Recipe) -> None:
    """Make the program, its C library and its initrd in a folder; raise HostError if the kernel is not as expected."""
    (modules,) = (root / _MODULES).iterdir()
    (folder / "initrd.cpio").write_bytes(initrd.make(root, modules, wanted))
    (folder / LIBRARIES).mkdir()
    for name, place in (("ld-linux-x86-64.so.2", _LOADER), ("libc.so.6", f"{LIBRARIES}/libc.so.6")):
        shutil.copy(root / _HOME / name, folder / place)
    # The host's C library may be older than the kernel needs. If another loader started the kernel, it would lie at an
    # address that it does not expect. So the program is changed to ask for that loader itself, by a path relative to
    # the folder that it is started in.
    program = (root / _KERNEL).read_bytes()
    if program.count(_INTERPRETER) != 1:
        raise HostError(f"{_KERNEL} does not name its loader once, as a program does")
    loader = _LOADER.encode().ljust(len(_INTERPRETER), b"\0")
    (folder / PROGRAM).write_bytes(program.replace(_INTERPRETER, loader))
    for path in (folder / PROGRAM, folder / _LOADER):
        path.chmod(0o755)


def long_state_library(folder: Path) -> str:
    """Make the library that lets this kernel run on a processor with AMX, unless it is there; return its place.

    Raise HostError if there is no C compiler.
    """
    digest = hashlib.blake2b(_LONG_STATE_SOURCE.read_bytes(), digest_size=4).hexdigest()
    name = f"{LIBRARIES}/xstate-{digest}.so"
    if not (folder / name).exists():
        with lock(folder):
            made = folder / f"{name}.new"
            command = ["gcc", "-shared", "-fPIC", "-O2", "-nostdlib", "-o", str(made), str(_LONG_STATE_SOURCE)]
            processes.run(command, timeout_s=_COMPILER_LIMIT_S)
            made.replace(folder / name)
    return name
