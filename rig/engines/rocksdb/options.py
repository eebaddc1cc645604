"""What the words of the setting mean in RocksDB's own options, and its options files: written and read.

A mode is how a transaction is written and, after a dash, how the log is recovered if not in the default way:

    word         WriteOptions         DBOptions               after each transaction
    nowal        disableWAL
    atomicflush  disableWAL           atomic_flush
    manualwal                         manual_wal_flush
    nosync
    flushwal                          manual_wal_flush        FlushWAL(sync=true)
    sync         sync

    tolerate, absolute, skipany       wal_recovery_mode
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

SETTING = "writes"
# The options that a mode sets, and other options that would change its meaning.
READ_BACK = ("wal_recovery_mode", "manual_wal_flush", "atomic_flush", "avoid_flush_during_shutdown", "use_fsync")
_SECTION = re.compile(r'\[(?P<name>[\w/]+)(?: "(?P<family>[^"]*)")?\]')
_LINE = re.compile(r"(?P<name>\w+)=(?P<value>.*)")
# Options that RocksDB keeps for each column family. All others belong to the database.
_OF_FAMILY = frozenset({"write_buffer_size", "arena_block_size", "disable_auto_compactions"})
_HEAD = "[Version]\n  rocksdb_version=10.4.2\n  options_file_version=1.1\n"
_DEFAULT_RECOVERY = "kPointInTimeRecovery"
_RECOVERIES: Mapping[str, str] = {
    "": _DEFAULT_RECOVERY,
    "tolerate": "kTolerateCorruptedTailRecords",
    "absolute": "kAbsoluteConsistency",
    "skipany": "kSkipAnyCorruptedRecords",
}


@dataclass(frozen=True)
class Writes:
    """How a transaction is written: its WriteOptions, what goes with them in DBOptions, and what follows it."""

    sync: bool = False
    disable_wal: bool = False
    flushes_wal: bool = False
    # The options of the database that are true.
    database: frozenset[str] = frozenset()

    @property
    def syncs(self) -> bool:
        """Whether each transaction syncs the log."""
        return self.sync or self.flushes_wal

    @property
    def stays_in_memory(self) -> bool:
        """Whether an acknowledged transaction has not even reached the operating system."""
        return self.disable_wal or (bool(self.database) and not self.flushes_wal)


_WRITES: Mapping[str, Writes] = {
    "nowal": Writes(disable_wal=True),
    "atomicflush": Writes(disable_wal=True, database=frozenset({"atomic_flush"})),
    "manualwal": Writes(database=frozenset({"manual_wal_flush"})),
    "nosync": Writes(),
    "flushwal": Writes(flushes_wal=True, database=frozenset({"manual_wal_flush"})),
    "sync": Writes(sync=True),
}
_SWITCHES = sorted(name for name in frozenset().union(*(write_mode.database for write_mode in _WRITES.values())))


def mode(word: str) -> tuple[Writes, dict[str, str]]:
    """Return how transactions are written under a word of the setting, and the options of the database."""
    writes, _, recovery = word.partition("-")
    write_mode = _WRITES[writes]
    switches = {name: str(name in write_mode.database).lower() for name in _SWITCHES}
    return write_mode, {**switches, "wal_recovery_mode": _RECOVERIES[recovery]}


def word(has: Mapping[str, str], writes: Writes) -> str:
    """Return the word for a database's options and the writes to it; if none fits, these options."""
    for write_mode, recovery in ((write_mode, recovery) for write_mode in _WRITES for recovery in _RECOVERIES):
        name = f"{write_mode}-{recovery}" if recovery else write_mode
        wanted, options = mode(name)
        is_same = (wanted.sync, wanted.disable_wal, wanted.flushes_wal) == (
            writes.sync, writes.disable_wal, writes.flushes_wal,
        )  # fmt: skip
        if is_same and options == {name: has.get(name) for name in options}:
            return name
    return str({**{name: has.get(name) for name in (*_SWITCHES, "wal_recovery_mode")}, "writes": writes})


def text(values: Mapping[str, str]) -> str:
    """Return the text of an options file with these values."""
    of_family = [f"  {name}={value}\n" for name, value in values.items() if name in _OF_FAMILY]
    of_database = [f"  {name}={value}\n" for name, value in values.items() if name not in _OF_FAMILY]
    return "".join([_HEAD, "[DBOptions]\n", *of_database, '[CFOptions "default"]\n', *of_family])


def parse(content: str) -> dict[str, str]:
    """Return the options of the database and of its default column family in an options file, and the version."""
    options: dict[str, str] = {}
    section = ""
    for line in map(str.strip, content.splitlines()):
        if match := _SECTION.fullmatch(line):
            section = match["name"] if match["family"] in {None, "default"} else ""
        elif section in {"Version", "DBOptions", "CFOptions"} and (match := _LINE.fullmatch(line)):
            options[match["name"]] = match["value"]
    return options
