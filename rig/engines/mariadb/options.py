"""What the words of the setting mean in the variables of MariaDB, and with which variables a server is started.

A word names the variable that differs from MariaDB's defaults; `innodb_` is left out here:

    word           flush_log_at_trx_commit  doublewrite  flush_method  log_bin  sync_binlog
    nodoublewrite                           OFF
    flush0         0
    flush2         2
    binlog0                                                            ON       0
    flush3         3                                                   ON       0
    fsync                                                fsync
    odsync                                               O_DSYNC
    binlog1                                                            ON       1
    default        1                        ON           O_DIRECT      OFF      0

Without the binary log, 3 does the same as 1.
"""

from __future__ import annotations

from collections.abc import Mapping

SETTING = "durability"
_FLUSH, _BINLOG, _METHOD = "innodb_flush_log_at_trx_commit", "log_bin", "innodb_flush_method"
_DEFAULTS = {_FLUSH: "1", "innodb_doublewrite": "ON", _METHOD: "O_DIRECT", _BINLOG: "OFF", "sync_binlog": "0"}
_DIFFERENT: Mapping[str, Mapping[str, str]] = {
    "nodoublewrite": {"innodb_doublewrite": "OFF"},
    "flush0": {_FLUSH: "0"},
    "flush2": {_FLUSH: "2"},
    "binlog0": {_BINLOG: "ON"},
    "flush3": {_FLUSH: "3", _BINLOG: "ON"},
    "fsync": {_METHOD: "fsync"},
    "odsync": {_METHOD: "O_DSYNC"},
    "binlog1": {_BINLOG: "ON", "sync_binlog": "1"},
    "default": {},
}
WORDS = tuple(_DIFFERENT)
# Variables that matter to the result but are not settings in the spec.
READ_BACK = (
    *_DEFAULTS, "innodb_page_size", "innodb_checksum_algorithm", "innodb_data_file_buffering",
    "innodb_data_file_write_through", "innodb_log_file_buffering", "innodb_log_file_write_through",
    "innodb_log_file_mmap", "innodb_use_native_aio", "innodb_flush_log_at_timeout",
)  # fmt: skip
BINLOG_NAME = "binlog"
# The data directory was made with these; a server with other values does not open it.
LAYOUT = {
    "innodb_data_home_dir": "",
    "innodb_data_file_path": "ibdata1:3M:autoextend",
    "innodb_autoextend_increment": "1",
    "innodb_undo_tablespaces": "0",
    "innodb_log_file_size": "4M",
    "aria_log_file_size": "8M",
}
# These make a server start quickly: it has everything that this one connection needs, and all else is minimal.
_SMALL = {
    "skip_networking": "ON",
    # Accounts and their rights are not at stake, and TLS would cost a key for each start.
    "skip_grant_tables": "ON",
    "ssl": "OFF",
    "max_connections": "40",
    "open_files_limit": "256",
    "table_open_cache": "64",
    "performance_schema": "OFF",
    "query_cache_type": "OFF",
    "query_cache_size": "0",
    "key_buffer_size": "8192",
    "aria_pagecache_buffer_size": "131072",
    "character_set_server": "utf8mb4",
    "collation_server": "utf8mb4_bin",
    "innodb_buffer_pool_size_max": "8M",
    "innodb_log_buffer_size": "2M",
    "innodb_read_io_threads": "1",
    "innodb_write_io_threads": "2",
    "innodb_purge_threads": "1",
    "innodb_buffer_pool_dump_at_shutdown": "OFF",
    "innodb_buffer_pool_load_at_startup": "OFF",
    "innodb_stats_persistent": "OFF",
    # The server's own threads then make the calls, so that they can be supervised.
    "innodb_use_native_aio": "OFF",
    "innodb_log_file_mmap": "OFF",
    # A stack trace takes a minute under emulation.
    "stack_trace": "OFF",
}


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a server with these settings: `SETTING` is a word, all others are variables."""
    own = {name: value for name, value in settings.items() if name != SETTING}
    return {**_SMALL, **LAYOUT, **_DEFAULTS, **_DIFFERENT[settings[SETTING]], **own}


def arguments(given: Mapping[str, str]) -> list[str]:
    """Return the arguments of a server with these variables."""
    binlog = {"ON": BINLOG_NAME}.get(given[_BINLOG], "")
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if name != _BINLOG]
    return [*words, f"--log-bin={binlog}" if binlog else "--skip-log-bin"]


def word(has: Mapping[str, str]) -> str:
    """Return the word for the variables that a server has; if none fits, these variables."""
    values = {name: has.get(name, "") for name in _DEFAULTS}
    return next(
        (known_word for known_word, different in _DIFFERENT.items() if values == {**_DEFAULTS, **different}),
        str(values),
    )
