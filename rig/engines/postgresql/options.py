"""What the words of the setting mean in the parameters of PostgreSQL, and with which parameters a server is started.

A word names the parameter that differs from PostgreSQL's defaults:

    word           synchronous_commit  fsync  full_page_writes  wal_sync_method
    nofsync                            off
    nofullpages                               off
    async          off
    opendatasync                                                open_datasync
    default        on                  on     on                fdatasync
"""

from __future__ import annotations

from collections.abc import Mapping

SETTING = "durability"
_DEFAULTS = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on", "wal_sync_method": "fdatasync"}
_DIFFERENT: Mapping[str, Mapping[str, str]] = {
    "nofsync": {"fsync": "off"},
    "nofullpages": {"full_page_writes": "off"},
    "async": {"synchronous_commit": "off"},
    "opendatasync": {"wal_sync_method": "open_datasync"},
    "default": {},
}
WORDS = tuple(_DIFFERENT)
# Parameters that matter to the result but are not settings in the spec.
READ_BACK = (*_DEFAULTS, "data_checksums", "wal_segment_size", "data_sync_retry", "ignore_checksum_failure")
# These make a server start quickly: it has everything that this one connection needs, and all else is minimal.
_SMALL = {
    "listen_addresses": "",
    "max_connections": "40",
    "superuser_reserved_connections": "0",
    "max_worker_processes": "0",
    "max_logical_replication_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "max_wal_senders": "0",
    "max_replication_slots": "0",
    "max_files_per_process": "64",
    "autovacuum": "off",
    "track_counts": "off",
    "track_activities": "off",
    "jit": "off",
    "huge_pages": "off",
    # The default needs a file system in memory that the guest does not have.
    "dynamic_shared_memory_type": "sysv",
    # If a process of the server dies, the whole server ends; the rig starts it again, so it need not restart itself.
    "restart_after_crash": "off",
    # The driver reads the log and knows the time, so lines need no prefix.
    "log_line_prefix": "",
    "log_checkpoints": "off",
    "lc_messages": "C",
}


def parameters(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a server with these settings: `SETTING` is a word, all others are parameters."""
    own = {name: value for name, value in settings.items() if name != SETTING}
    return {**_SMALL, **_DEFAULTS, **_DIFFERENT[settings[SETTING]], **own}


def word(has: Mapping[str, str]) -> str:
    """Return the word for the parameters that a server has; if none fits, these parameters."""
    values = {name: has.get(name, "") for name in _DEFAULTS}
    return next(
        (known_word for known_word, different in _DIFFERENT.items() if values == {**_DEFAULTS, **different}),
        str(values),
    )


def syncs_commits(settings: Mapping[str, str]) -> bool:
    """Return whether a commit waits for a separate call that syncs the log."""
    return settings[SETTING] in {"default", "nofullpages"}
