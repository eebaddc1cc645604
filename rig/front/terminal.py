"""Where the rig prints to, and what it does when the reader has left, as in `rig plan | head`."""

from __future__ import annotations

import sys

from rich.console import Console

# Of output that is kept in a file.
_KEPT_WIDTH = 120


class Terminal(Console):
    """A console that raises BrokenPipeError when its reader has left; rich's own exits with 1, a broken promise."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError("nobody reads what we print") from None


def standard_output() -> Terminal:
    """Return the console for answers: as wide as the terminal, or as a page where the output is kept."""
    return Terminal() if sys.stdout.isatty() else Terminal(width=_KEPT_WIDTH)


def standard_error() -> Terminal:
    """Return the console for what happens meanwhile."""
    return Terminal(stderr=True)
