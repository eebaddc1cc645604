"""What a part of a file is to its engine: the optional module `roles` of the engine's package.

Without it the name of the file and the offset remain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from rig.engines.engine import Engine

# Reads a file of the engine: its path below the engine's directory, offset and length in bytes. Shorter at its end.
ReadFile = Callable[[str, int, int], bytes]


@runtime_checkable
class FileRoles(Protocol):
    """What a module `roles` offers."""

    def role(self, path: str, offset_bytes: int, length_bytes: int, read: ReadFile) -> str:
        """Return what a part of a file is, in the engine's words; empty if that is not known.

        `path` is relative to the engine's directory, and `read` shows the files as they are once the part has landed.
        """


def roles_of(engine: Engine) -> FileRoles | None:
    """Return an engine's module `roles`, or None; raise TypeError if it lacks something."""
    module = engine.part("roles")
    if module is not None and not isinstance(module, FileRoles):
        raise TypeError(f"{engine.module}.roles lacks what the rig needs; see docs/extend/engine.md")
    return module
