"""The cache folder for images, templates and builds, which are made once and reused. Several processes may share it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.contract.errors import HostError
from rig.host.files import require_writable

_CACHE_REMEDY = "name a folder for guest images and templates: RIG_CACHE=FOLDER"


def cache_folder() -> Path:
    """Return the folder for images and templates: $RIG_CACHE, or a folder in the user's cache directory."""
    if os.environ.get("RIG_CACHE"):
        return Path(os.environ["RIG_CACHE"]).absolute()
    # The XDG Base Directory Specification says to ignore relative paths.
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if home.is_absolute():
        return home / "powercut-rig"
    try:
        return Path.home() / ".cache" / "powercut-rig"
    except RuntimeError:
        raise HostError(f"this user has no home directory; {_CACHE_REMEDY}") from None


def require_cache() -> Path:
    """Return the cache folder; raise HostError with the fix unless this user may write there."""
    require_writable(cache_folder(), _CACHE_REMEDY)
    return cache_folder()


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for a path of the cache, in a file next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
