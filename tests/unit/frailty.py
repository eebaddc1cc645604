"""Build the engine of `tests/frail` and install it in a folder, so that the rig finds it as it finds any engine."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig import host
from rig.engines import registry

_SOURCE = Path(__file__).resolve().parents[1] / "frail"


@contextmanager
def installed(folder: Path, spec: str = "", flags: Sequence[str] = ()) -> Iterator[None]:
    """Have the engine `frail` for the length of a block; `spec` replaces the last argument of its Spec."""
    package = shutil.copytree(_SOURCE, folder / "frail", ignore=shutil.ignore_patterns("__pycache__"))
    if spec:
        path = package / "spec.py"
        path.write_text(path.read_text().replace("state_limit_s=10", spec))
    library = str(package / "native.so")
    host.run(["gcc", "-shared", "-fPIC", "-O1", *flags, "-o", library, str(package / "native.c")], timeout_s=60)
    about = folder / "frail-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: frail\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[rig.engines]\nfrail = frail\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        _forget()
        yield
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "frail"]:
        del sys.modules[name]
    registry.engines.cache_clear()
