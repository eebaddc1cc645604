"""What a process holds and a test must give back: descriptors, mappings of deleted files, threads, children.

All but threads is read from proc(5), so that what native code holds counts too.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

# Kind -> what is held of it, each under a name of its own.
Holdings = Mapping[str, frozenset[str]]

_DESCRIPTORS = Path("/proc/self/fd")
_TASKS = Path("/proc/self/task")
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
# Taken once for the whole process: the fonts that matplotlib has read, and multiprocessing's tracker and shared memory.
_OF_THE_PROCESS = (".ttf", "multiprocessing.resource_tracker", "/dev/shm/pym-")  # noqa: S108 - only compared
# Machines of a module or of the session are made when the first test needs them, and kept for others.
_TEMPLATE_IN_USE = re.compile(r"/templates/[\w-]+\.lock\b")
# Anonymous memory has such a name, and never was a file.
_MEMORY = ("/dev/zero", "/memfd:", "/SYSV")
_NAMED_MAX = 5
_libc = ctypes.CDLL(None, use_errno=True)


def holdings() -> Holdings:
    """Return what this process holds now."""
    return {
        "descriptors": _descriptors(),
        "mappings of deleted files": _mappings_of_deleted_files(),
        "threads": frozenset(f"{thread.name} ({thread.native_id})" for thread in threading.enumerate()),
        "children": _children(),
        "adoptions of orphans": frozenset({"prctl(PR_SET_CHILD_SUBREAPER)"}) if _adopts_orphans() else frozenset(),
    }


def leaks(before: Holdings, after: Holdings) -> list[str]:
    """Return a line for each kind that has grown, with the names of what is new."""
    found = []
    for kind, now in after.items():
        if (count := len(now) - len(before[kind])) > 0:
            new = sorted(now - before[kind])
            more = f" and {len(new) - _NAMED_MAX} more" if len(new) > _NAMED_MAX else ""
            found.append(f"{count} {kind}: {', '.join(new[:_NAMED_MAX])}{more}")
    return found


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Raise AssertionError at the end if this process holds more than at the beginning."""
    before = holdings()
    yield
    left = leaks(before, holdings())
    assert not left, "the test left behind: " + "; ".join(left)


@contextmanager
def as_if_the_process_ended() -> Iterator[None]:
    """Give back at the end what code of the guest leaves to the end of its process: descriptors, and orphans."""
    before = _open_descriptors().keys()
    try:
        yield
    finally:
        for number in _open_descriptors().keys() - before:
            os.close(number)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def templates_in_use() -> frozenset[str]:
    """Return the locks of templates that this process holds."""
    return frozenset(target for target in _open_descriptors().values() if _TEMPLATE_IN_USE.search(target))


def _open_descriptors() -> dict[int, str]:
    found = {}
    for path in _DESCRIPTORS.iterdir():
        with suppress(FileNotFoundError):  # the one that listed the folder
            found[int(path.name)] = str(path.readlink())
    return found


def _descriptors() -> frozenset[str]:
    found = _open_descriptors().items()
    return _own(f"{number} ({target})" for number, target in found if not _TEMPLATE_IN_USE.search(target))


def _own(found: Iterable[str]) -> frozenset[str]:
    return frozenset(one for one in found if not any(word in one for word in _OF_THE_PROCESS))


def _mappings_of_deleted_files() -> frozenset[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    places = (line.split(maxsplit=5) for line in lines if line.endswith("(deleted)"))
    return _own(f"{words[5]} at {words[0]}" for words in places if not words[5].startswith(_MEMORY))


def _children() -> frozenset[str]:
    found = set()
    for task in _TASKS.iterdir():
        with suppress(OSError):  # the thread has ended, or the child
            for number in (task / "children").read_text().split():
                command = Path("/proc", number, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.add(f"process {number}: {command[:100].strip() or 'has ended, and nobody waited for it'}")
    return _own(found)


def _adopts_orphans() -> bool:
    answer = ctypes.c_int()
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer))
    return bool(answer.value)
