"""What a user's recipe builds: a command run on the host in a clean copy of the recipe's folder.

    version = "1.4.2"          what is built; the command finds it in the variable VERSION
    [build]
    command = "go build -o mydb ."

The copy leaves out what version control and the rig keep. It stays in the cache under a digest of its content, the
command and the version, so the same sources are built once. The program and the files of the recipe are taken from it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rig.contract.errors import HostError, UsageError
from rig.host import processes
from rig.host.cache import cache_folder, lock, require_cache

_LIMIT_S = 1800
_LEFT_OUT = (".git", ".hg", ".svn", "runs", "__pycache__")


def folder_of(path: Path, build: Any, version: str) -> Path:
    """Return where the program and the files of a recipe are: a folder that `build` has filled, or the recipe's own.

    Raise UsageError for a `build` of another form, and for a command that fails.
    """
    if build is None:
        return path.parent
    if not isinstance(build, Mapping) or set(build) != {"command"} or not isinstance(build["command"], str):
        raise UsageError(f'{path}: build is {build!r}; it has one key, for example command = "go build -o mydb ."')
    require_cache()
    command = build["command"]
    target = cache_folder() / "builds" / _digest(path.parent, command, version)
    with lock(target):
        if not target.exists():
            _build(path, target, command, version)
    return target


def _build(path: Path, target: Path, command: str, version: str) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building.") as scratch:
        copy = Path(scratch, "copy")
        shutil.copytree(path.parent, copy, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        try:
            processes.run(["sh", "-c", command], timeout_s=_LIMIT_S, env={"VERSION": version}, cwd=copy)
        except HostError as error:
            raise UsageError(f"{path}: the command of [build] failed: {error}") from None
        copy.rename(target)


def _digest(folder: Path, command: str, version: str) -> str:
    digest = hashlib.blake2b(f"{command}\0{version}\0".encode(), digest_size=8)
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            file = Path(place, name)
            what = str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()
            mode = file.lstat().st_mode & 0o111
            digest.update(f"{file.relative_to(folder)}\0{mode}\0{len(what)}\0".encode() + what)
    return digest.hexdigest()
