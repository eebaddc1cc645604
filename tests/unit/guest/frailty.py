"""Build the engine of `tests/frail` and install it in a folder, so that the rig finds it as it finds any engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rig.host import processes
from tests.unit.engines import outside as engines

_SOURCE = Path(__file__).resolve().parents[2] / "frail"


@contextmanager
def install(folder: Path, spec: str = "", flags: Sequence[str] = ()) -> Iterator[None]:
    """Have the engine `frail` for the length of a block; `spec` replaces the last argument of its Spec."""
    package = shutil.copytree(_SOURCE, folder / "frail", ignore=shutil.ignore_patterns("__pycache__"))
    if spec:
        path = package / "spec.py"
        path.write_text(path.read_text().replace("state_limit_s=5", spec))
    library = str(package / "native.so")
    processes.run(["gcc", "-shared", "-fPIC", "-O1", *flags, "-o", library, str(package / "native.c")], timeout_s=60)
    engines.name_it(folder, "frail")
    with engines.install(folder):
        yield
