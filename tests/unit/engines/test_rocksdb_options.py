"""RocksDB's options: each word of the setting is what is read back for it, and a file of options is read as written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.engines.rocksdb import options
from rig.engines.rocksdb.spec import SPEC

WORDS = SPEC.settings[options.SETTING]
NAMES = st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20).map(str.strip)

# As RocksDB writes it, shortened.
WRITTEN = """
# This is a RocksDB option file.
[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1

[DBOptions]
  wal_recovery_mode=kAbsoluteConsistency
  manual_wal_flush=false
  atomic_flush=false
  db_log_dir=

[CFOptions "default"]
  write_buffer_size=65536
  compression_opts={max_dict_bytes=0;level=32767;}

[TableOptions/BlockBasedTable "default"]
  block_size=4096

[CFOptions "account"]
  write_buffer_size=1
"""


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_read_back_from_the_options_that_it_stands_for(word: str) -> None:
    writes, wanted = options.mode(word)
    assert word == options.word(options.parse(options.text(wanted)), writes)


def test_options_that_no_word_stands_for_are_read_back_as_they_are() -> None:
    writes, wanted = options.mode("sync")
    odd = options.word({**wanted, "wal_recovery_mode": "kOther"}, writes)
    assert "kOther" in odd
    assert odd not in WORDS
    assert "nosync" == options.word(wanted, replace(writes, sync=False))
    assert options.word({}, writes) not in WORDS


def test_what_matters_is_read_from_a_file_as_rocksdb_writes_it() -> None:
    found = options.parse(WRITTEN)
    assert ("9.8.4", "65536", "") == (found["rocksdb_version"], found["write_buffer_size"], found["db_log_dir"])
    assert "{max_dict_bytes=0;level=32767;}" == found["compression_opts"]
    assert "block_size" not in found
    assert "nosync-absolute" == options.word(found, options.mode("nosync")[0])


@given(st.dictionaries(NAMES, VALUES))
def test_a_file_of_options_is_read_as_written(values: dict[str, str]) -> None:
    found = options.parse(options.text(values))
    assert values == {name: found[name] for name in values}


@given(st.text())
def test_whatever_a_file_holds_is_read_as_something(content: str) -> None:
    assert all(isinstance(value, str) for value in options.parse(content).values())


def test_transactions_that_stay_in_memory_are_told_from_those_that_the_system_has() -> None:
    in_memory = {word for word in WORDS if options.mode(word)[0].stays_in_memory}
    synced = {word for word in WORDS if options.mode(word)[0].syncs}
    assert {"nowal", "atomicflush", "manualwal"} == in_memory
    assert {"flushwal", "sync", "sync-absolute", "sync-tolerate"} == synced
