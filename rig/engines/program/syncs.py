"""The syncs of a user's program, by the files that it syncs. None is documented, so there are no mutants."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from rig.engines.syncs import Call, CallName, SyncKind, pattern_of

KINDS: Mapping[str, SyncKind] = {}
SAMPLE_TUNING: Mapping[str, str] = {}
_BLANKS = re.compile(r"\s+")


class Namer:
    """Names no call."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        pass

    def begin(self) -> None:
        """Begin a transaction; nothing is counted."""

    def name(self, call: Call) -> str:  # noqa: ARG002 - as every namer
        """Return an empty name: no call has one."""
        return ""


def role(path: str, directory: str) -> str:
    """Return the pattern of a file's name: its path below the directory, with N for each number and random word."""
    relative = os.path.relpath(path, directory) if path else ".."
    return "" if relative.startswith("..") else _BLANKS.sub("_", pattern_of(relative))


def word(call: Call) -> str:
    """Return a sync as the pattern of its file's name; empty for any other call."""
    return (call.role or "other") if call.name is CallName.SYNC else ""


def sequences(settings: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG001 - as every module of this kind
    """Return no sequences: none are documented."""
    return ()
