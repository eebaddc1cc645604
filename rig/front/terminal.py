"""The consoles that the rig prints to. A closed pipe, as in `rig plan | head`, raises BrokenPipeError."""

from __future__ import annotations

import sys

from rich.console import Console

# For output that does not go to a terminal.
_KEPT_WIDTH = 120


class Terminal(Console):
    """A console that raises BrokenPipeError on a closed pipe; rich's own exits with 1, the code of a broken promise."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError("the reader of our output has closed it") from None


def standard_output() -> Terminal:
    """Return the console for results: as wide as the terminal, or 120 columns if the output is not a terminal."""
    return Terminal() if sys.stdout.isatty() else Terminal(width=_KEPT_WIDTH)


def standard_error() -> Terminal:
    """Return the console for progress."""
    return Terminal(stderr=True)
