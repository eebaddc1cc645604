"""The disk space that files take while a trial runs, and the most that each of them took.

A process of its own looks at the directory about once a millisecond, and never for more than half of the time. A file
that lives shorter than this step may be missed, and so may a file that is open but removed, so the files took at least
what the figures say. Looking takes processor time, so a trial that is watched must not be compared with one that is
not.

A file takes its allocated blocks (`st_blocks` of stat(2)). So the holes of a sparse file take nothing, and data that
waits in memory for its blocks counts as soon as the file system has set them aside. A file that has two names, or gets
another name meanwhile, counts once.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

_STEP_S = 1e-3
_BLOCK_BYTES = 512
# A number in decimal digits, or in hexadecimal ones as capitals.
_NUMBER = re.compile(r"[0-9A-F]*[0-9][0-9A-F]*")


class Watcher:
    """A process that watches a directory from `begin` to `end`; it ends with the block, and with its parent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Self:
        # Fork before the engine has threads: a lock that a thread holds would stay locked in the fork for ever.
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_watch, args=(theirs, self._pipe, self._directory), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def begin(self) -> None:
        """Watch from now on."""
        self._pipe.send(None)

    def end(self) -> dict[str, Any] | None:
        """Look once more and return what was seen, see `rig.speed.speeds`; None if its files cannot be seen."""
        self._pipe.send(None)
        facts: dict[str, Any] | None = self._pipe.recv()
        return facts

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        # A process that a trial left behind may still hold the pipe.
        self._process.kill()
        self._process.join()


class Peak:
    """The most that files took: each file, each group whose names differ only in numbers, and all files."""

    def __init__(self) -> None:
        self._bytes = 0
        self._files: dict[str, int] = {}
        self._groups: dict[str, int] = {}

    def add(self, seen: Mapping[str, int]) -> None:
        """Take in what was seen at one instant."""
        together = Counter[str]()
        for name, size_bytes in seen.items():
            together[group_of(name)] += size_bytes
            self._files[name] = max(size_bytes, self._files.get(name, 0))
        for group, size_bytes in together.items():
            self._groups[group] = max(size_bytes, self._groups.get(group, 0))
        self._bytes = max(self._bytes, sum(seen.values()))

    @property
    def message(self) -> dict[str, Any]:
        """Return the peaks in JSON's types; a group of one file has the file's name."""
        members: dict[str, list[str]] = {}
        for name in self._files:
            members.setdefault(group_of(name), []).append(name)
        groups = {names[0] if len(names) == 1 else group: self._groups[group] for group, names in members.items()}
        return {"peak_bytes": self._bytes, "files": self._files, "groups": groups}


def group_of(name: str) -> str:
    """Return a name with `*` for each number in it."""
    return _NUMBER.sub("*", name)


def allocated_bytes(directory: Path) -> dict[str, int]:
    """Return the bytes that each file below a directory takes, by its path there; a file that vanishes is absent."""
    sizes: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(directory / folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            name = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                folders.append(f"{name}/")
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    sizes[name] = status.st_blocks * _BLOCK_BYTES
    return sizes


def _watch(pipe: Connection, others_end: Connection, directory: Path) -> None:
    """Look at a directory from the first word until the second, and answer the second; end with the pipe."""
    # Otherwise the pipe would not end with the other process.
    others_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError):
        pipe.recv()
        pipe.send(_poll(pipe, directory))
        pipe.recv()
    os._exit(0)


def _poll(pipe: Connection, directory: Path) -> dict[str, Any] | None:
    peak, is_over = Peak(), False
    while True:
        begin_s = time.perf_counter()
        try:
            peak.add(allocated_bytes(directory))
        except OSError:
            pipe.recv()
            return None
        if is_over:
            return peak.message
        if is_over := pipe.poll(max(_STEP_S, time.perf_counter() - begin_s)):
            pipe.recv()
