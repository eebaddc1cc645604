"""What a user's program needs in its guest: a recipe of the user's own, with keys as in an engine's `image.toml`.

    name = "mydb"                   the name of the image; by default the name of the recipe's file
    files = ["mydb.conf", "lib"]    files and folders that the guest gets next to the program
    packages, wheels, exclude, root_disk_mib    as in `rig.images.recipes`

The cache keeps the recipe with the content of its files, under a digest of everything. So a run can be replayed after
the user has changed any of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.contract.errors import StoreError, UsageError
from rig.contract.scenario import Scenario
from rig.engines import Engine, load, named
from rig.engines.builds import Library
from rig.filesystems import filesystem_named
from rig.host.cache import cache_folder, require_cache
from rig.host.files import atomic_write
from rig.images import image, recipes
from rig.images.image import Recipe

SUFFIX = ".toml"


@dataclass(frozen=True)
class Needs:
    """A user's recipe; scenarios call it `name`, which ends with its digest. `files` maps paths to contents."""

    name: str
    recipe: Recipe
    files: dict[str, bytes]


def of_file(path: Path) -> Needs:
    """Return what a recipe says, and keep it in the cache; raise UsageError that names the file and the key."""
    values = {"name": path.stem, **image.read(path)}
    files = {name: base64.b64encode(text).decode() for name, text in _files(path, values.pop("files", ())).items()}
    recipes.extended(path, values, (*recipes.KEYS, "files"))
    content = json.dumps({"source": path.name, "values": values, "files": files}, sort_keys=True).encode()
    require_cache()
    target = _cached(_name(content))
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(target, content)
    return _needs(content)


def kept(name: str) -> Needs:
    """Return the recipe that scenarios call by this name; raise StoreError if the cache no longer has it."""
    try:
        content = _cached(name).read_bytes()
    except OSError:
        raise StoreError(f"the recipe {name} is no longer in the cache; name it again: --image") from None
    if _name(content) != name:
        raise StoreError(f"{_cached(name)} is damaged; remove it and name the recipe again: --image")
    return _needs(content)


def recipe_of(scenario: Scenario) -> Recipe:
    """Return the recipe of the image that a scenario is measured in, with the kernel that its file system needs."""
    kernel = filesystem_named(scenario.filesystem).kernel
    return _recipe_for(load(scenario.engine_module), scenario.tuning.get("image", ""), kernel)


def serves(recipe: Recipe, library: Library) -> bool:
    """Return whether a build is measured in an image, on any file system."""
    engine = named(library.engine)
    return any(recipe == _recipe_for(engine, library.image, kernel) for kernel in recipes.kernels())


def require_of_run(wanted: str, path: Path) -> None:
    """Keep the recipe that the user names again; raise UsageError if it is not the one that a run was made with."""
    if (given := of_file(path).name) != wanted:
        made_with = f"with the recipe {wanted}" if wanted else "without a recipe"
        raise UsageError(f"the run was made {made_with}; {path} is {given} now")


def _recipe_for(engine: Engine, name: str, kernel: str) -> Recipe:
    return recipes.with_kernel(kept(name).recipe, kernel) if name else recipes.of_engine(engine, kernel)


def _needs(content: bytes) -> Needs:
    told = json.loads(content)
    files = {path: base64.b64decode(text) for path, text in told["files"].items()}
    return Needs(_name(content), recipes.extended(Path(told["source"]), image.as_tuples(told["values"])), files)


def _name(content: bytes) -> str:
    """Return the name of a kept recipe; for damaged content, return a name that no recipe has."""
    try:
        name = json.loads(content)["values"]["name"]
    except (ValueError, KeyError, TypeError):
        name = ""
    return f"{name}-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def _cached(name: str) -> Path:
    return cache_folder() / "recipes" / name


def _files(path: Path, words: Any) -> dict[str, bytes]:
    """Return the files that a recipe names, by their paths below its folder."""
    if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{path}: files is {words!r}, which is not a list of texts")
    found = {}
    for word in words:
        place = Path(word)
        if place.is_absolute() or ".." in place.parts:
            raise UsageError(f"{path}: files has {word!r}, which is not below the folder of the recipe")
        full = path.parent / place
        below = sorted(one for one in full.rglob("*") if one.is_file()) if full.is_dir() else [full]
        for one in below:
            try:
                found[str(one.relative_to(path.parent))] = one.read_bytes()
            except OSError as error:
                raise UsageError(f"{path}: files has {word!r}, which cannot be read: {error.strerror}") from None
    return found
