"""Engines from outside the tree, as they are found once they are installed: variants of the one in `examples`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rig.analysis.dossiers import dossier_of
from rig.engines.registry import GROUP, engines

APPENDLOG = Path(__file__).resolve().parents[3] / "examples" / "appendlog" / "appendlog"


def write(folder: Path, name: str, *, without: tuple[str, ...] = (), **changed: Mapping[str, str]) -> None:
    """Write the engine of `examples` under another name, without some modules, with some text of others replaced.

    The folder is then as a place where pip installed it.
    """
    package = folder / name
    package.mkdir(parents=True)
    for path in sorted(APPENDLOG.glob("*.py")):
        if path.stem not in without:
            text = path.read_text().replace('name="appendlog"', f'name="{name}"')
            for old, new in changed.get(path.stem, {}).items():
                assert old in text, f"{path} has no {old!r}"
                text = text.replace(old, new)
            (package / path.name).write_text(text)
    name_it(folder, name, has_dossier=True)


def name_it(folder: Path, name: str, *, has_dossier: bool = False) -> None:
    """Write what pip writes next to a package, so that the rig finds the engine in it."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    dossier = f"\n[rig.dossiers]\n{name} = {name}.dossier\n" if has_dossier else ""
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}\n{dossier}")


@contextmanager
def install(folder: Path) -> Iterator[None]:
    """Find the engines in a folder for the length of a block."""
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    _forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if (folder / name.partition(".")[0]).is_dir():
                del sys.modules[name]
        _forget()


def _forget() -> None:
    importlib.invalidate_caches()
    engines.cache_clear()
    dossier_of.cache_clear()
