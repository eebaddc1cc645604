"""What SQLite's files go through, seen from outside: by their sizes, times and headers (sqlite.org/fileformat.html).

Only the journal and the WAL are opened here. Closing a second descriptor of the database in its own process would drop
the locks that SQLite holds (sqlite.org/howtocorrupt.html, section 2.2); the locks of a WAL are on another file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

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
# What an opening of the database meets.
MET = (HOT, SUPER, EMPTY_JOURNAL, ENDED_JOURNAL, OTHER_JOURNAL, LOG, OLDER)

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LONG_FRAMES = 5000
_WAL_HEADER, _FRAME_HEADER_BYTES = struct.Struct(">8I"), 24


class FileWatch:
    """Watches the files of one connection over its commits, while it is on.

    The time of a commit is measured. So during it the watch looks only at what will be gone; `take` does the rest.
    """

    def __init__(self, path: str) -> None:
        self._journal, self._wal = f"{path}-journal", f"{path}-wal"
        self._files = path, self._wal
        # None until the first transaction.
        self._before: tuple[tuple[int, int], ...] | None = None
        self._is_to_be_read = False
        self._sequence: int | None = None
        self._had_journal = False
        self.is_on = False
        self.seen: list[str] = []

    def begin(self) -> None:
        """Note the files as the first transaction begins; later transactions begin as the last `take` noted them."""
        if self.is_on and self._before is None:
            self._before = self._stamps()

    def note_operations(self) -> None:
        """Note what has been written before the commit."""
        if not self.is_on:
            return
        if self._stamps() != self._before:
            self.seen.append(SPILLED)
        self._had_journal = os.path.exists(self._journal)

    def note_commit(self) -> None:
        """Note that a commit has left something to read."""
        self._is_to_be_read = True

    def _look(self) -> None:
        """Note what the last commit has left."""
        self.seen += _journal_ended(self._journal, had_one=self._had_journal)
        with _open(self._wal) as wal:
            header, size = _at(wal, 0, _WAL_HEADER.size), _size(wal)
        if len(header) < _WAL_HEADER.size:
            self._sequence = None
            return
        _, _, page_bytes, sequence, *_ = _WAL_HEADER.unpack(header)
        if self._sequence is not None and sequence != self._sequence:
            self.seen.append(RESTARTED)
        self._sequence = sequence
        if size > _LONG_FRAMES * (page_bytes + _FRAME_HEADER_BYTES):
            self.seen.append(GREW)

    def note_checkpoint(self, frame_count: int, moved_count: int) -> None:
        """Note how far a checkpoint came."""
        if frame_count > 0:
            self.seen.append(COMPLETE if moved_count == frame_count else PARTIAL)

    def take(self) -> list[str]:
        """Return what has been seen since the last call."""
        if self.is_on:
            if self._is_to_be_read:
                self._is_to_be_read = False
                self._look()
            self._before = self._stamps()
        taken, self.seen = self.seen, []
        return taken

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        """Return when and how far the database and its WAL have been written."""
        stamps = []
        for path in self._files:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                stamps.append((0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_size))
        return tuple(stamps)


def meetings(path: str) -> Iterator[str]:
    """Yield what the next opening of a database will meet."""
    with _open(f"{path}-journal") as journal:
        if journal is not None:
            yield _kind_of(journal)
    with _open(f"{path}-wal") as wal:
        header = _at(wal, 0, _WAL_HEADER.size + _FRAME_HEADER_BYTES)
        if len(header) == _WAL_HEADER.size + _FRAME_HEADER_BYTES:
            frame_bytes = _WAL_HEADER.unpack_from(header)[2] + _FRAME_HEADER_BYTES
            salts = header[16:24]
            if header[_WAL_HEADER.size + 8 : _WAL_HEADER.size + 16] == salts:
                yield LOG
            count = (_size(wal) - _WAL_HEADER.size) // frame_bytes
            last = _WAL_HEADER.size + (count - 1) * frame_bytes
            if count and _at(wal, last + 8, 8) != salts:
                yield OLDER


def _kind_of(journal: int) -> str:
    head = _at(journal, 0, len(_MAGIC))
    if not head:
        return EMPTY_JOURNAL
    if head == bytes(len(head)):
        return ENDED_JOURNAL
    if head != _MAGIC:
        return OTHER_JOURNAL
    # A super-journal's name is at the end, followed by the magic number.
    size = _size(journal)
    is_super = size > 2 * len(_MAGIC) and _at(journal, size - len(_MAGIC), len(_MAGIC)) == _MAGIC
    return SUPER if is_super else HOT


def _journal_ended(path: str, *, had_one: bool) -> list[str]:
    with _open(path) as journal:
        if journal is None:
            return [REMOVED] if had_one else []
        if not _size(journal):
            return [TRUNCATED]
        return [ZEROED] if _at(journal, 0, len(_MAGIC)) == bytes(len(_MAGIC)) else []


@contextmanager
def _open(path: str) -> Iterator[int | None]:
    """Open a file for the length of a block; give None if it is missing or the disk refuses."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _size(file: int | None) -> int:
    return 0 if file is None else os.fstat(file).st_size


def _at(file: int | None, offset: int, size: int) -> bytes:
    """Return a part of a file; nothing if there is no file or the disk refuses to read it."""
    try:
        return b"" if file is None else os.pread(file, size, offset)
    except OSError:
        return b""
