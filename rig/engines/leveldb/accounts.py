"""What LevelDB has written, and whether it is still compacting: by its info log, a property, and the format of its log.

The property `leveldb.stats` rounds to whole MB, so the bytes of tables are read from the info log, the file `LOG`. It
has a line for each table that was made from memory and for each compaction. A log is removed once a table holds its
content, so the bytes of logs are computed from the formats of a log (doc/log_format.md) and of a batch
(db/write_batch.cc). The calculation treats all logs as one. In fact each further log begins with a new block, which may
save a header of 7 bytes.
"""

from __future__ import annotations

import re

from rig.contract.errors import EngineError

SSTABLES = b"leveldb.sstables"
_FLUSHED = re.compile(r"Level-0 table #\d+: (\d+) bytes OK$", re.MULTILINE)
_COMPACTED = re.compile(r"Compacted \d+@\d+ \+ \d+@\d+ files => (\d+) bytes$", re.MULTILINE)
_LEVEL = re.compile(r"--- level (\d+) ---")
# The keys that follow may contain any bytes except line feeds, which LevelDB escapes.
_TABLE = re.compile(r" \d+:(\d+)\[")
# doc/impl.md: level 0 may have this many files, and level n may have 10^n MB; the last level has no limit.
_FILES_MAX_OF_LEVEL_0 = 4
_LEVELS = 7
_BLOCK_BYTES, _HEADER_BYTES = 32 << 10, 7
# A number and a count before the records, and a kind before each.
_BATCH_BYTES, _KIND_BYTES = 12, 1


def flushed_bytes(info_log: str) -> int:
    """Return the bytes of the tables made from memory; raise EngineError if the log names no such table."""
    sizes = _FLUSHED.findall(info_log)
    if not sizes:
        last = info_log.strip().rpartition("\n")[2]
        raise EngineError(f"LevelDB's info log names no table made from memory, or in another form; it ends: {last}")
    return sum(map(int, sizes))


def compacted_bytes(info_log: str) -> int:
    """Return the bytes of the tables that compactions made; 0 without compactions."""
    return sum(map(int, _COMPACTED.findall(info_log)))


def levels(sstables: str) -> dict[int, list[int]]:
    """Return the sizes of all tables by level; raise EngineError if the property has another form."""
    by_level: dict[int, list[int]] = {}
    sizes: list[int] | None = None
    for line in sstables.split("\n"):
        if level := _LEVEL.fullmatch(line):
            sizes = by_level[int(level[1])] = []
        elif (table := _TABLE.match(line)) and sizes is not None:
            sizes.append(int(table[1]))
        elif line:
            raise EngineError(f"LevelDB's property {SSTABLES.decode()} has the line {line!r}: take LevelDB 1.22")
    if sorted(by_level) != list(range(_LEVELS)):
        raise EngineError(f"LevelDB's property {SSTABLES.decode()} has levels {sorted(by_level)}: take LevelDB 1.22")
    return by_level


def is_settled(sizes: dict[int, list[int]]) -> bool:
    """Whether every level is small enough for LevelDB not to compact it."""
    if len(sizes[0]) >= _FILES_MAX_OF_LEVEL_0:
        return False
    return all(sum(sizes[level]) < 10**level << 20 for level in range(1, _LEVELS - 1))


def log_bytes(record_bytes: int, batch_records: int, count: int) -> int:
    """Return the bytes of `count` records in the log, in batches; each key and each value is below 128 bytes."""
    # The lengths of key and value take a byte each.
    taken = _KIND_BYTES + 2 + record_bytes
    at = 0
    for _ in range(count // batch_records):
        at = _end_of_batch(at, _BATCH_BYTES + batch_records * taken)
    if rest := count % batch_records:
        at = _end_of_batch(at, _BATCH_BYTES + rest * taken)
    return at


def _end_of_batch(at: int, size: int) -> int:
    """Return where a log ends after a batch of `size` bytes that begins at `at`; a batch may span several blocks."""
    is_first = True
    while size or is_first:
        room = _BLOCK_BYTES - at % _BLOCK_BYTES
        if room < _HEADER_BYTES:
            # Zeros fill the block.
            at += room
            continue
        part = min(size, room - _HEADER_BYTES)
        at, size, is_first = at + _HEADER_BYTES + part, size - part, False
    return at
