"""What everything that takes long reports to."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of what takes long; called from several threads."""

    def says(self, text: str, /) -> None:
        """Show a line of text."""

    def expect(self, count: int, /) -> None:
        """Expect `count` more cuts, trials or probes."""

    def advance(self, count: int, /) -> None:
        """Count cuts, trials or probes that are over."""
