"""Which guest image a scenario is measured in: the base image, or one that has more.

The package of an engine may hold `image.toml`, which says what its image adds to the base image:

    name = "mydb"              the name of the image; by default the name of the package
    packages = ["libmydb1"]    from Debian, with their dependencies
    wheels = ["mydb==1.2 --hash=sha256:..."]    from PyPI, for the guest's Python, without their dependencies
    exclude = ["/usr/lib/big*"]    files of these packages that nothing needs, as patterns
    root_disk_mib = 800        the size of the root disk, if the base image's is too small
    like = "other.package"     alone: the image of another engine's package, which both share

All are optional. A file system may need another kernel than the base image's. `vm-images/kernels` has a file for each
such kernel: `kernel` names its package, `modules` and `modules_on_demand` are added to the base image's, and it may
have the keys of `image.toml` too. Each pair of an engine's image and a kernel is an image of its own. An image is built
when something is first measured in it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rig.contract.errors import UsageError
from rig.engines import Engine, engines
from rig.filesystems import filesystems
from rig.images import image, initrd
from rig.images.image import Recipe

FILE = "image.toml"
KEYS = ("name", "packages", "wheels", "exclude", "root_disk_mib")
_BASE = "base"
_USER_MODE = "usermode"
# What a recipe adds to another.
_LISTS = ("packages", "wheels", "exclude", "modules", "modules_on_demand")
# An image is a folder of the cache with this name and its digest.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def of_engine(engine: Engine, kernel: str = "") -> Recipe:
    """Return the recipe of the image that an engine is measured in, with a kernel; raise UsageError if it is wrong."""
    return with_kernel(_of_folder(engine.folder), kernel)


def serves(recipe_digest: str, engine: Engine) -> bool:
    """Return whether an engine is measured in the image with this digest, on any file system."""
    return recipe_digest in {of_engine(engine, kernel).digest for kernel in kernels()}


def recipes() -> tuple[Recipe, ...]:
    """Return the recipes that engines, file systems and user-mode machines need, each once, the base image first."""
    every = [of_engine(engine, kernel) for kernel in kernels() for engine in engines(given=True)]
    return tuple(dict.fromkeys([image.recipe(_BASE), *every, image.recipe(_USER_MODE)]))


def named(name: str) -> Recipe:
    """Return the recipe with this name; raise UsageError naming the choices."""
    known = {one.name: one for one in reversed(recipes())}
    if name not in known:
        raise UsageError(f"unknown image {name!r}; there are: {', '.join(sorted(known))}")
    return known[name]


def extended(path: Path, values: Mapping[str, Any], keys: Sequence[str] = KEYS) -> Recipe:
    """Return the recipe of the base image and what a file adds to it; raise UsageError that names the file and the key.

    `keys` are the keys that the file may have.
    """
    for key in values:
        if key not in keys:
            raise UsageError(f"{path}: unknown key {key!r}; there are: {', '.join(keys)}")
    found = _enlarged(image.recipe(_BASE), path, values)
    if not _NAME.fullmatch(found.name):
        raise UsageError(f"{path}: name is {found.name!r}; give the image one of letters, digits, dots and dashes")
    return found


def with_kernel(recipe: Recipe, kernel: str) -> Recipe:
    """Return the recipe of the same image with a kernel; an empty name means the base image's kernel."""
    if not kernel:
        return recipe
    path = initrd.RECIPES / "kernels" / f"{kernel}.toml"
    return _enlarged(recipe, path, {"name": f"{recipe.name}-{kernel}", **image.read(path)})


def kernels() -> list[str]:
    """Return the kernels that file systems need, the base image's first."""
    return sorted({filesystem.kernel for filesystem in filesystems()})


def _enlarged(base: Recipe, path: Path, values: Mapping[str, Any]) -> Recipe:
    """Return a recipe with what a file adds to it; raise UsageError that names the file and what is wrong."""
    own = image.recipe_of(path, {**_as_values(base), **values})
    lists: dict[str, Any] = {key: (*getattr(base, key), *values.get(key, ())) for key in _LISTS}
    return replace(own, root_disk_mib=max(base.root_disk_mib, own.root_disk_mib), **lists)


def _of_folder(folder: Path) -> Recipe:
    path = folder / FILE
    if not path.exists():
        return image.recipe(_BASE)
    values = image.read(path)
    if "like" in values:
        if set(values) != {"like"}:
            raise UsageError(f"{path}: `like` stands alone, the other image has its own recipe")
        return _of_package(path, str(values["like"]))
    return extended(path, {"name": folder.name, **values}, (*KEYS, "like"))


def _as_values(recipe: Recipe) -> dict[str, object]:
    return {name: getattr(recipe, name) for name in recipe.__dataclass_fields__}


def _of_package(path: Path, package: str) -> Recipe:
    spec = importlib.util.find_spec(package)
    if not spec or not spec.origin or not Path(spec.origin).with_name(FILE).exists():
        raise UsageError(f"{path}: there is no package {package!r} with an {FILE}")
    return _of_folder(Path(spec.origin).parent)
