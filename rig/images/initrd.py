"""The first root directory of a guest: busybox, our init, and the modules of the kernel."""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from pathlib import Path

from rig.contract.errors import HostError
from rig.images import cpio, recipes
from rig.images.recipes import Recipe


def make(root: Path, tree: Path, wanted: Recipe) -> bytes:
    """Return an initrd, from a root directory with busybox and the folder of the kernel's modules.

    Raise HostError for a module that the kernel lacks.
    """
    files = {
        "init": ((recipes.RECIPES / "init").read_bytes(), 0o755),
        "bin/busybox": ((root / "usr/bin/busybox").read_bytes(), 0o755),
    }
    for folder in ("proc", "sys", "dev", "new"):
        files[f"{folder}/.keep"] = (b"", 0o644)
    built_in = {Path(line).stem for line in (tree / "modules.builtin").read_text().splitlines()}
    inside = [name for name in wanted.modules + wanted.modules_on_demand if name in built_in]
    for name in wanted.modules + wanted.modules_on_demand:
        if name not in inside:
            files[f"modules/{name}.ko"] = (_module(tree, name), 0o644)
    files["modules/boot-order"] = (_lines(f"{name}.ko" for name in wanted.modules if name not in inside), 0o644)
    files["modules/built-in"] = (_lines(inside), 0o644)
    return cpio.archive(files)


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _module(tree: Path, name: str) -> bytes:
    paths = sorted(tree.rglob(f"{name}.ko*"))
    if not paths:
        raise HostError(f"kernel {tree.name} has no module {name}; correct the recipe in vm-images")
    return lzma.decompress(paths[0].read_bytes()) if paths[0].suffix == ".xz" else paths[0].read_bytes()
