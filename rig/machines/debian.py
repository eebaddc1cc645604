"""Debian packages unpacked into a folder, by any user: without root, namespaces or maintainer scripts.

mmdebstrap resolves what the packages need, fetches it, checks the signatures and unpacks. It changes neither root nor
owner, so it works the same for root, for root with few capabilities (as in a container), for a user, and for a user
whose kernel or administrator allows no user namespaces. The scripts of the packages expect to be root in a root of
their own, so they do not run. What they do and the guest needs is done here: users and groups, the way from /var to
/run, the cache of the dynamic linker, and Python's bytecode, which a read-only guest could never write.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rig import host
from rig.contract.errors import HostError

_UNPACK_LIMIT_S = 1800
_FINISH_LIMIT_S = 300
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def unpack(suite: str, packages: Sequence[str], root: Path) -> list[str]:
    """Make the folder `root` from packages, all they depend on and Debian's essential ones.

    Return a line `name TAB version` for each package. Raises HostError with the last words of what failed.
    """
    try:
        _fetch(suite, packages, root)
    except HostError as error:
        raise HostError(
            "Debian's packages could not be fetched and unpacked; is the network there (http_proxy names a proxy)? "
            f"{error}"
        ) from None
    names = sorted(path.stem for path in (root / "var/cache/apt/archives").glob("*.deb"))
    _finish(root)
    for folder in ("dev", "var/cache/apt", "var/cache/ldconfig", "var/lib/apt"):
        shutil.rmtree(root / folder)
    # mke2fs reads each file as this user, who is not root, and so may programs of the guest: a mode of 0000, as Debian
    # gives to the shadow files, or the umask of this user closes nothing to them.
    host.run(["chmod", "-R", "a+rX", str(root)], timeout_s=_FINISH_LIMIT_S)
    # apt calls the file NAME_VERSION_ARCHITECTURE.deb and writes the colon of a version as %3a.
    return ["\t".join(name.replace("%3a", ":").split("_")[:2]) for name in names]


def _fetch(suite: str, packages: Sequence[str], root: Path) -> None:
    host.run(
        [
            "mmdebstrap", "--variant=extract", "--mode=chrootless",
            # Later versions (1.5.7) refuse this mode to root, for the sake of scripts, which this variant does not run.
            # The packages stay until their names have been read.
            "--skip=check/chrootless,cleanup/apt",
            "--include=?essential", f"--include={','.join(packages)}", suite, str(root),
        ],
        env={
            # Beside the folder: what a stopped build leaves behind goes with it.
            "TMPDIR": str(root.parent),
            # For root tar keeps modes and owners, for others it does not; the image is to be the same.
            "TAR_OPTIONS": "--preserve-permissions --no-same-owner",
        },
        timeout_s=_UNPACK_LIMIT_S,
    )  # fmt: skip


def _finish(root: Path) -> None:
    for name in ("passwd", "group"):
        shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / f"etc/{name}")
    for name, place in (("run", "/run"), ("lock", "/run/lock")):
        (root / "var" / name).rmdir()
        (root / "var" / name).symlink_to(place)
    host.run(["ldconfig", "-r", str(root)], timeout_s=_FINISH_LIMIT_S)
    # The guest's own Python with the guest's own libraries: another version would write bytecode of another format.
    # Without -B the modules that it imports itself would come first, and name this folder in the guest's tracebacks.
    command = [
        str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(root / _LIBRARIES),
        str(root / "usr/bin/python3"), "-I", "-B", "-m", "compileall", "-q", "-s", str(root), "-p", "/",
        *map(str, sorted((root / "usr/lib").glob("python3*"))),
    ]  # fmt: skip
    try:
        host.run(command, timeout_s=_FINISH_LIMIT_S)
    except HostError as error:
        remedy = "name a folder that is not mounted noexec: RIG_CACHE=FOLDER"
        raise HostError(f"the guest's Python does not run on this host; {remedy}. {error}") from None
