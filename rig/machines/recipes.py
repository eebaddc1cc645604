"""Which guest image an engine is measured in: the base image, or one that has more.

The package of an engine may hold `image.toml`, which says what its image has besides the base image:

    name = "mydb"              the name of the image; without it that of the package
    packages = ["libmydb1"]    from Debian, with their dependencies
    wheels = ["mydb==1.2 --hash=sha256:..."]    from PyPI, for the guest's Python, without their dependencies
    root_disk_mib = 800        the size of the root disk, if that of the base image is too small
    like = "other.package"     alone: the image of another engine's package, which both share

All are optional. An image is built when something is first measured in it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from rig.contract.errors import UsageError
from rig.engines import Engine, engines
from rig.machines import image
from rig.machines.image import Recipe

FILE = "image.toml"
_BASE = "base"


def of_engine(engine: Engine) -> Recipe:
    """Return the recipe of the image that an engine is measured in; raise UsageError if it is wrong."""
    return _of_folder(engine.folder)


def recipes() -> tuple[Recipe, ...]:
    """Return the recipes that the engines need, each once, the base image first."""
    found = [image.recipe(_BASE), *map(of_engine, engines(given=True))]
    return tuple(dict.fromkeys(found))


def named(name: str) -> Recipe:
    """Return the recipe with this name; raise UsageError naming the choices."""
    known = {one.name: one for one in reversed(recipes())}
    if name not in known:
        raise UsageError(f"unknown image {name!r}; there are: {', '.join(sorted(known))}")
    return known[name]


def _of_folder(folder: Path) -> Recipe:
    base, path = image.recipe(_BASE), folder / FILE
    if not path.exists():
        return base
    values = image.read(path)
    if "like" in values:
        if set(values) != {"like"}:
            raise UsageError(f"{path}: `like` stands alone, the other image has its own recipe")
        return _of_package(path, str(values["like"]))
    own = image.recipe_of(path, {**_as_values(base), "name": folder.name, **values})
    return replace(
        own,
        packages=(*base.packages, *values.get("packages", ())),
        wheels=(*base.wheels, *values.get("wheels", ())),
        root_disk_mib=max(base.root_disk_mib, own.root_disk_mib),
    )


def _as_values(recipe: Recipe) -> dict[str, object]:
    return {name: getattr(recipe, name) for name in recipe.__dataclass_fields__}


def _of_package(path: Path, package: str) -> Recipe:
    spec = importlib.util.find_spec(package)
    if not spec or not spec.origin or not Path(spec.origin).with_name(FILE).exists():
        raise UsageError(f"{path}: there is no package {package!r} with an {FILE}")
    return _of_folder(Path(spec.origin).parent)
