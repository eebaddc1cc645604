"""Recordings of recoveries: what was written to a disk while file system and database recovered from a crash state.

A recovery's recording is a write log like any other, and self-contained: a mark that names the crash state, the content
of the disk in that state as one epoch, then what dm-log-writes saw until the disk was unmounted. So epochs, fault
models, crash states, their contents and the verifier need no special case. The recording is void, and never kept,
unless a replay of all of it equals the guest's final disk.

If the recovered database worked on, the recording is one of a later life, and has the marks of its transactions.

Recoveries cannot be repeated bit for bit, so the recordings are kept in `recoveries/` of their scenario: one `NAME.zst`
each, `NAME.trace.zst` with its block trace (`rig.faults.log.submissions`; recordings of earlier versions have none),
and `index.json`, written last, which lists them. Each is identified by the address of the crash state that was
recovered from (`rig.faults.states.addresses`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import zstandard

from rig.contract import geometry
from rig.contract.errors import RecordingError
from rig.contract.messages import decode
from rig.contract.results import LiveFinding
from rig.faults import Address, CrashState, LogError, LogFile, Logs, StateIdError, WriteLog, everything_unflushed_lost
from rig.faults.log.log import HEADER, MAGIC, SUPERBLOCK, VERSION, EntryFlag
from rig.faults.log.submissions import one_by_one
from rig.faults.states.rendering import content
from rig.host.files import atomic_write
from rig.recordings import archive
from rig.recordings.timeline import Timeline

_BLOCK_BYTES = 4096
_INDEX = "index.json"
# The longest block trace that a guest's buffers hold (`rig.guest.devices.blocktrace`), with what precedes it.
_TRACE_BYTES_MAX = 1 << 24


@dataclass(frozen=True)
class Recovery:
    """One recorded recovery of a scenario."""

    # The address of the crash state that was recovered from.
    state: str
    # Where the files of the database were afterwards: (offset, length) in bytes, sorted.
    files: tuple[tuple[int, int], ...]
    # For a later life: how many transactions the database showed at the end of each life before it.
    lives: tuple[int, ...] = ()
    # How the engine failed when it worked on after its recovery; such a life has no recording.
    failure: LiveFinding | None = None

    @property
    def address(self) -> Address:
        """Return the address of the crash state that was recovered from, taken apart."""
        return Address.parse(self.state)


@dataclass(frozen=True)
class OpenRecovery:
    """The recording of a recovery, unpacked to the size of a clone's recording disk."""

    # The log of the recovery is the only one.
    logs: Logs
    # The address of the crash state that was recovered from.
    state: str
    # As in `Recovery`.
    lives: tuple[int, ...] = ()

    @property
    def log(self) -> WriteLog:
        """Return the log."""
        return self.logs.first

    @property
    def address(self) -> Address:
        """Return the address of the crash state that was recovered from, taken apart."""
        return Address.parse(self.state)

    @property
    def first_entry(self) -> int:
        """Return the FLUSH after the content that was recovered from; the recovery wrote everything later."""
        return int(np.flatnonzero(self.log.flags & EntryFlag.FLUSH)[0])

    @cached_property
    def life(self) -> Timeline | None:
        """Return when things happened in a later life; None if the database only recovered."""
        # The first mark names the crash state.
        return Timeline(self.log.marks[1:]) if self.lives else None

    @property
    def begin_entry(self) -> int:
        """Return the entry after which the recording is cut: a later life once the database has shown its content."""
        return self.life.setup.entry_index if self.life else self.first_entry

    def start(self) -> CrashState:
        """Return the state of this log in which no write of the recovery has reached the disk."""
        return everything_unflushed_lost(self.log, self.logs.epochs, self.first_entry + 1)


def self_contained(address: str, state: CrashState, log: WriteLog, recovery: bytes, device_bytes: int) -> bytes:
    """Return the log of a recovery from a state of a log, preceded by a mark for its address and by its content."""
    _, _, entry_count, sector_bytes = SUPERBLOCK.unpack_from(recovery)
    disk = content(log, state, device_bytes)
    used = np.flatnonzero(disk.reshape(-1, _BLOCK_BYTES).any(axis=1))
    runs = np.split(used, np.flatnonzero(np.diff(used) != 1) + 1) if len(used) else []
    mark = _name(address).encode()
    parts = [_entry(sector_bytes, 0, 0, EntryFlag.MARK, mark)]
    for run in runs:
        begin, end = int(run[0]) * _BLOCK_BYTES, (int(run[-1]) + 1) * _BLOCK_BYTES
        parts += [_entry(sector_bytes, begin, end - begin, 0), disk[begin:end].tobytes()]
    parts.append(_entry(sector_bytes, 0, 0, EntryFlag.FLUSH))
    superblock = SUPERBLOCK.pack(MAGIC, VERSION, len(runs) + 2 + entry_count, sector_bytes)
    return b"".join([superblock.ljust(sector_bytes, b"\0"), *parts, recovery[sector_bytes:]])


class Recoveries:
    """The recordings of recoveries of one scenario, in a folder."""

    def __init__(self, folder: Path, disk_mib: int, unit_bytes: int = 0) -> None:
        """Take the folder, the size of the disk, and what it writes atomically (0: any write)."""
        self.folder = folder
        self.disk_mib = disk_mib
        self.unit_bytes = unit_bytes
        self.device_bytes = disk_mib << 20

    def save(self, text: str, log: bytes, digest: str, trace: bytes = b"") -> None:
        """Store a self-contained log under the state that it recovers from; raise RecordingError if it is void.

        `digest` is the `rig.contract.geometry.disk_digest` of the guest's disk after the recovery; `trace` is the block
        trace of what the recovery did.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(text)
        if trace:
            atomic_write(self._trace_path(text), _compress(one_by_one(content_before(log)) + trace))
        atomic_write(path, _compress(log))
        try:
            with self.open(text) as made:
                disk = made.log.replay(made.log.entry_count, self.device_bytes).reshape(-1, geometry.CHUNK_BYTES)
        except RecordingError:
            self.remove(text)
            raise
        if geometry.disk_digest(chunk.tobytes() for chunk in disk) != digest:
            self.remove(text)
            raise RecordingError(f"the recovery from {text} is void: a replay of its log does not give the disk")

    def remove(self, text: str) -> None:
        """Delete the recovery from a state."""
        self._path(text).unlink()
        self._trace_path(text).unlink(missing_ok=True)

    def write_index(self, recoveries: Sequence[Recovery]) -> None:
        """Write the list of all recoveries of the scenario; each must have been saved."""
        text = json.dumps([asdict(recovery) for recovery in recoveries], indent=1)
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self.folder / _INDEX, text.encode())

    def index(self) -> list[Recovery] | None:
        """Return the recoveries of the scenario, None if some were not recorded; raise RecordingError if damaged."""
        path = self.folder / _INDEX
        if not path.exists():
            return None
        try:
            recoveries = [decode(Recovery, row) for row in json.loads(path.read_text())]
            for recovery in recoveries:
                Address.parse(recovery.state)
            return recoveries
        except (ValueError, TypeError, KeyError, StateIdError) as error:
            raise _damage_error(path, f"{error!r}") from None

    @contextmanager
    def open(self, text: str, lives: tuple[int, ...] = ()) -> Iterator[OpenRecovery]:
        """Unpack the recovery from a state for the duration of a `with` block; raise RecordingError if damaged."""
        path, trace_path = self._path(text), self._trace_path(text)
        # The content of a disk, plus the guest's disk to which the log is written.
        data = _decompress(path, 2 * self.device_bytes, text)
        traces = [_decompress(trace_path, _TRACE_BYTES_MAX, text)] if trace_path.exists() else []
        with archive.scratch(self.folder) as unpacked:
            file = archive.write([data], unpacked, [self.disk_mib], traces, self.unit_bytes)
            with _open_checked(file, path, text) as logs:
                yield OpenRecovery(logs, text, lives)

    def remove_leftovers(self) -> None:
        """Remove the unpacked logs of killed processes; the caller must ensure that no process uses them."""
        archive.remove_leftovers(self.folder)

    def _path(self, text: str) -> Path:
        return self.folder / f"{_name(text)}.zst"

    def _trace_path(self, text: str) -> Path:
        return self.folder / f"{_name(text)}.trace.zst"


@contextmanager
def _open_checked(file: LogFile, path: Path, text: str) -> Iterator[Logs]:
    with ExitStack() as stack:
        try:
            logs = stack.enter_context(file.open())
        except LogError as error:
            raise _damage_error(path, error) from None
        log = logs.first
        if [mark.text for mark in log.marks][:1] != [_name(text)] or not (log.flags & EntryFlag.FLUSH).any():
            raise _damage_error(path, f"not the recovery from {text}")
        yield logs


def content_before(log: bytes) -> Iterator[tuple[int, int]]:
    """Yield the writes of a self-contained log before its first FLUSH: (offset, length) in bytes."""
    _, _, entry_count, sector_bytes = SUPERBLOCK.unpack_from(log)
    place = sector_bytes
    for _ in range(entry_count):
        sector, sector_count, flags, _ = HEADER.unpack_from(log, place)
        if flags & EntryFlag.FLUSH:
            return
        if sector_count:
            yield sector * sector_bytes, sector_count * sector_bytes
        place += (1 + sector_count) * sector_bytes


def _compress(part: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(part)


def _decompress(path: Path, bytes_max: int, text: str) -> bytes:
    """Return what an archive holds; raise RecordingError if it is gone, damaged, or larger than any can be."""
    try:
        packed = path.read_bytes()
        if not 0 <= (size := zstandard.frame_content_size(packed)) <= bytes_max:
            raise _damage_error(path, f"it claims to hold {size} bytes")
        return zstandard.ZstdDecompressor().decompress(packed)
    except FileNotFoundError:
        raise RecordingError(f"{path} is gone: the recovery from {text}; remove the scenario's folder") from None
    except zstandard.ZstdError as error:
        raise _damage_error(path, error) from None


def _damage_error(path: Path, why: object) -> RecordingError:
    return RecordingError(f"{path} is damaged: {why}; remove the scenario's folder to measure it again")


def _name(text: str) -> str:
    """Return a file name of fixed length, because an address may be too long for one."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _entry(sector_bytes: int, offset_bytes: int, length_bytes: int, flags: int, text: bytes = b"") -> bytes:
    header = HEADER.pack(offset_bytes // sector_bytes, length_bytes // sector_bytes, flags, len(text))
    return (header + text).ljust(sector_bytes, b"\0")
