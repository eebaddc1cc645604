"""Cuts that really happened, held against the log: the cross-check of all cuts that are only planned.

`rig.guest.livecuts` cuts a disk while a workload runs. Here each round must pass three tests, or the whole recording is
void, for then the rig's model of a disk or of its log is wrong:
- Cut where it happened, the log is one that the kernel could have left: what had completed of the batch in progress is
  its tail. The independent checker calls what remained of the disk legal at the end of that log.
- A generator makes the same content from it, byte for byte: where the cache was kept, the state of `faults.oscrash` in
  which all that had completed is there; where it was lost, one of `faults.powercut`, with those members of the batch
  that are there (they completed behind a FLUSH that had been submitted and was not done, and were flushed with it).
- The disk had counted as many flushes as the log holds up to the cut.
Where the cache was lost the checker may answer undecided, and then no state need be found: the order of an ordinary
write and a FUA write of one sector is open, there is no replay to settle it, and the disk holds one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rig.contract.arms import SPECS
from rig.contract.errors import LegalityError, RecordingError
from rig.contract.results import LiveFinding
from rig.contract.scenario import Scenario
from rig.faults import CrashState, EntryFlag, WriteLog, epochs, parse_state
from rig.faults.legality import Checker, Legality, Rule
from rig.faults.log import SUPERBLOCK, ByteArray
from rig.faults.rendering import contents
from rig.faults.state import make_state
from rig.guest.devices.disks import CHUNK_BYTES, DISK_MIB
from rig.guest.livecuts import Kind
from rig.recordings.timeline import Timeline

_DEVICE_BYTES = DISK_MIB << 20
_OFFSET_BYTES = 8


@dataclass(frozen=True)
class Round:
    """One round: the log as it was recorded, and what remained of the disk."""

    number: int
    told: Mapping[str, Any]
    log: bytes
    device: ByteArray


@dataclass(frozen=True)
class LiveCut:
    """A live cut that an honest disk can leave."""

    finding: LiveFinding
    # What a generator makes of the same log; None where the log leaves open what was durable.
    state: CrashState | None
    # Writes that had completed before the cut and were not flushed.
    unflushed_count: int


def rounds(told: Mapping[str, Any], parts: Sequence[bytes]) -> Iterator[Round]:
    """Take the parts of a recording of live cuts together: of each round the log, and what was on the disk."""
    for number, (one, log, filled) in enumerate(zip(told["rounds"], parts[::2], parts[1::2], strict=True), start=1):
        device: ByteArray = np.zeros(_DEVICE_BYTES, dtype=np.uint8)
        for place in range(0, len(filled), _OFFSET_BYTES + CHUNK_BYTES):
            offset = int.from_bytes(filled[place : place + _OFFSET_BYTES], "little")
            data = filled[place + _OFFSET_BYTES : place + _OFFSET_BYTES + CHUNK_BYTES]
            device[offset : offset + CHUNK_BYTES] = np.frombuffer(data, dtype=np.uint8)
        yield Round(number, one, log, device)


def proven(scenario: Scenario, told: Mapping[str, Any], parts: Sequence[bytes]) -> list[LiveFinding]:
    """Hold every round of a recording against its log; raise LegalityError for the first that fails."""
    try:
        kind = Kind(SPECS[scenario.fault].injection)
        return [prove(kind, one).finding for one in rounds(told, parts)]
    except LegalityError as error:
        raise LegalityError(f"the rig is wrong and {scenario.id} is void: {error}") from error


def prove(kind: Kind, one: Round) -> LiveCut:
    """Return what a live cut left; raise LegalityError if no honest disk could have left it."""
    with TemporaryDirectory(prefix="rig-") as name:
        whole, until_cut = Path(name, "whole"), Path(name, "until-cut")
        whole.write_bytes(one.log)
        with WriteLog.open(whole) as log:
            unflushed_count = write_log_until_cut(log, one.told["counts"], until_cut)
            timeline = Timeline(log.marks)
            entry = _cut_entry(log)
            acked, issued = timeline.acked(entry), timeline.issued(entry)
            acked_after = timeline.acked(log.entry_count) - acked
        with WriteLog.open(until_cut) as log:
            state = _proven_state(kind, one, log)
    found = one.told["finding"]
    live = LiveFinding(
        state=f"live-{one.number}", acked=acked, issued=issued, acked_after=acked_after,
        kind=found["kind"], recovered=found["recovered"], detail=found["detail"],
    )  # fmt: skip
    return LiveCut(live, state, unflushed_count)


def write_log_until_cut(log: WriteLog, counts: Mapping[str, Mapping[str, int]], path: Path) -> int:
    """Write the log as it would have been left at the cut, and return how many unflushed writes had completed.

    The layer that cuts counted the writes that had completed; those that the log does not hold before the mark of the
    cut are the first of the batch in progress. Raise LegalityError if there are not so many.
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
    # A FLUSH counts as a write there.
    count = counts["layer"]["writes"] - flush_count - int(np.count_nonzero(sizes[:cut]))
    if not 0 <= count <= len(batch):
        raise LegalityError(f"{count} writes had completed unflushed, and the log holds {len(batch)} of that time")
    begins = [*log.header_offset_bytes.tolist(), log.end_bytes]
    parts = [log.bytes_at(begins[0], begins[cut] - begins[0])]
    parts += [log.bytes_at(begins[one], begins[one + 1] - begins[one]) for one in batch[:count].tolist()]
    head = bytearray(log.bytes_at(0, log.sector_bytes))
    magic, version, _, sector_bytes = SUPERBLOCK.unpack_from(head)
    SUPERBLOCK.pack_into(head, 0, magic, version, cut + count, sector_bytes)
    path.write_bytes(b"".join([bytes(head), *map(bytes, parts)]))
    return count


def _proven_state(kind: Kind, one: Round, log: WriteLog) -> CrashState | None:
    keeps_cache = kind is Kind.DROP
    checker = Checker(log, len(one.device), is_replay=keeps_cache)
    answer = checker.check(one.device, log.entry_count, Rule.SEEN if keeps_cache else Rule.WHOLE)
    if answer.legality is Legality.ILLEGAL or (keeps_cache and answer.legality is Legality.UNDECIDED):
        raise LegalityError(f"what the cut of round {one.number} left is not what an honest disk leaves: {answer}")
    tail = epochs(log)[-1]
    there = [entry for entry in tail.batch if keeps_cache or _is_there(log, entry, one.device)]
    state = make_state(tail, len(tail.fuas), whole=there)
    (made,) = (content.copy() for content in contents(log, [state], _DEVICE_BYTES))
    if not np.array_equal(made, one.device):
        if answer.legality is Legality.UNDECIDED:
            return None
        sector = int(np.flatnonzero(made != one.device)[0]) // 512
        raise LegalityError(
            f"what the cut of round {one.number} left differs in sector {sector} from {state.id}, the planned state"
        )
    if not tail.ambiguous and parse_state(state.id, log, epochs(log)) != state:
        raise LegalityError(f"{state.id}, which the cut of round {one.number} left, is no crash state of its log")
    return state


def _is_there(log: WriteLog, entry: int, device: ByteArray) -> bool:
    begin, size = int(log.offset_bytes[entry]), int(log.payload_bytes[entry])
    return bytes(device[begin : begin + size]) == bytes(log.payload(entry))


def _cut_entry(log: WriteLog) -> int:
    """Return the entry just behind the mark of the cut."""
    found = [mark.entry_index for mark in log.marks if mark.text.startswith("inject-")]
    if len(found) != 1:
        raise RecordingError(f"the log has {len(found)} cuts instead of one; the recording is void")
    return found[0] + 1
