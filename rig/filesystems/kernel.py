"""mount(2), and what the kernel says about mounted file systems: its messages, and the options of a mount."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path

# syslog(2): everything since the messages were last cleared; clear them. The console still shows cleared messages.
_READ_ALL, _CLEAR = 3, 5
# As large as the kernel's own buffer can be in the guest.
_BUFFER_BYTES = 1 << 20
_MESSAGE = re.compile(r"<(\d+)>\[ *[\d.]+\] (.*)")
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, kind: str, options: str, point: str, flags: int = 0) -> None:
    """Mount; raise OSError with the kernel's errno."""
    if _libc.mount(source.encode(), point.encode(), kind.encode(), flags, options.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind}: {os.strerror(number)}")


def unmount(point: str, flags: int = 0) -> None:
    """Unmount; raise OSError with the kernel's errno."""
    if _libc.umount2(point.encode(), flags):
        number = ctypes.get_errno()
        raise OSError(number, f"umount: {os.strerror(number)}")


def forget_messages() -> None:
    """Forget the kernel's messages, so that later ones are about what is mounted next."""
    _libc.klogctl(_CLEAR, None, 0)


def messages() -> str:
    """Return the kernel's messages since they were forgotten, each line with its level."""
    size = _libc.klogctl(_READ_ALL, _buffer(), _BUFFER_BYTES)
    return ctypes.string_at(_buffer(), max(0, size)).decode(errors="replace")


@cache
def _buffer() -> ctypes.Array[ctypes.c_char]:
    # Made once: to touch 256 new pages takes 20 ms in a user-mode machine, and this happens in every state.
    return ctypes.create_string_buffer(_BUFFER_BYTES)


def messages_like(text: str, beginning: re.Pattern[str], level_max: int) -> list[str]:
    """Return the kernel's messages that begin like this and are at least as severe as a level.

    include/linux/kern_levels.h lists the levels: the lower, the more severe.
    """
    matches = [match for line in text.splitlines() if (match := _MESSAGE.fullmatch(line))]
    return [match[2] for match in matches if int(match[1]) & 7 <= level_max and beginning.match(match[2])]


def mount_options(device: str) -> str:
    """Return the options of a mounted device as the kernel lists them, separated by commas."""
    return options_of(mounts(), device)


def mounts() -> str:
    """Return the text of /proc/mounts."""
    return Path("/proc/mounts").read_text()


def options_of(mounts: str, device: str) -> str:
    """Return the options of a device in the text of /proc/mounts; raise LookupError if it is not mounted."""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 3 and fields[0] == device:
            return fields[3]
    raise LookupError(f"{device} is not mounted")
