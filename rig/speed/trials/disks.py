"""The disks under a file system, and what the block layer has counted there.

A partition, a device-mapper target and an md array count no flushes of their own, so the whole disks below them are
read; below a loop device is the file system of its backing file. A disk counts the requests of every program. The
kernel's Documentation/block/stat.rst describes the counters; they include flushes since Linux 5.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

_NODES = Path("/sys/dev/block")
_SECTOR_BYTES = 512


@dataclass(frozen=True)
class Disk:
    """A whole disk, as the kernel describes it; a text is empty where the kernel does not say."""

    # The kernel's name, such as `sda`.
    name: str
    model: str
    # `write back` if it has a volatile cache, which a flush empties; to `write through` the kernel sends no flushes.
    write_cache: str
    rotational: str


@dataclass(frozen=True)
class Counters:
    """What disks have carried out, summed; the figures of flushes are None where the kernel does not count them."""

    write_count: int
    written_bytes: int
    flush_count: int | None
    flush_ms: int | None

    def since(self, before: Counters) -> Counters:
        """Return the difference to an earlier reading."""
        return Counters(*map(_difference, _values(self), _values(before)))  # type: ignore[arg-type]


def disks_of(device: str, nodes: Path = _NODES) -> tuple[Path, ...]:
    """Return the sysfs folders of the whole disks below a device `MAJOR:MINOR`; empty if none can be seen."""
    node = nodes / device
    return tuple(sorted(set(_whole(node.resolve())))) if node.exists() else ()


def describe(folder: Path) -> Disk:
    """Return what the kernel says about a disk."""
    return Disk(
        folder.name, _text_of(folder / "device/model"), _text_of(folder / "queue/write_cache"),
        _text_of(folder / "queue/rotational"),
    )  # fmt: skip


def backing_file(folder: Path) -> str:
    """Return the file behind a loop device; empty for any other disk."""
    return _text_of(folder / "loop/backing_file")


def counters(folders: Sequence[Path]) -> Counters | None:
    """Return what these disks have counted until now; None without disks, or if one cannot be read."""
    try:
        read = [parse((folder / "stat").read_text()) for folder in folders]
    except OSError:
        return None
    return total(read) if read else None


def parse(text: str) -> Counters:
    """Return the counters of one line of `stat`; raise ValueError for anything else."""
    values = [int(word) for word in text.split()]
    if len(values) < 11 or min(values) < 0:
        raise ValueError(f"no statistics of a block device: {text!r}")
    has_flushes = len(values) >= 17
    return Counters(
        values[4], values[6] * _SECTOR_BYTES, values[15] if has_flushes else None, values[16] if has_flushes else None
    )


def total(read: Sequence[Counters]) -> Counters:
    """Return the sum of several disks."""
    columns = zip(*map(_values, read), strict=True)
    return Counters(*(None if None in column else sum(filter(None, column)) for column in columns))  # type: ignore[arg-type]


def _whole(folder: Path) -> list[Path]:
    below = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    if below:
        return [disk for each in below for disk in _whole(each.resolve())]
    return [folder.parent] if (folder / "partition").exists() else [folder]


def _values(counters: Counters) -> list[int | None]:
    return [getattr(counters, field.name) for field in fields(Counters)]


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
