"""Cuts that really happened, checked against the log: a cross-check of the cuts that are only planned.

`rig.guest.livecuts` cuts a disk while a workload runs. Each round must pass three tests. If one fails, the rig's model
of a disk or of its log is wrong and the whole recording is void:
- The log, truncated at the cut, is one that the kernel could have left: its tail is the part of the batch in progress
  that had completed. The independent checker calls what remained of the disk legal at the end of that log.
- A generator makes the same content from this log, byte for byte. If the cache was kept, it is the state of
  `rig.faults.models.oscrash` in which everything that had completed is there. If the cache was lost, it is a state of
  `rig.faults.models.powercut` with the members of the batch that are there (they completed after a FLUSH had been
  submitted and before it was done, and were flushed with it).
- The disk counted as many flushes as the log holds up to the cut.

If the cache was lost, the checker may answer undecided, and then no state need be found: the order of an ordinary write
and a FUA write of one sector is open, no replay settles it, and the disk holds one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rig.contract.errors import LegalityError, RecordingError
from rig.contract.faultspecs import SPECS
from rig.contract.geometry import CHUNK_BYTES
from rig.contract.injections import Injection
from rig.contract.results import LiveFinding
from rig.contract.scenario import Scenario
from rig.faults import CrashState, EntryFlag, WriteLog, epochs, parse_state
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.log.arrays import ByteArray
from rig.faults.log.log import SUPERBLOCK
from rig.faults.states.rendering import content
from rig.faults.states.state import is_told, make_state
from rig.filesystems import filesystem_named
from rig.recordings.timeline import Timeline

_OFFSET_BYTES = 8


@dataclass(frozen=True)
class RecordedRound:
    """One round: the log as recorded, and what remained of the disk."""

    number: int
    facts: Mapping[str, Any]
    log: bytes
    device: ByteArray


@dataclass(frozen=True)
class LiveCut:
    """A live cut that an honest disk can leave."""

    finding: LiveFinding
    # The state that a generator makes from the same log; None if the log leaves open what was durable.
    state: CrashState | None
    # Writes that had completed before the cut but were not flushed.
    unflushed_count: int


def rounds(facts: Mapping[str, Any], parts: Sequence[bytes], disk_mib: int) -> Iterator[RecordedRound]:
    """Yield the rounds of a recording of live cuts, whose parts alternate between a log and the disk that it left."""
    for number, (round_facts, log, filled) in enumerate(
        zip(facts["rounds"], parts[::2], parts[1::2], strict=True), start=1
    ):
        device: ByteArray = np.zeros(disk_mib << 20, dtype=np.uint8)
        for place in range(0, len(filled), _OFFSET_BYTES + CHUNK_BYTES):
            offset = int.from_bytes(filled[place : place + _OFFSET_BYTES], "little")
            data = filled[place + _OFFSET_BYTES : place + _OFFSET_BYTES + CHUNK_BYTES]
            device[offset : offset + CHUNK_BYTES] = np.frombuffer(data, dtype=np.uint8)
        yield RecordedRound(number, round_facts, log, device)


def proven(scenario: Scenario, facts: Mapping[str, Any], parts: Sequence[bytes]) -> list[LiveFinding]:
    """Check every round of a recording against its log; raise LegalityError for the first that fails."""
    try:
        injection, disk_mib = SPECS[scenario.fault].injection, filesystem_named(scenario.filesystem).disk_mib_min
        return [prove(injection, recorded).finding for recorded in rounds(facts, parts, disk_mib)]
    except LegalityError as error:
        raise LegalityError(f"the rig is wrong and {scenario.id} is void: {error}") from error


def prove(injection: Injection, recorded: RecordedRound) -> LiveCut:
    """Return the result of a live cut; raise LegalityError if no honest disk could have left this content."""
    with TemporaryDirectory(prefix="rig-") as name:
        whole, until_cut = Path(name, "whole"), Path(name, "until-cut")
        whole.write_bytes(recorded.log)
        with WriteLog.open(whole, device_bytes=len(recorded.device)) as log:
            unflushed_count = write_log_until_cut(log, recorded.facts["counts"], until_cut)
            timeline = Timeline(log.marks)
            entry = _cut_entry(log)
            acked, issued = timeline.acked_count(entry), timeline.issued_count(entry)
            acked_after = timeline.acked_count(log.entry_count) - acked
            if injection is Injection.SERVERCRASH:  # the client went on: all that was acknowledged to it must be there
                acked, issued = timeline.acked_count(log.entry_count), timeline.issued_count(log.entry_count)
        with WriteLog.open(until_cut, device_bytes=len(recorded.device)) as log:
            state = _proven_state(injection, recorded, log)
    finding = recorded.facts["finding"]
    live = LiveFinding(
        state=f"live-{recorded.number}", acked=acked, issued=issued, acked_after=acked_after,
        kind=finding["kind"], recovered=finding["recovered"], detail=finding["detail"], files=finding["files"],
    )  # fmt: skip
    return LiveCut(live, state, unflushed_count)


def write_log_until_cut(log: WriteLog, counts: Mapping[str, Mapping[str, int]], path: Path) -> int:
    """Write the log as a cut would have left it, and return how many unflushed writes had completed.

    The layer that cuts counted the completed writes. Completed writes that the log does not hold before the mark of the
    cut are the first of the batch in progress. Raise LegalityError if the batch is shorter.
    """
    cut = _cut_entry(log)
    flags, sizes = log.flags, log.payload_bytes
    flush_count = int(np.count_nonzero(flags[:cut] & EntryFlag.FLUSH))
    if flush_count != counts["disk"]["flushes"]:
        seen_count = counts["disk"]["flushes"]
        raise LegalityError(f"the log holds {flush_count} flushes up to the cut, the disk saw {seen_count}")
    later = np.flatnonzero(flags[cut:] & EntryFlag.FLUSH)
    end = cut + int(later[0]) if len(later) else log.entry_count
    batch = cut + np.flatnonzero((sizes[cut:end] > 0) & ((flags[cut:end] & EntryFlag.FUA) == 0))
    # The layer counts a FLUSH as a write.
    count = counts["layer"]["writes"] - flush_count - int(np.count_nonzero(sizes[:cut]))
    if not 0 <= count <= len(batch):
        raise LegalityError(f"{count} writes had completed unflushed, but the log holds {len(batch)} for that time")
    begins = [*log.header_offset_bytes.tolist(), log.end_bytes]
    parts = [log.bytes_at(begins[0], begins[cut] - begins[0])]
    parts += [log.bytes_at(begins[entry], begins[entry + 1] - begins[entry]) for entry in batch[:count].tolist()]
    head = bytearray(log.bytes_at(0, log.sector_bytes))
    magic, version, _, sector_bytes = SUPERBLOCK.unpack_from(head)
    SUPERBLOCK.pack_into(head, 0, magic, version, cut + count, sector_bytes)
    path.write_bytes(b"".join([bytes(head), *map(bytes, parts)]))
    return count


def _proven_state(injection: Injection, recorded: RecordedRound, log: WriteLog) -> CrashState | None:
    keeps_cache = injection is Injection.LIVECUT_DROP
    checker = Checker(log, len(recorded.device), is_replay=keeps_cache)
    answer = checker.check(recorded.device, log.entry_count, Rule.SEEN if keeps_cache else Rule.WHOLE)
    if answer.legality is Legality.ILLEGAL or (keeps_cache and answer.legality is Legality.UNDECIDED):
        raise LegalityError(f"what the cut of round {recorded.number} left is not what an honest disk leaves: {answer}")
    tail = epochs(log)[-1]
    there = [entry for entry in tail.batch if keeps_cache or _is_there(log, entry, recorded.device)]
    state = make_state(tail, len(tail.fuas), whole=there)
    made = content(log, state, len(recorded.device))
    if not np.array_equal(made, recorded.device):
        if answer.legality is Legality.UNDECIDED:
            return None
        sector = int(np.flatnonzero(made != recorded.device)[0]) // 512
        raise LegalityError(
            f"what the cut of round {recorded.number} left differs in sector {sector} from {state.id}, "
            "the planned state"
        )
    if is_told(log, state) and parse_state(state.id, log, epochs(log)) != state:
        raise LegalityError(
            f"{state.id}, which the cut of round {recorded.number} left, is not a crash state of its log"
        )
    return state


def _is_there(log: WriteLog, entry: int, device: ByteArray) -> bool:
    begin, size = int(log.offset_bytes[entry]), int(log.payload_bytes[entry])
    return bytes(device[begin : begin + size]) == bytes(log.payload(entry))


def _cut_entry(log: WriteLog) -> int:
    """Return the entry just after the mark of the cut."""
    entries = [mark.entry_index for mark in log.marks if mark.text.startswith("inject-")]
    if len(entries) != 1:
        raise RecordingError(f"the log has {len(entries)} cuts instead of one; the recording is void")
    return entries[0] + 1
