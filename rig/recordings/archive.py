"""The archive of recordings: kept compressed, one folder each, and handed out unpacked.

A recording owns one write log for each disk: `log-a.zst`, and `log-b.zst` if the file system lies on two
disks; and for each the block trace of the same requests, `trace-a.zst` and `trace-b.zst`, except for live cuts.
`facts.json` is written last. Only sound recordings are kept, see `rig.recordings.soundness`. Unpacked, all logs and
traces are in one file at fixed offsets, as on a clone's recording disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import zstandard

from rig.contract.errors import RecordingError
from rig.contract.messages import decode
from rig.contract.results import RecordingFacts
from rig.faults import LogFile, Logs
from rig.host.files import atomic_write

# The size of a clone's recording disk; a saved template works with no other size.
RECORDING_BYTES = 4 << 30
# Where a block trace begins, counted from the beginning of its log; the log is shorter than this.
_TRACE_BEGIN_BYTES = 1 << 30
_FACTS = "facts.json"
# What a disk may write atomically.
_UNITS_BYTES = [512 << shift for shift in range(12)]
_LOGS_MAX = 2
# The size of every disk, and of every second disk, in older recordings, whose facts do not say it.
_DISK_MIB_BEFORE, _SECOND_DISK_MIB_BEFORE = 64, 8
# The sizes that a disk can have.
_DISKS_MIB = range(_SECOND_DISK_MIB_BEFORE + 1, (RECORDING_BYTES >> 20) + 1)


@dataclass(frozen=True)
class Recording:
    """A sound recording on disk."""

    folder: Path
    facts: RecordingFacts

    @contextmanager
    def unpack(self) -> Iterator[LogFile]:
        """Unpack the logs, for the duration of a `with` block, to a sparse file of the size of a recording disk."""
        with scratch(self.folder) as path:
            traces_bytes = [facts.trace_bytes for facts in self.facts.logs]
            made = file_of(path, self.facts.disks_mib, traces_bytes, self.facts.logs[0].unit_bytes)
            for rank, (begin_bytes, facts) in enumerate(zip(made.log_begins_bytes, self.facts.logs, strict=True)):
                self._unpack(archive_name(rank), path, begin_bytes, facts.size_bytes, facts.digest)
                if facts.trace_bytes:
                    self._unpack(trace_name(rank), path, *made.traces[rank], facts.trace_digest)
            yield made

    def _unpack(self, name: str, path: Path, begin_bytes: int, size_bytes: int, expected: str) -> None:
        archive = self.folder / name
        _unpack(archive.read_bytes(), path, archive, begin_bytes)
        # A truncated frame unpacks without an error, but to less data.
        if digest(path, size_bytes, begin_bytes) != expected:
            raise _damage_error(archive, "not what was recorded")

    @contextmanager
    def open(self) -> Iterator[Logs]:
        """Unpack and open the logs for the duration of a `with` block."""
        with self.unpack() as file, file.open() as logs:
            yield logs


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Give an empty file for the duration of a `with` block; its name is unique, as two processes may use a folder."""
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="log.")
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def archive_name(rank: int) -> str:
    """Return the name of the archive of a log, by its place among the logs."""
    return f"log-{'ab'[rank]}.zst"


def trace_name(rank: int) -> str:
    """Return the name of the archive of the block trace of a log."""
    return f"trace-{'ab'[rank]}.zst"


def file_of(path: Path, disks_mib: Sequence[int], traces_bytes: Sequence[int] = (), unit_bytes: int = 0) -> LogFile:
    """Return the layout of an unpacked recording: a log for each disk, with traces of these lengths, and the unit."""
    log_count = len(disks_mib)
    begins = tuple(rank * (RECORDING_BYTES // log_count) for rank in range(log_count))
    traces = tuple((begin + _TRACE_BEGIN_BYTES, length) for begin, length in zip(begins, traces_bytes, strict=False))
    # A verifier has one device for all disks, one after the other.
    devices = tuple(disk_mib << 20 for disk_mib in disks_mib)
    device_begins = tuple(sum(devices[:rank]) for rank in range(log_count))
    return LogFile(path, begins, device_begins, devices, traces if any(traces_bytes) else (), unit_bytes)


def write(
    logs: Sequence[bytes],
    path: Path,
    disks_mib: Sequence[int],
    traces: Sequence[bytes] = (),
    unit_bytes: int = 0,
) -> LogFile:
    """Write logs and their block traces to a sparse file in the layout of an unpacked recording."""
    made = file_of(path, disks_mib, [len(trace) for trace in traces], unit_bytes)
    with path.open("wb") as file:
        for begin_bytes, log in zip(made.log_begins_bytes, logs, strict=True):
            file.seek(begin_bytes)
            file.write(log)
        for (begin_bytes, _), trace in zip(made.traces, traces, strict=False):
            file.seek(begin_bytes)
            file.write(trace)
        file.truncate(RECORDING_BYTES)
    return made


def save(folder: Path, logs: Sequence[bytes], facts: RecordingFacts, traces: Sequence[bytes] = ()) -> Recording:
    """Store a sound recording, durably."""
    for rank, log in enumerate(logs):
        atomic_write(folder / archive_name(rank), pack(log))
    for rank, trace in enumerate(traces):
        atomic_write(folder / trace_name(rank), pack(trace))
    atomic_write(folder / _FACTS, json.dumps(asdict(facts), indent=1).encode())
    return Recording(folder, facts)


def was_repeated(folder: Path) -> bool:
    """Return whether the recording in a folder was made twice, and compared; False for a damaged one."""
    try:
        made = load(folder)
    except RecordingError:
        return False
    return made is not None and made.facts.reproduced is not None


def load(folder: Path) -> Recording | None:
    """Return the recording in a folder, or None if none was finished there; raise RecordingError if it is damaged."""
    path = folder / _FACTS
    if not path.exists():
        return None
    try:
        known = json.loads(path.read_text())
        second_mib = (len(known["logs"]) - 1) * _SECOND_DISK_MIB_BEFORE
        before = {"disk_mib": _DISK_MIB_BEFORE, "second_disk_mib": second_mib}
        facts = decode(RecordingFacts, before | known)
    except (ValueError, TypeError, KeyError) as error:
        raise _damage_error(path, f"{error!r}") from None
    logs = facts.logs
    if any(log.unit_bytes not in {0, *_UNITS_BYTES} for log in logs):
        raise _damage_error(path, "no disk has such a unit")
    if facts.disk_mib not in _DISKS_MIB:
        raise _damage_error(path, f"no disk has {facts.disk_mib} MiB")
    if not 1 <= len(logs) == len(facts.disks_mib) <= _LOGS_MAX or min(facts.disks_mib) < 1:
        raise _damage_error(path, f"it lists {len(logs)} logs, and disks of {facts.disks_mib} MiB")
    names = [archive_name(rank) for rank in range(len(logs))]
    for name in names + [trace_name(rank) for rank, log in enumerate(logs) if log.trace_bytes]:
        if not (folder / name).exists():
            raise RecordingError(f"{folder} has facts but no {name}; remove the folder to record again")
    return Recording(folder, facts)


def remove_leftovers(folder: Path) -> None:
    """Remove the unpacked logs of killed processes; the caller must ensure that no process uses them."""
    for path in folder.glob("log.*"):
        path.unlink(missing_ok=True)


def pack(part: bytes) -> bytes:
    """Return a part of a recording, compressed."""
    return zstandard.ZstdCompressor().compress(part)


def digest(path: Path, size_bytes: int, begin_bytes: int = 0) -> str:
    """Return the digest of a log at its place in an unpacked recording."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(begin_bytes)
        hasher.update(file.read(size_bytes))
    return hasher.hexdigest()


def _unpack(data: bytes, path: Path, archive: Path, begin_bytes: int) -> None:
    """Unpack an archive's data to an offset in a file as large as a clone's recording disk."""
    try:
        with path.open("r+b") as file:
            file.seek(begin_bytes)
            zstandard.ZstdDecompressor().copy_stream(io.BytesIO(data), file)
            if file.tell() > RECORDING_BYTES:
                raise RecordingError(
                    f"{archive}: a log that ends at byte {file.tell()} does not fit the recording disk"
                )
            file.truncate(RECORDING_BYTES)
    except zstandard.ZstdError as error:
        raise _damage_error(archive, str(error)) from None


def _damage_error(path: Path, why: str) -> RecordingError:
    return RecordingError(f"{path} is damaged: {why}; remove the folder to record again")
