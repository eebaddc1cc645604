"""When the requests of a write log were submitted and completed: a second account of the same requests.

A write log tells only part of the order in which requests completed. The kernel's block trace of the device below the
log tells when each request was queued and when it completed. `account_of` does with these events what the logging
target does, and so finds the event of each entry:

- a completed ordinary write waits in a list;
- a FLUSH takes the list when it is queued, and is logged after it when it completes;
- a FUA write is logged when it completes;
- at the end, whatever waits is logged.

Two FLUSHes can be in flight together, for example a sync and the commit of a file system's journal, and complete in
another order. The place of a commit's FLUSH tells which is which, or the next entries of the log do. `attach` renumbers
writes that were durable earlier than the log says. If neither tells, because both FLUSHes took writes of the same
places, the recording is void. If both took nothing, the FLUSH that makes more durable counts as the first; states that
only the other choice allows are left out.

A FUA write can be submitted after an ordinary write of the same place had completed and before a FLUSH took the
ordinary write. The log has the ordinary write later, so a replay of the log shows the older content. Once the FUA write
has completed, the part of the ordinary write that it covers can never be seen again. `attach` leaves that part out of
the log.

The two accounts must agree entry by entry, or the recording is void. MARKs and DISCARDs are not requests of the device
below: a MARK is logged at once, and the target itself completes a DISCARD that the device does not support.

Format of a record (include/uapi/linux/blktrace_api.h, `struct blk_io_trace`), little endian: magic and version u32,
sequence u32, time in ns u64, sector of 512 bytes u64, bytes u32, action u32, process u32, device u32, processor u32,
error u16, length of what follows u16. The low half of the action says what happened, the high half of what kind.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rig.faults.log.account import NEVER, Account
from rig.faults.log.arrays import BoolArray, Int64Array
from rig.faults.log.log import SECTOR_BYTES, EntryFlag, LogError, WriteLog

RECORD = struct.Struct("<IIQQIIIIIHH")
MAGIC = 0x65617407
# Nanoseconds since the boot; no machine runs for a century.
_TIMES_END_NS = 1 << 62
_QUEUED, _COMPLETED, _NOTE = 1, 8, 1 << 26
_WRITE, _FLUSH, _FUA = 1 << 17, 1 << 18, 1 << 31


def account_of(records: bytes, log: WriteLog) -> Account:
    """Match the records of a block trace with the entries of a log; raise `LogError` where they disagree."""
    submitted = np.full(log.entry_count, NEVER, dtype=np.int64)
    completed = np.full(log.entry_count, NEVER, dtype=np.int64)
    times_ns = np.full((log.entry_count, 2), NEVER, dtype=np.int64)
    entries = np.flatnonzero((log.flags & (EntryFlag.MARK | EntryFlag.DISCARD)) == 0).tolist()
    requests = _in_log_order(records, log, entries)
    for entry in entries:
        request = next(requests, None)
        if request is None or request.key != _key_of(log, entry):
            seen = f"the block trace has {request.key}" if request else "the block trace has no more requests"
            raise log.error(entry, f"the log has {_key_of(log, entry)}, and {seen}")
        submitted[entry], completed[entry] = request.submitted, request.completed
        times_ns[entry] = request.submitted_ns, request.completed_ns
    if (request := next(requests, None)) is not None:
        raise LogError(log.path, None, 0, f"the block trace has one more request: {request.key}")
    return Account(submitted, completed, times_ns=times_ns).of_parts(np.arange(log.entry_count))


def joinable_flush_count(account: Account, flags: Int64Array) -> int:
    """Return how many FLUSHes were submitted while another was in flight.

    The block layer carries out FLUSHes that wait together as one (Linux, block/blk-flush.c). So a disk may see fewer
    FLUSHes than were logged above it, by up to this count.
    """
    flushes = np.flatnonzero((flags & EntryFlag.FLUSH) > 0)
    flushes = flushes[np.argsort(account.submitted[flushes])]
    ended_by = np.maximum.accumulate(account.completed[flushes])
    return int(np.count_nonzero(account.submitted[flushes][1:] < ended_by[:-1]))


def one_by_one(writes: Iterable[tuple[int, int]]) -> bytes:
    """Return the block trace of writes (offset, length in bytes), one after the other, and of a FLUSH after them.

    It precedes the trace of a recovery, because the log of a recovery begins with the content that it recovers from.
    """
    requests = [*((offset, length, _WRITE) for offset, length in writes), (0, 0, _FLUSH)]
    return b"".join(
        RECORD.pack(MAGIC, 0, 0, offset // SECTOR_BYTES, length, kind | event, 0, 0, 0, 0, 0)
        for offset, length, kind in requests
        for event in (_QUEUED, _COMPLETED)
    )


def attach(records: bytes, log: WriteLog) -> None:
    """Give a log its account; raise `LogError` where they disagree.

    Of two FLUSHes in flight together, the one submitted later may complete first. The writes that the earlier one took
    then follow the later one in the log, though the later one made them durable as well. They are renumbered to stand
    before it.
    """
    account = account_of(records, log)
    order = _durable_order(account, log.flags)
    if (order != np.arange(log.entry_count)).any():
        log.reorder(order)
        account = account.of_parts(order)
    begins, ends, is_covered = _uncovered_parts(account, log)
    kept = log.trim(begins, ends)
    log.account = replace(account, is_rest=is_covered).of_parts(np.flatnonzero(kept))


def _durable_order(account: Account, flags: Int64Array) -> Int64Array:
    """Return the entries, with each ordinary write before the first FLUSH in the log that makes it durable."""
    flushes = np.flatnonzero((flags & EntryFlag.FLUSH) > 0)
    # For each FLUSH, the last submission among it and the FLUSHes before it; ascending, so that it can be searched.
    latest = np.maximum.accumulate(account.submitted[flushes])
    places = np.arange(len(flags), dtype=np.float64)
    is_plain = (account.completed != NEVER) & ((flags & (EntryFlag.FLUSH | EntryFlag.FUA)) == 0)
    for entry in np.flatnonzero(is_plain).tolist():
        rank = int(np.searchsorted(latest, account.completed[entry]))
        if rank < len(flushes) and flushes[rank] < entry:
            before = int(flushes[rank])
            while before and is_plain[before - 1] and account.completed[before - 1] > account.completed[entry]:
                before -= 1
            places[entry] = before - 0.5
    return np.lexsort((account.completed, places))


def _uncovered_parts(account: Account, log: WriteLog) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Return where the rest of each write begins and ends once newer FUA writes have covered their parts of it.

    Only FUA writes that the log has before the write count. The last column tells which writes are covered anywhere. A
    write with two parts left stays whole, so its order stays open.
    """
    begins, ends = log.offset_bytes.copy(), log.offset_bytes + log.payload_bytes
    is_fua = (log.flags & EntryFlag.FUA) > 0
    is_covered = np.zeros(log.entry_count, dtype=bool)
    plain = np.flatnonzero((log.payload_bytes > 0) & ~is_fua)
    for fua in np.flatnonzero((log.payload_bytes > 0) & is_fua).tolist():
        begin, end = int(log.offset_bytes[fua]), int(log.offset_bytes[fua] + log.payload_bytes[fua])
        later = plain[np.searchsorted(plain, fua) :]
        older = later[account.completed[later] < account.submitted[fua]]
        for entry in older[(begins[older] < end) & (ends[older] > begin)].tolist():
            is_covered[entry] = True
            if begin <= begins[entry]:
                begins[entry] = min(end, int(ends[entry]))
            elif end >= ends[entry]:
                ends[entry] = begin
    return begins, ends, is_covered


@dataclass(frozen=True)
class _Key:
    """What both accounts say of a request."""

    kind: str
    offset_bytes: int
    length_bytes: int

    def __str__(self) -> str:
        size = f" of {self.length_bytes} bytes" if self.length_bytes else ""
        return f"a {self.kind}{size} at {self.offset_bytes}"


@dataclass
class _Request:
    key: _Key
    submitted: int
    submitted_ns: int = NEVER
    completed: int = NEVER
    completed_ns: int = NEVER
    # The writes that a FLUSH took, and how many writes had completed by then.
    taken: list[_Request] = field(default_factory=list)
    completed_count: int = 0


def _key_of(log: WriteLog, entry: int) -> _Key:
    flags = int(log.flags[entry])
    if flags & EntryFlag.FLUSH:
        # The FLUSH of a commit has the place of the block that it goes before; this distinguishes FLUSHes in flight.
        return _Key("FLUSH", int(log.offset_bytes[entry]), 0)
    kind = "FUA write" if flags & EntryFlag.FUA else "write"
    return _Key(kind, int(log.offset_bytes[entry]), int(log.length_bytes[entry]))


def _in_log_order(records: bytes, log: WriteLog, entries: Sequence[int]) -> Iterator[_Request]:
    """Yield requests in the order in which the target logs them; `entries` are the log's entries for requests."""
    keys, logged_count = [_key_of(log, entry) for entry in entries], 0
    waiting: list[_Request] = []
    completed_count = 0
    flying: dict[_Key, list[_Request]] = defaultdict(list)
    for number, (is_completion, key, time_ns) in enumerate(_events(records, log)):
        if not is_completion:
            request = _Request(key, number, time_ns)
            if key.kind == "FLUSH":
                request.taken, waiting = waiting, []
                request.completed_count = completed_count
            flying[key].append(request)
            continue
        if not flying[key]:
            raise LogError(log.path, None, 0, f"event {number} of the block trace completes {key}, never submitted")
        request = _landing(log, flying[key], keys[logged_count:])
        request.completed, request.completed_ns = number, time_ns
        if key.kind == "write":
            waiting.append(request)
            completed_count += 1
        else:
            logged_count += len(request.taken) + 1
            yield from request.taken
            yield request
    yield from waiting


def _landing(log: WriteLog, flying: list[_Request], keys: Sequence[_Key]) -> _Request:
    """Take out the request that completes, from the requests with one key; `keys` is what the log has next.

    FLUSHes are equivalent if no write completed between their submissions: any will do. Of FLUSHes that took nothing,
    because a third took what had completed, the last one completes. Raise `LogError` if the log fits others too.
    """
    fitting = [request for request in flying if _fits(request, keys)] if len(flying) > 1 else []
    if len({request.completed_count for request in fitting}) > 1 and fitting[0].taken:
        what = ", ".join(str(earlier.key) for earlier in fitting[0].taken)
        words = f"{len(fitting)} FLUSHes in flight each took {what}: which is which is not known"
        raise LogError(log.path, None, 0, words)
    request = max(fitting or flying[:1], key=lambda request: request.completed_count)
    flying.remove(request)
    if request.key.kind != "FLUSH":
        # Of two writes of one place and length, either may be the one that completes, so neither counts as the later.
        for other in flying:
            other.submitted, other.submitted_ns = request.submitted, request.submitted_ns
    return request


def _fits(request: _Request, keys: Sequence[_Key]) -> bool:
    expected = [*(earlier.key for earlier in request.taken), request.key]
    return expected == keys[: len(expected)]


def _events(records: bytes, log: WriteLog) -> Iterator[tuple[bool, _Key, int]]:
    """Yield for each event of a write or flush whether it is a completion, of what, and when."""
    position = last_ns = 0
    while position < len(records):
        if position + RECORD.size > len(records):
            raise LogError(log.path, None, position, "the block trace ends within a record")
        magic, _, time_ns, sector, length, action, _, _, _, error, more = RECORD.unpack_from(records, position)
        if magic != MAGIC:
            raise LogError(log.path, None, position, f"magic of a block trace record is {magic:#x}, not {MAGIC:#x}")
        if not last_ns <= time_ns < _TIMES_END_NS:
            raise LogError(log.path, None, position, f"time {time_ns} of a block trace record follows {last_ns}")
        last_ns = time_ns
        position += RECORD.size + more
        if error:
            raise LogError(log.path, None, position, f"the block trace has a request that failed with {error}")
        if action & 0xFFFF not in (_QUEUED, _COMPLETED) or action & _NOTE or not action & (_WRITE | _FLUSH):
            continue
        is_completion = action & 0xFFFF == _COMPLETED
        if not length:
            yield is_completion, _Key("FLUSH", sector * SECTOR_BYTES, 0), time_ns
        else:
            kind = "FUA write" if action & _FUA else "write"
            yield is_completion, _Key(kind, sector * SECTOR_BYTES, length), time_ns
