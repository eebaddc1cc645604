"""Show the progress of a campaign: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LINE_EVERY_S, _SILENT_S_MAX = 10, 60


class _Lines:
    """Progress as lines, one every few seconds."""

    def __init__(self, counted: str) -> None:
        self._counted = counted
        self._lock = threading.Lock()
        self._planned = self._judged = 0
        self._said_s = time.monotonic()

    def says(self, text: str) -> None:
        from rig.front.terminal import standard_error

        self._said_s = time.monotonic()
        standard_error().print(text, markup=False, highlight=False, soft_wrap=True)

    def expect(self, cut_count: int) -> None:
        with self._lock:
            self._planned += cut_count

    def advance(self, cut_count: int) -> None:
        with self._lock:
            self._judged += cut_count
            if time.monotonic() - self._said_s < _LINE_EVERY_S:
                return
            self._said_s = time.monotonic()
        self.says(self._count_text)

    def beat_until(self, over: threading.Event) -> None:
        """Say after each silence that it goes on: a state may take minutes, if a program waits in its recovery."""
        while not over.wait(_LINE_EVERY_S):
            if (silent_s := time.monotonic() - self._said_s) >= _SILENT_S_MAX:
                self.says(f"{self._count_text}; at work, with no news for {silent_s:.0f} s")

    @property
    def _count_text(self) -> str:
        return f"{self._judged} of {self._planned} {self._counted} so far"


@contextmanager
def show(doing: str = "recording and checking crash states", counted: str = "cuts judged") -> Iterator[_Lines]:
    """Show progress on standard error for the length of a block: what is being done, and what is counted."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from rig.front.terminal import standard_error

    console = standard_error()
    if not console.is_terminal:
        lines, over = _Lines(counted), threading.Event()
        beat = threading.Thread(target=lines.beat_until, args=(over,), name="progress", daemon=True)
        beat.start()
        try:
            yield lines
        finally:
            over.set()
            beat.join()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, doing, counted)


class _Bar(_Lines):
    """Progress as a bar; the total grows as recordings are made and cut."""

    def __init__(self, bar: object, doing: str, counted: str) -> None:
        from rich.progress import Progress

        super().__init__(counted)
        assert isinstance(bar, Progress)
        self._bar = bar
        self._task = bar.add_task(doing, total=None)

    def says(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def expect(self, cut_count: int) -> None:
        super().expect(cut_count)
        self._bar.update(self._task, total=self._planned)

    def advance(self, cut_count: int) -> None:
        self._bar.advance(self._task, cut_count)
