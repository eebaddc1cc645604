"""Recordings: made in a recorder clone, proven sound on the host, kept compressed.

A recording is a folder with `log.zst` (the write log) and `facts.json`. It is void, and never kept, unless
replaying every entry gives the device byte for byte, the log was not cut short, the disk counted as many flushes as
the log holds, nothing was read from the host's disk meanwhile, and the engine read back the settings it was told.
Where the journal has a disk of its own there is a second log, `log-b.zst`, of which the same must be true, and both
must hold the same marks. Unpacked it stands behind the first in the same file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from rig import host
from rig.contract.arms import SPECS, Arm
from rig.contract.errors import LegalityError, RecordingError
from rig.contract.geometry import CHUNK_BYTES, DISK_MIB, JOURNAL_DISK_MIB, disk_digest
from rig.contract.injections import Injection
from rig.contract.results import LiveFinding, RecordingFacts
from rig.contract.scenario import Scenario
from rig.faults import Disk, EntryFlag, LogError, WriteLog
from rig.machines.argv import RECORDING_BYTES
from rig.machines.template import Template, qemu_version
from rig.recordings import livecuts
from rig.recordings.timeline import Timeline
from rig.recordings.twodisk import SECOND_LOG_BYTES, two_logs

_RECORD_LIMIT_S = 900
_RUNS_MAX = 4
_ARCHIVE, _SECOND_ARCHIVE, _FACTS = "log.zst", "log-b.zst", "facts.json"
# All that live cuts left, kept when no honest disk could have left it.
_EVIDENCE = "illegal-rounds.bin"
# A log of the longest workload, uncompressed, and its archive.
_SPACE_BYTES = 256 << 20


@dataclass(frozen=True)
class Recording:
    """A sound recording on disk."""

    folder: Path
    facts: RecordingFacts

    @contextmanager
    def unpacked(self) -> Iterator[Path]:
        """Unpack the log for the length of a block, to a sparse file of the size of a clone's recording disk."""
        # A name of its own: two processes may be at work on one recording.
        descriptor, name = tempfile.mkstemp(dir=self.folder, prefix="log.")
        os.close(descriptor)
        path = Path(name)
        parts = [(self.folder / _ARCHIVE, 0, self.facts.log_bytes, self.facts.digest)]
        if self.facts.journal_digest:
            second = self.folder / _SECOND_ARCHIVE
            parts.append((second, SECOND_LOG_BYTES, self.facts.journal_log_bytes, self.facts.journal_digest))
        try:
            for archive, begin, size, digest in parts:
                _unpack(archive.read_bytes(), path, archive, begin)
                # A frame that was cut off unpacks without an error, to less.
                if _digest(path, size, begin) != digest:
                    raise RecordingError(
                        f"{archive} is damaged: not what was recorded; remove the folder to record anew"
                    )
            yield path
        finally:
            path.unlink(missing_ok=True)


def record(scenario: Scenario, template: Template, folder: Path, *, reproduce: bool = False) -> Recording:
    """Record a scenario into a folder; `reproduce` repeats it until two recordings are the same, and notes whether.

    Two runs are enough on a quiet host. QEMU 7.2 has a race that a busy host can win (see
    `rig.machines.machine.started`), so up to `_RUNS_MAX` are tried; what is kept is one of the two that agree.
    """
    folder.mkdir(parents=True, exist_ok=True)
    host.require_space(folder, _SPACE_BYTES, f"recording {scenario.id}")
    told, parts = _run(scenario, template)
    reproduced: bool | None = None
    if reproduce:
        seen = [parts]
        for _ in range(1, _RUNS_MAX):
            told, parts = _run(scenario, template)
            if reproduced := parts in seen:
                break
            seen.append(parts)
    path = folder / "log"
    if "rounds" in told:
        told["live"] = _proven_live(scenario, told, parts, folder)
    try:
        _write(parts[0], path)
        if "journal" in told:
            _write(parts[1], path, SECOND_LOG_BYTES)
        facts = _facts(scenario, template, told, path)
    except LogError as error:
        raise RecordingError(f"the recording of {scenario.id} is void: {error}") from error
    finally:
        path.unlink(missing_ok=True)
    if "journal" in told:
        host.atomic_write(folder / _SECOND_ARCHIVE, _packed(parts[1]))
    host.atomic_write(folder / _ARCHIVE, _packed(parts[0]))
    host.atomic_write(folder / _FACTS, json.dumps(asdict(replace(facts, reproduced=reproduced)), indent=1).encode())
    return Recording(folder, replace(facts, reproduced=reproduced))


def record_live(scenario: Scenario, template: Template) -> list[LiveFinding]:
    """Run a scenario once more and return what its recording shows by itself; nothing is kept."""
    told, parts = _run(scenario, template)
    found: list[LiveFinding] = livecuts.proven(scenario, told, parts) if "rounds" in told else told["live"]
    return found


def load(folder: Path) -> Recording | None:
    """Return the recording in a folder, or None if none was finished there; raise RecordingError if it is damaged."""
    path = folder / _FACTS
    if not path.exists():
        return None
    try:
        recording = Recording(folder, RecordingFacts(**json.loads(path.read_text())))
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{path} is damaged: {error}; remove the folder to record anew") from None
    for name in (_ARCHIVE, *([_SECOND_ARCHIVE] if recording.facts.journal_digest else [])):
        if not (folder / name).exists():
            raise RecordingError(f"{folder} has facts but no {name}; remove the folder to record anew")
    return recording


def remove_leftovers(folder: Path) -> None:
    """Remove the unpacked logs of processes that were killed; the caller sees to it that nobody is at work there."""
    for path in folder.glob("log.*"):
        if path.name != _ARCHIVE:
            path.unlink(missing_ok=True)


def _run(scenario: Scenario, template: Template) -> tuple[dict[str, Any], list[bytes]]:
    """Return what the guest tells of a recording, and its parts: the log, or the logs, or what live cuts left."""
    parts = []
    orders = json.dumps(scenario.orders.message).encode()
    with template.clone(orders=orders) as machine:
        while "part_bytes" in (told := machine.receive(_RECORD_LIMIT_S)):
            part = bytearray()
            machine.receive_bytes(told["part_bytes"], _RECORD_LIMIT_S, part.extend)
            parts.append(bytes(part))
    return told, parts


def _proven_live(
    scenario: Scenario, told: Mapping[str, Any], parts: Sequence[bytes], folder: Path
) -> list[LiveFinding]:
    """Return what live cuts left, if an honest disk could have; else keep all there is and raise LegalityError."""
    try:
        return livecuts.proven(scenario, told, parts)
    except LegalityError as error:
        evidence = folder / _EVIDENCE
        host.atomic_write(evidence, b"".join(map(_packed, parts)))
        raise LegalityError(f"{error}; the logs and what remained are in {evidence}") from error


def _packed(part: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(part)


def _write(log: bytes, path: Path, begin_bytes: int = 0) -> None:
    """Write a log to a place in a file of the size of a clone's recording disk; the first log first."""
    with open(path, "r+b" if begin_bytes else "wb") as file:
        file.seek(begin_bytes)
        file.write(log)
        file.truncate(RECORDING_BYTES)


def _unpack(data: bytes, path: Path, archive: Path, begin_bytes: int = 0) -> None:
    """Unpack an archive's data to a place in a file of the size of a clone's recording disk; the first log first."""
    try:
        with open(path, "r+b" if begin_bytes else "wb") as file:
            file.seek(begin_bytes)
            zstandard.ZstdDecompressor().copy_stream(io.BytesIO(data), file)
            if file.tell() > RECORDING_BYTES:
                raise RecordingError(
                    f"{archive}: a log that ends at byte {file.tell()} does not fit the recording disk"
                )
            file.truncate(RECORDING_BYTES)
    except zstandard.ZstdError as error:
        raise RecordingError(f"{archive} is damaged: {error}; remove the folder to record anew") from None


def _facts(scenario: Scenario, template: Template, told: Mapping[str, Any], path: Path) -> RecordingFacts:
    with WriteLog.open(path) as log:
        timeline = Timeline(log.marks)
        _require_sound(scenario, told, log)
        counts = [_counts(log)]
        journal: dict[str, Any] = {}
        if "journal" in told:
            second = two_logs(log).sides[Disk.B].log
            _require_same_disk(scenario, told["journal"], second, JOURNAL_DISK_MIB)
            counts.append(_counts(second))
            journal["journal_digest"] = _digest(path, second.end_bytes, SECOND_LOG_BYTES)
            journal["journal_log_bytes"] = second.end_bytes
        return RecordingFacts(
            key=scenario.recording_key,
            digest=_digest(path, log.end_bytes),
            template=template.identity,
            image=template.spec.root_disk.parent.name,
            qemu_version=qemu_version(),
            kernel=told["kernel"],
            engine_version=f"{told['settings']['version']} {told['settings'].get('source_id', '')}".strip(),
            settings=told["settings"],
            seed=scenario.seed,
            transaction_count=len(timeline.acks),
            busy_virtual_ns=timeline.busy_ns,
            span_virtual_ns=timeline.end.time_ns - timeline.setup.time_ns,
            flush_count=sum(flushes for flushes, _ in counts),
            written_bytes=sum(written for _, written in counts),
            user_bytes=told["user_bytes"],
            entry_count=log.entry_count,
            log_bytes=log.end_bytes,
            reproduced=None,
            syncs=told["syncs"],
            live=told["live"],
            clock=told.get("clock", []),
            **journal,
        )


def _counts(log: WriteLog) -> tuple[int, int]:
    """Return the FLUSH entries between begin and ack of all transactions, and the bytes written from setup to end."""
    timeline = Timeline(log.marks)
    flushes = np.flatnonzero(log.flags & EntryFlag.FLUSH)
    ranges = [(begin.entry_index, ack.entry_index) for begin, ack in timeline.turns]
    written = log.payload_bytes[timeline.setup.entry_index : timeline.end.entry_index].sum()
    return sum(int(np.count_nonzero((flushes > begin) & (flushes < ack))) for begin, ack in ranges), int(written)


def _require_sound(scenario: Scenario, told: Mapping[str, Any], log: WriteLog) -> None:
    """Raise RecordingError naming what voids the recording."""
    void = f"the recording of {scenario.id} is void"
    if told["root_reads"]:
        raise RecordingError(f"{void}: {told['root_reads']} reads went to the host's disk while it was made")
    if "rounds" not in told:
        _require_same_disk(scenario, told, log, DISK_MIB)
    for name, asked in {**scenario.tuning, **scenario.settings}.items():
        if told["settings"].get(name) != asked:
            raise RecordingError(f"{void}: {name} was set to {asked} and reads back {told['settings'].get(name)}")
    acks = sum(mark.text.startswith("ack-") for mark in log.marks)
    spec = SPECS[scenario.fault]
    must_finish = not spec.injection or spec.arm is Arm.CLOCK or spec.injection is Injection.TWODISK
    if acks != scenario.workload.transaction_count and must_finish:
        raise RecordingError(f"{void}: {acks} of {scenario.workload.transaction_count} transactions acknowledged")


def _require_same_disk(scenario: Scenario, told: Mapping[str, Any], log: WriteLog, disk_mib: int) -> None:
    """Raise RecordingError unless a log is all that its disk saw."""
    void = f"the recording of {scenario.id} is void"
    flush_count = int(np.count_nonzero(log.flags & EntryFlag.FLUSH))
    if flush_count != told["requests"]["flushes"]:
        raise RecordingError(f"{void}: the log holds {flush_count} flushes, the disk saw {told['requests']['flushes']}")
    disk = log.replay(log.entry_count, disk_mib << 20).reshape(-1, CHUNK_BYTES)
    if disk_digest(chunk.tobytes() for chunk in disk) != told["device_digest"]:
        raise RecordingError(f"{void}: replaying its {log.entry_count} entries does not give the device")


def _digest(path: Path, size: int, begin_bytes: int = 0) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        file.seek(begin_bytes)
        digest.update(file.read(size))
    return digest.hexdigest()
