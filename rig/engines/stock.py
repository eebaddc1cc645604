"""How anyone can look at an engine's files without the rig: the optional module `stock` of the engine's package.

It writes the part of a shell script that opens the files with the engine's own programs. They are on the host, or
`rig export` packs the guest's programs with their libraries. The script around it (`rig.campaign.export`) first reads
files that no cut has touched in the same way. Only a host where that works says something about the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from rig.engines.engine import Engine
from rig.engines.own import Task
from rig.workloads.operations import Content, Table

# The guest's Python with what bindings import, as `Stock.FILES`; the functions of a script start it as `python`.
PYTHON_FILES: Sequence[str] = (
    "usr/bin/python3",
    "usr/lib/python3.*/*.py",
    *(f"usr/lib/python3.*/{name}/*.py" for name in ("collections", "encodings", "importlib", "json", "re")),
)
PYTHON = 'python() { PYTHONHOME="$work/engine/usr" engine usr/bin/python3 -B "$@"; }\n'


@runtime_checkable
class Stock(Protocol):
    """What a module `stock` offers."""

    # The Debian packages with the tools, for the README; empty if the folder has all that the script needs.
    PACKAGES: Sequence[str]
    # The engine's files in the guest image that the folder gets, as patterns below its root. Libraries are added.
    FILES: Sequence[str]

    def script(self, tables: Sequence[Table], settings: Mapping[str, str]) -> str:
        """Return lines of POSIX shell that define functions; each runs in a directory with the engine's files.

        `rows` prints all rows of the tables as `rows_text` spells them, and on standard error what is wrong, if
        anything is. `check` is optional; it prints what the engine's own check says.
        They may use a folder `$work`, and `engine PATH ...`, which runs a program of `FILES` with its own libraries.
        """

    def rows_text(self, tables: Sequence[Table], content: Content) -> str:
        """Return a content as the function `rows` of the script prints it."""


@runtime_checkable
class OwnStock(Protocol):
    """What a module `stock` offers of an engine that makes its own transactions, and has no rows to show."""

    def own_script(self, task: Task) -> str:
        """Return lines of shell as `Stock.script` does; `rows` has the file with the expected rows as its argument.

        A function `control` makes a directory `$work/control` with files that have one transaction and no cut.
        """

    def numbers_text(self, numbers: Collection[int]) -> str:
        """Return what `rows` prints if these transactions are there."""


def stock_of(engine: Engine) -> Stock | None:
    """Return the module `stock` of an engine with tables, or None; raise TypeError if it lacks something."""
    module = None if engine.own_driver else engine.part("stock")
    if module is not None and not isinstance(module, Stock):
        raise _lacking(engine)
    return module


def own_stock_of(engine: Engine) -> OwnStock | None:
    """Return the module `stock` of an engine that makes its own transactions, or None; raise TypeError likewise."""
    module = engine.part("stock") if engine.own_driver else None
    if module is not None and not isinstance(module, OwnStock):
        raise _lacking(engine)
    return module


def _lacking(engine: Engine) -> TypeError:
    return TypeError(f"{engine.module}.stock lacks what the rig needs; see docs/extend/engine.md")
