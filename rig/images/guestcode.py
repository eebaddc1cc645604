"""Our code in a guest, and the engines and builds that it serves, as archives for the agent's `/run`.

A template is booted with `common`, which holds the project's own engines only. Code from elsewhere changes from run to
run while its author works on it, so it is `added` to a machine that has booted already. A user-mode machine is booted
for each use and gets the `whole` at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import rig
from rig.contract.orders import Processor
from rig.engines import Engine, engine_named, engines
from rig.engines.builds import Library
from rig.images import cpio, recipes
from rig.images.warmup import warm_orders

_ROOT = Path(rig.__file__).parent
# Files of this project, below `_ROOT`.
_CODE = (
    "__init__.py", "contract/*.py", "guest/**/*.py", "engines/*.py", "filesystems/*.py", "workloads/*.py",
    "speed/__init__.py", "speed/trials/*.py", "analysis/__init__.py", "analysis/documents/__init__.py",
    "analysis/documents/guestprobes/*.py", "analysis/documents/replications/*.py",
)  # fmt: skip
# Files of an engine's package.
_PACKAGE = ("**/*.py", "**/*.so", "**/*.so.*")
_Files = dict[str, tuple[bytes, int]]


def common(image_digest: str, processor: Processor = Processor.PLAIN) -> bytes:
    """Return our code, and our engines that are measured in an image and that the processor can run."""
    ours = _ours(image_digest, processor)
    return cpio.archive(_code() | _packages(ours) | _warm((), ours))


def addition(
    image_digest: str, libraries: Sequence[Library], processor: Processor = Processor.PLAIN, *, warms: bool = True
) -> bytes:
    """Return what a machine booted with `common` lacks: other engines, and builds; empty if it lacks nothing.

    With `warms` it also has orders to warm up, which a machine that is not saved does not need.
    """
    ours = _ours(image_digest, processor)
    others = [engine for engine in _engines_of(image_digest, libraries, processor) if engine not in ours]
    if not others and not libraries:
        return b""
    warm = _warm(libraries, others) if warms else _warm((), ())
    return cpio.archive(_packages(others) | _builds(libraries) | warm)


def whole(image_digest: str, libraries: Sequence[Library], processor: Processor = Processor.PLAIN) -> bytes:
    """Return our code with everything that the machines of an image serve; each part is loaded only when it is used."""
    return cpio.archive(_code() | _packages(_engines_of(image_digest, libraries, processor)) | _builds(libraries))


def _ours(image_digest: str, processor: Processor) -> list[Engine]:
    measured = [engine for engine in _able(processor) if recipes.serves(image_digest, engine)]
    return [engine for engine in measured if engine.folder.is_relative_to(_ROOT)]


def _engines_of(image_digest: str, libraries: Sequence[Library], processor: Processor) -> list[Engine]:
    """Return a guest's engines: the given ones that need a build, else its image's engines that the processor can run.

    An image that no engine asks for has everything of the base image, so it serves the base image's engines.
    """
    given = [engine_named(name) for name in sorted({library.engine for library in libraries})]
    if alone := [engine for engine in given if engine.spec.needs_build]:
        return alone
    able = _able(processor)
    own = [engine for engine in able if recipes.serves(image_digest, engine)]
    return own or [engine for engine in able if recipes.of_engine(engine) == recipes.recipe()]


def _able(processor: Processor) -> list[Engine]:
    return [engine for engine in engines() if processor in {Processor.MODERN, engine.spec.processor}]


def _code() -> _Files:
    paths = sorted(path for pattern in _CODE for path in _ROOT.glob(pattern))
    return {f"code/rig/{path.relative_to(_ROOT)}": (path.read_bytes(), 0o644) for path in paths}


def _warm(libraries: Sequence[Library], served: Sequence[Engine]) -> _Files:
    """Return the warm-up orders that the agent carries out before READY."""
    warm = [asdict(orders) for orders in warm_orders(libraries, served)]
    return {"code/warm.json": (json.dumps(warm, sort_keys=True).encode(), 0o644)}


def _builds(libraries: Sequence[Library]) -> _Files:
    """Return builds; a build with a user's own recipe brings the recipe's name and files too."""
    files: _Files = {}
    for library in sorted(libraries, key=lambda library: library.name):
        files[f"code/libraries/{library.name}"] = (library.path.read_bytes(), 0o755)
        if library.image:
            beside = recipes.stored_needs(library.image).files
            files |= {f"code/libraries/{path}": (content, 0o755) for path, content in beside.items()}
            files["code/image"] = (library.image.encode(), 0o644)
    return files


def _packages(served: Sequence[Engine]) -> _Files:
    return {path: entry for engine in served for path, entry in _package(engine).items()}


def _package(engine: Engine) -> _Files:
    """Return the Python files and native code of an engine's package, and an `__init__.py` for each folder above it."""
    parts = engine.module.split(".")
    files = {}
    for path in sorted(path for pattern in _PACKAGE for path in engine.folder.glob(pattern)):
        files["/".join(["code", *parts, str(path.relative_to(engine.folder))])] = (path.read_bytes(), 0o644)
    for depth in range(1, len(parts)):
        path = engine.folder.parents[len(parts) - depth - 1] / "__init__.py"
        files["/".join(["code", *parts[:depth], "__init__.py"])] = (path.read_bytes() if path.exists() else b"", 0o644)
    return files
