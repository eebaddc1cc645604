"""How anyone can look at an engine's files without the rig: the optional module `stock` of the engine's package.

It writes the part of a shell script that opens the files with the engine's own tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rig.engines.engine import Engine
from rig.workloads.operations import Content, Table


@runtime_checkable
class Stock(Protocol):
    """What a module `stock` offers."""

    # The Debian packages with the tools, for the README.
    PACKAGES: Sequence[str]
    # A program without which the script cannot run.
    TOOL: str

    def script(self, tables: Sequence[Table]) -> str:
        """Return lines of POSIX shell that run in the directory with the engine's files.

        They print what the engine's own check says, and define a function `rows` that prints all rows of the tables,
        as `rows_text` spells them.
        """

    def rows_text(self, tables: Sequence[Table], content: Content) -> str:
        """Return a content as the function `rows` of the script prints it."""


def stock_of(engine: Engine) -> Stock | None:
    """Return an engine's module `stock`, or None; raise TypeError if it lacks something."""
    module = engine.part("stock")
    if module is not None and not isinstance(module, Stock):
        raise TypeError(f"{engine.module}.stock lacks what the rig needs; see docs/extend/engine.md")
    return module
