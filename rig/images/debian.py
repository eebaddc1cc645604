"""Unpack Debian packages into a folder, as any user: without root, namespaces or maintainer scripts.

mmdebstrap resolves dependencies, downloads the packages, checks their signatures and unpacks them. It changes neither
the root directory nor owners, so it works the same for root, for root with few capabilities (as in a container), for
a user, and for a user whose kernel or administrator forbids user namespaces. Maintainer scripts expect to be root in
their own root directory, so they do not run. This module does the parts of their work that the guest needs: users and
groups, the links from /var to /run, the cache of the dynamic linker, and Python's bytecode, which a read-only guest
cannot write. Wheels are unpacked where Debian's Python looks for modules.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rig.contract.errors import HostError, UsageError
from rig.host import processes

_UNPACK_LIMIT_S = 1800
_FINISH_LIMIT_S = 300
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_MODULES = "usr/lib/python3/dist-packages"
_UNKNOWN = re.compile(r"E: (?:Unable to locate package|Package '?(?=\S+ has no installation candidate))\s*([^\s']+)")


def unpack(suite: str, packages: Sequence[str], root: Path, wheels: Sequence[Path] = ()) -> list[str]:
    """Make the folder `root` from packages, their dependencies and Debian's essential packages, and from wheels.

    Return a line `name TAB version` for each package. Raise UsageError for a package that does not exist, HostError
    with the last output of the program that failed.
    """
    try:
        _fetch(suite, packages, root)
    except HostError as error:
        if unknown := _UNKNOWN.search(str(error)):
            raise UsageError(f"Debian {suite} has no package {unknown[1]!r}") from None
        raise HostError(
            f"cannot download and unpack Debian's packages; is there a network (http_proxy names a proxy)? {error}"
        ) from None
    names = sorted(path.stem for path in (root / "var/cache/apt/archives").glob("*.deb"))
    for wheel in wheels:
        _install(wheel, root / _MODULES)
    _finish(root)
    for folder in ("dev", "var/cache/apt", "var/cache/ldconfig", "var/lib/apt"):
        shutil.rmtree(root / folder)
    # mke2fs reads each file as this user, who may not be root, and a program of the guest may run as another user too.
    # Neither a mode of 0000, which Debian gives the shadow files, nor this user's umask may keep them out.
    processes.run(["chmod", "-R", "a+rX", str(root)], timeout_s=_FINISH_LIMIT_S)
    # apt calls the file NAME_VERSION_ARCHITECTURE.deb and writes the colon of a version as %3a.
    return ["\t".join(name.replace("%3a", ":").split("_")[:2]) for name in names]


def _fetch(suite: str, packages: Sequence[str], root: Path) -> None:
    processes.run(
        [
            "mmdebstrap", "--variant=extract", "--mode=chrootless",
            # Later versions (1.5.7) refuse this mode to root because of maintainer scripts; this variant runs none.
            # Skipping cleanup/apt keeps the package files, whose names `unpack` reads.
            "--skip=check/chrootless,cleanup/apt",
            "--include=?essential", f"--include={','.join(packages)}", suite, str(root),
        ],
        env={
            # Next to the folder, so that the leftovers of an interrupted build are removed with it.
            "TMPDIR": str(root.parent),
            # By default tar keeps modes and owners for root only; the image must be the same for all users.
            "TAR_OPTIONS": "--preserve-permissions --no-same-owner",
        },
        timeout_s=_UNPACK_LIMIT_S,
    )  # fmt: skip


def _install(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            # Programs and data of a wheel have no place in the guest; only its modules are wanted.
            archive.extractall(folder, [name for name in archive.namelist() if ".data/" not in name])
    except (zipfile.BadZipFile, OSError) as error:
        raise UsageError(f"the wheel {wheel.name} cannot be unpacked: {error}") from None


def _finish(root: Path) -> None:
    for name in ("passwd", "group"):
        shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / f"etc/{name}")
    for name, place in (("run", "/run"), ("lock", "/run/lock")):
        (root / "var" / name).rmdir()
        (root / "var" / name).symlink_to(place)
    processes.run(["ldconfig", "-r", str(root)], timeout_s=_FINISH_LIMIT_S)
    if not (root / "usr/bin/python3").exists():
        return
    # Run the guest's own Python with its own libraries: another version would write bytecode of another format.
    # Without -B it would first compile the modules that it imports itself, and their tracebacks would name this folder.
    command = [
        str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(root / _LIBRARIES),
        str(root / "usr/bin/python3"), "-I", "-B", "-m", "compileall", "-q", "-s", str(root), "-p", "/",
        *map(str, sorted((root / "usr/lib").glob("python3*"))),
    ]  # fmt: skip
    try:
        processes.run(command, timeout_s=_FINISH_LIMIT_S)
    except HostError as error:
        remedy = "set RIG_CACHE to a folder on a file system that is not mounted noexec"
        raise HostError(f"the guest's Python does not run on this host; {remedy}. {error}") from None
