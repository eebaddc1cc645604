"""Which guest image a scenario is measured in: the base image, or one that has more. `rig.images.image` builds it.

A recipe says what is in an image. `vm-images/base.toml` is the base image's. The package of an engine may hold
`image.toml`, which says what its image adds to the base image:

    name = "mydb"              the name of the image; by default the name of the package
    packages = ["libmydb1"]    from Debian, with their dependencies
    wheels = ["mydb==1.2 --hash=sha256:..."]    from PyPI, for the guest's Python, without their dependencies
    exclude = ["/usr/lib/big*"]    files of these packages that nothing needs, as patterns
    root_disk_mib = 800        the size of the root disk, if the base image's is too small
    like = "other.package"     alone: the image of another engine's package, which both share

All are optional. A user's recipe for a program has the same keys without `like`, and another one:

    files = ["mydb.conf", "lib"]    files and folders that the guest gets next to the program
    version = "1.4.2"               of the program, for tables and for `build` (`rig.images.ownbuild`)
    processor = "modern"            for a program that is built for SSE4, AVX or BMI

The cache keeps a user's recipe with the content of its files, under a digest of everything. So a run can be replayed
after the user has changed any of them.

A file system may need another kernel than the base image's. `vm-images/kernels` has a file for each such kernel:
`kernel` names its package, `modules` and `modules_on_demand` are added to the base image's, and it may have the keys of
`image.toml` too. Each pair of an engine's image and a kernel is an image of its own. An image is built when something
is first measured in it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rig.contract.errors import StoreError, UsageError
from rig.contract.orders import Processor
from rig.contract.scenario import Scenario
from rig.engines import Engine, engines, load
from rig.filesystems import filesystem_named, filesystems
from rig.host.cache import cache_folder, require_cache
from rig.host.files import atomic_write
from rig.images import ownbuild

RECIPES = Path(__file__).parents[1] / "vm-images"
FILE, SUFFIX = "image.toml", ".toml"
BASE, _USER_MODE = "base", "usermode"
_KEYS = ("name", "packages", "wheels", "exclude", "root_disk_mib")
# What a recipe adds to another.
_OWN_KEYS = ("files", "version", "processor", "build")
_LISTS = ("packages", "wheels", "exclude", "modules", "modules_on_demand")
# An image is a folder of the cache with this name and its digest.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
# Part of the digest: raise the number when `rig.images.image` builds something else from the same recipe.
_BUILDER_VERSION = 3
# The types of a recipe's fields, in TOML's terms.
_KINDS = {"str": (str, "a text"), "int": (int, "a number"), "tuple[str, ...]": (tuple, "a list of texts")}
# As in a file of requirements for pip.
WHEEL = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.+!]+)(?: --hash=sha256:(?P<sha256>[0-9a-f]{64}))?")


@dataclass(frozen=True)
class Recipe:
    """The contents of a guest image."""

    name: str
    suite: str
    kernel: str
    root_disk_mib: int
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    modules_on_demand: tuple[str, ...]
    exclude: tuple[str, ...]
    # From PyPI, for the guest's Python: `NAME==VERSION --hash=sha256:DIGEST`, without their dependencies.
    wheels: tuple[str, ...] = field(repr=False)

    @property
    def digest(self) -> str:
        """Return the digest under which the cache holds the image of this recipe."""
        init = (RECIPES / "init").read_bytes()
        contents = f"{_BUILDER_VERSION} {self}{''.join(self.wheels)}"
        return hashlib.blake2b(contents.encode() + init, digest_size=8).hexdigest()


@dataclass(frozen=True)
class Needs:
    """A user's recipe; scenarios call it `name`, which ends with its digest. `files` maps paths to contents."""

    name: str
    recipe: Recipe
    files: dict[str, bytes]
    version: str = ""
    processor: Processor = Processor.PLAIN


def recipe_of(scenario: Scenario) -> Recipe:
    """Return the recipe of the image that a scenario is measured in, with the kernel that its file system needs."""
    kernel = filesystem_named(scenario.filesystem).kernel
    return of_engine(load(scenario.engine_module), kernel, scenario.tuning.get("image", ""))


def of_engine(engine: Engine, kernel: str = "", needs: str = "") -> Recipe:
    """Return the recipe of the image that an engine is measured in; raise UsageError if it is wrong.

    An empty `kernel` is the base image's. `needs` names a user's recipe that takes the place of the engine's.
    """
    own = stored_needs(needs).recipe if needs else _of_folder(engine.folder)
    if not kernel:
        return own
    path = RECIPES / "kernels" / f"{kernel}.toml"
    return _enlarge(own, path, {"name": f"{own.name}-{kernel}", **_read(path)})


def serves(recipe_digest: str, engine: Engine, needs: str = "") -> bool:
    """Return whether an engine is measured in the image with this digest, on any file system."""
    return recipe_digest in {of_engine(engine, kernel, needs).digest for kernel in kernels()}


def kernels() -> list[str]:
    """Return the kernels that file systems need, the base image's first."""
    return sorted({filesystem.kernel for filesystem in filesystems()})


def recipes() -> tuple[Recipe, ...]:
    """Return the recipes that engines, file systems and user-mode machines need, each once, the base image first."""
    every = [of_engine(engine, kernel) for kernel in kernels() for engine in engines(given=True)]
    return tuple(dict.fromkeys([recipe(BASE), *every, recipe(_USER_MODE)]))


def recipe_named(name: str) -> Recipe:
    """Return the recipe with this name; raise UsageError naming the choices."""
    known = {recipe.name: recipe for recipe in reversed(recipes())}
    if name not in known:
        raise UsageError(f"unknown image {name!r}; there are: {', '.join(sorted(known))}")
    return known[name]


def recipe(name: str = BASE) -> Recipe:
    """Return a recipe of `vm-images`; raise UsageError that names the field that is wrong."""
    path = RECIPES / f"{name}.toml"
    return _recipe_of(path, _read(path))


def of_file(path: Path) -> Needs:
    """Return what a user's recipe says, and keep it in the cache; raise UsageError that names the file and the key."""
    values = {"name": path.stem, **_read(path)}
    own = {key: values.pop(key) for key in _OWN_KEYS if key in values}
    _extended_recipe(path, values, (*_KEYS, *_OWN_KEYS))
    about = _about(path, own)
    folder = ownbuild.folder_of(path, own.get("build"), about["version"])
    files = {name: base64.b64encode(text).decode() for name, text in _files(path, folder, own.get("files", ())).items()}
    stored = {
        "source": path.name,
        "values": values,
        "files": files,
        **{key: text for key, text in about.items() if text},
    }
    content = json.dumps(stored, sort_keys=True).encode()
    require_cache()
    target = _path_of(_name(content))
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(target, content)
    return _needs(content)


def built_folder(path: Path) -> Path:
    """Return the folder with the files of a user's recipe: what its build has filled, or its own."""
    values = _read(path)
    return ownbuild.folder_of(path, values.get("build"), _about(path, values)["version"])


def stored_needs(name: str) -> Needs:
    """Return the user's recipe that scenarios call by this name; raise StoreError if the cache no longer has it."""
    try:
        content = _path_of(name).read_bytes()
    except OSError:
        raise StoreError(f"the recipe {name} is no longer in the cache; name it again: --image") from None
    if _name(content) != name:
        raise StoreError(f"{_path_of(name)} is damaged; remove it and name the recipe again: --image")
    return _needs(content)


def require_of_run(wanted: str, path: Path) -> None:
    """Keep the recipe that the user names again; raise UsageError if it is not the one that a run was made with."""
    if (given := of_file(path).name) != wanted:
        made_with = f"with the recipe {wanted}" if wanted else "without a recipe"
        raise UsageError(f"the run was made {made_with}; {path} is {given} now")


def _of_folder(folder: Path) -> Recipe:
    path = folder / FILE
    if not path.exists():
        return recipe()
    values = _read(path)
    if "like" not in values:
        return _extended_recipe(path, {"name": folder.name, **values}, (*_KEYS, "like"))
    if set(values) != {"like"}:
        raise UsageError(f"{path}: `like` stands alone, the other image has its own recipe")
    spec = importlib.util.find_spec(str(values["like"]))
    if not spec or not spec.origin or not Path(spec.origin).with_name(FILE).exists():
        raise UsageError(f"{path}: there is no package {values['like']!r} with an {FILE}")
    return _of_folder(Path(spec.origin).parent)


def _needs(content: bytes) -> Needs:
    stored = json.loads(content)
    files = {path: base64.b64decode(text) for path, text in stored["files"].items()}
    recipe = _extended_recipe(Path(stored["source"]), _as_tuples(stored["values"]), _KEYS)
    processor = Processor(stored.get("processor", Processor.PLAIN))
    return Needs(_name(content), recipe, files, stored.get("version", ""), processor)


def _about(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Return a program's version and processor, empty where a recipe has none; raise UsageError if they are wrong."""
    about = {key: values.get(key, "") for key in ("version", "processor")}
    for key, value in about.items():
        if not isinstance(value, str):
            raise UsageError(f"{path}: {key} is {value!r}, which is not a text")
    if about["processor"] not in {"", *Processor}:
        raise UsageError(f"{path}: processor is {about['processor']!r}; there are: {', '.join(Processor)}")
    return about


def _name(content: bytes) -> str:
    """Return the name of a kept recipe; for damaged content, return a name that no recipe has."""
    try:
        name = json.loads(content)["values"]["name"]
    except (ValueError, KeyError, TypeError):
        name = ""
    return f"{name}-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def _path_of(name: str) -> Path:
    return cache_folder() / "recipes" / name


def _files(path: Path, folder: Path, words: Any) -> dict[str, bytes]:
    """Return the files that a recipe names, by their paths below a folder."""
    if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{path}: files is {words!r}, which is not a list of texts")
    files = {}
    for word in words:
        place = Path(word)
        if place.is_absolute() or ".." in place.parts:
            raise UsageError(f"{path}: files has {word!r}, which is not below the folder of the recipe")
        full = folder / place
        below = sorted(file for file in full.rglob("*") if file.is_file()) if full.is_dir() else [full]
        for file in below:
            try:
                files[str(file.relative_to(folder))] = file.read_bytes()
            except OSError as error:
                raise UsageError(f"{path}: files has {word!r}, which cannot be read: {error.strerror}") from None
    return files


def _extended_recipe(path: Path, values: Mapping[str, Any], keys: Sequence[str]) -> Recipe:
    """Return the recipe of the base image and what a file adds to it; raise UsageError that names the file and the key.

    `keys` are the keys that the file may have.
    """
    for key in values:
        if key not in keys:
            raise UsageError(f"{path}: unknown key {key!r}; there are: {', '.join(keys)}")
    extended = _enlarge(recipe(), path, values)
    if not _NAME.fullmatch(extended.name):
        raise UsageError(f"{path}: name is {extended.name!r}; give the image one of letters, digits, dots and dashes")
    return extended


def _enlarge(base: Recipe, path: Path, values: Mapping[str, Any]) -> Recipe:
    """Return a recipe with what a file adds to it; raise UsageError that names the file and what is wrong."""
    own = _recipe_of(path, {**vars(base), **values})
    lists: dict[str, Any] = {key: (*getattr(base, key), *values.get(key, ())) for key in _LISTS}
    return replace(own, root_disk_mib=max(base.root_disk_mib, own.root_disk_mib), **lists)


def _recipe_of(path: Path, values: dict[str, Any]) -> Recipe:
    """Return the recipe with these values from a file; raise UsageError that names the file and the field."""
    try:
        read = Recipe(**values)
    except TypeError as error:
        raise UsageError(f"{path}: {error}") from None
    for each in fields(read):
        value = getattr(read, each.name)
        members = value if isinstance(value, tuple) else ()
        kind, words = _KINDS[str(each.type)]
        if not isinstance(value, kind) or not all(isinstance(member, str) for member in members):
            raise UsageError(f"{path}: {each.name} is {value!r}, which is not {words}")
    for word in read.wheels:
        if not WHEEL.fullmatch(word):
            raise UsageError(f"{path}: the wheel {word!r} is not NAME==VERSION --hash=sha256:DIGEST")
    return read


def _read(path: Path) -> dict[str, Any]:
    """Return what a file of TOML says, with tuples in place of lists; raise UsageError for one that is not TOML."""
    try:
        return _as_tuples(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"the recipe {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # TOML or UTF-8
        raise UsageError(f"{path}: {error}") from None


def _as_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
