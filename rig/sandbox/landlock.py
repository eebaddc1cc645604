"""Landlock: a process gives up all files but some, TCP, and signals to processes outside.

The kernel's interface is in linux/landlock.h and Documentation/userspace-api/landlock.rst. What an older kernel cannot
forbid is left out: opening a file (since Linux 5.13, ABI 1), truncating (6.2, ABI 3), TCP (6.7, ABI 4), requests to
devices (6.10, ABI 5), abstract sockets and signals (6.12, ABI 6).
"""

from __future__ import annotations

import ctypes
import errno
import struct

from rig.sandbox.linux import system_call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_OF_ABI_1 = (1 << 13) - 1
_OF_LATER_ABI = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
_NET_TCP, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3

# What may be done with a file or folder that a machine was given, by word.
RIGHTS = {
    "read": _READ_FILE,
    "write": _READ_FILE | _WRITE_FILE | _TRUNCATE,
    "device": _READ_FILE | _WRITE_FILE | _IOCTL_DEV,
    "programs": _EXECUTE | _READ_FILE | _READ_DIR,
    # Files without a name: one with a name would need the right to make it.
    "scratch": _READ_FILE | _WRITE_FILE | _TRUNCATE,
}


def version() -> int:
    """Return the version of the kernel's interface (ABI); raise OSError if it has none or it is switched off."""
    return system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)


def restrict(given: list[tuple[int, str]]) -> None:
    """Give up everything but some files and folders: open descriptors, each with a word of `RIGHTS`. Raises OSError."""
    abi = version()
    handled = _ALL_OF_ABI_1
    for since, right in _OF_LATER_ABI.items():
        if abi >= since:
            handled |= right
    attributes = struct.pack(
        "=QQQ", handled, _NET_TCP if abi >= 4 else 0, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = system_call(_CREATE_RULESET, ctypes.c_char_p(attributes), size, 0)
    for descriptor, word in given:
        rule = struct.pack("=Qi", RIGHTS[word] & handled, descriptor)
        try:
            system_call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.c_char_p(rule), 0)
        except OSError as error:
            # Files in memory are on no file system that could be named; they need no rule.
            if error.errno != errno.EBADFD:
                raise
    system_call(_RESTRICT_SELF, ruleset, 0)
