"""Builds of engines that the user named, kept in the cache under their names; a name has a digest of the content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rig.contract.errors import StoreError
from rig.engines.builds import Library
from rig.host.cache import cache_folder
from rig.host.files import atomic_write


def keep(engine: str, name: str, content: bytes) -> Library:
    """Keep a build in the cache under its name, so that a run can be replayed after the user's file has changed."""
    path = _path_of(name)
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    return Library(engine, name, path)


def stored_library(engine: str, name: str, what: str, name_of: Callable[[bytes], str]) -> Library:
    """Return a build from the cache; raise StoreError if it is gone, or if its name does not match its content.

    `what` says in messages what the build is, for example `program`.
    """
    path = _path_of(name)
    if not path.exists():
        made_with = f"the run was made with the {what} {name}"
        raise StoreError(f"{made_with}, which is no longer in the cache; name it again: --library")
    if name_of(path.read_bytes()) != name:
        raise StoreError(f"{path} is damaged; remove it and name the {what} again with --library")
    return Library(engine, name, path)


def _path_of(name: str) -> Path:
    return cache_folder() / "libraries" / name
