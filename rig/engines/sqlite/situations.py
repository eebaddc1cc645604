"""What SQLite's files go through, seen from outside: by their sizes, times and headers (sqlite.org/fileformat.html).

Only the journal and the WAL are opened here. Closing a second descriptor of the database in its own process would drop
the locks that SQLite holds (sqlite.org/howtocorrupt.html, section 2.2); those of a WAL are on another file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

SPILLED = "the cache spilled before the commit"
RESTARTED = "the log began again at its start"
GREW = "the log grew past 5000 pages"
COMPLETE, PARTIAL = "a checkpoint moved the whole log", "a checkpoint moved a part of the log"
REMOVED, TRUNCATED, ZEROED = "the journal was removed", "the journal was truncated", "the journal's header was zeroed"
# What a commit or a checkpoint does.
HAPPEN = (SPILLED, RESTARTED, GREW, COMPLETE, PARTIAL, REMOVED, TRUNCATED, ZEROED)
HOT, SUPER = "a hot journal", "a hot journal that names a super-journal"
EMPTY_JOURNAL, ENDED_JOURNAL = "a journal of no bytes", "a journal with a zeroed header"
OTHER_JOURNAL = "a journal whose header is neither"
LOG, OLDER = "a log to recover", "a log with older frames after its end"
# What is met when the database is opened.
MET = (HOT, SUPER, EMPTY_JOURNAL, ENDED_JOURNAL, OTHER_JOURNAL, LOG, OLDER)

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LONG_FRAMES = 5000
_WAL_HEADER, _FRAME_HEADER_BYTES = struct.Struct(">8I"), 24


class Watch:
    """Watches the files of one connection over its commits.

    What a commit takes is measured, so only what is gone after it is looked at during it; the rest is left to `taken`.
    """

    def __init__(self, path: str) -> None:
        self._journal, self._wal = Path(f"{path}-journal"), Path(f"{path}-wal")
        self._files = path, f"{path}-wal"
        # None until the first transaction.
        self._before: tuple[tuple[int, int], ...] | None = None
        self._is_to_be_read = False
        self._sequence: int | None = None
        self._had_journal = False
        self.seen: list[str] = []

    def begin(self) -> None:
        """Note the files as the first transaction begins; later ones begin as the last call of `taken` left them."""
        if self._before is None:
            self._before = self._written()

    def carried_out(self) -> None:
        """Note what has been written before the commit."""
        if self._written() != self._before:
            self.seen.append(SPILLED)
        self._had_journal = os.path.exists(self._journal)  # noqa: PTH110 - a Path takes three times as long

    def ended(self) -> None:
        """Note that a commit has left something to read."""
        self._is_to_be_read = True

    def _read(self) -> None:
        """Note what the last commit has left."""
        self.seen += _journal_ended(self._journal, had_one=self._had_journal)
        header = _head(self._wal, _WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            self._sequence = None
            return
        _, _, page_bytes, sequence, *_ = _WAL_HEADER.unpack(header)
        if self._sequence is not None and sequence != self._sequence:
            self.seen.append(RESTARTED)
        self._sequence = sequence
        if self._wal.stat().st_size > _LONG_FRAMES * (page_bytes + _FRAME_HEADER_BYTES):
            self.seen.append(GREW)

    def checkpointed(self, frame_count: int, moved_count: int) -> None:
        """Note how far a checkpoint came."""
        if frame_count > 0:
            self.seen.append(COMPLETE if moved_count == frame_count else PARTIAL)

    def taken(self) -> list[str]:
        """Return what has been seen since the last call."""
        if self._is_to_be_read:
            self._is_to_be_read = False
            self._read()
        self._before = self._written()
        found, self.seen = self.seen, []
        return found

    def _written(self) -> tuple[tuple[int, int], ...]:
        """Return when and how far the database and its WAL have been written."""
        found = []
        for path in self._files:
            try:
                status = os.stat(path)  # noqa: PTH116 - a Path takes three times as long
            except FileNotFoundError:
                found.append((0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_size))
        return tuple(found)


def met(path: str) -> Iterator[str]:
    """Yield what the next opening of a database will meet."""
    journal, wal = Path(f"{path}-journal"), Path(f"{path}-wal")
    if journal.exists():
        head = _head(journal, len(_MAGIC))
        if not head:
            yield EMPTY_JOURNAL
        elif head == bytes(len(head)):
            yield ENDED_JOURNAL
        else:
            # A super-journal's name is at the end, followed by the magic number.
            is_super = _tail(journal, len(_MAGIC)) == _MAGIC and journal.stat().st_size > 2 * len(_MAGIC)
            yield (SUPER if is_super else HOT) if head == _MAGIC else OTHER_JOURNAL
    header = _head(wal, _WAL_HEADER.size + _FRAME_HEADER_BYTES)
    if len(header) == _WAL_HEADER.size + _FRAME_HEADER_BYTES:
        frame_bytes = _WAL_HEADER.unpack_from(header)[2] + _FRAME_HEADER_BYTES
        salts = header[16:24]
        if header[_WAL_HEADER.size + 8 : _WAL_HEADER.size + 16] == salts:
            yield LOG
        count = (wal.stat().st_size - _WAL_HEADER.size) // frame_bytes
        last = _WAL_HEADER.size + (count - 1) * frame_bytes
        if count and _at(wal, last + 8, 8) != salts:
            yield OLDER


def _journal_ended(path: Path, *, had_one: bool) -> list[str]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return [REMOVED] if had_one else []
    if not size:
        return [TRUNCATED]
    return [ZEROED] if _head(path, len(_MAGIC)) == bytes(len(_MAGIC)) else []


def _head(path: Path, size: int) -> bytes:
    return _at(path, 0, size)


def _tail(path: Path, size: int) -> bytes:
    return _at(path, max(path.stat().st_size - size, 0), size)


def _at(path: Path, offset: int, size: int) -> bytes:
    """Return a part of a file; nothing if there is no such file or the disk refuses to read it."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            return file.read(size) or b""
    except OSError:
        return b""
