"""The write logs of one recording, one for each disk, opened together: queries on states for any number of disks.

The first log belongs to the disk with the data; most recordings have no other. Instants and marks refer to the first
log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rig.faults.log.epoch import Epoch
from rig.faults.log.epochs import epochs
from rig.faults.log.log import DEVICE_BYTES_MAX, WriteLog
from rig.faults.log.submissions import attach
from rig.faults.states.addresses import parse_state
from rig.faults.states.content import ContentIndex
from rig.faults.states.jointstate import JointIndex, JointState, make_joint, parse_joint
from rig.faults.states.state import CrashState
from rig.faults.states.twologs import DiskLetter, TwoLogs


@dataclass(frozen=True)
class LogFile:
    """A file that holds the logs of one recording as the kernel wrote them, and the offsets needed to open them."""

    path: Path
    # Where each log begins in the file, and where its disk begins on the one device of a verifier.
    log_begins_bytes: tuple[int, ...] = (0,)
    device_begins_bytes: tuple[int, ...] = (0,)
    # The size of the disk of each log; a log with an entry after its end is damaged.
    devices_bytes: tuple[int, ...] = (DEVICE_BYTES_MAX,)
    # Where the block trace of each log is in the file, as (offset, length) in bytes; empty without traces.
    traces: tuple[tuple[int, int], ...] = ()
    # What the disk writes atomically: writes are cut into entries at its multiples. 0: they stay whole.
    unit_bytes: int = 0

    @contextmanager
    def open(self) -> Iterator[Logs]:
        """Open the logs for the length of a `with` block; raise `LogError` if one is damaged or its trace disagrees."""
        with ExitStack() as stack:
            logs = [
                stack.enter_context(WriteLog.open(self.path, begin_bytes=begin_bytes, device_bytes=device_bytes))
                for begin_bytes, device_bytes in zip(self.log_begins_bytes, self.devices_bytes, strict=True)
            ]
            for log, (begin_bytes, length_bytes) in zip(logs, self.traces, strict=False):
                attach(_part(self.path, begin_bytes, length_bytes), log)
            for log in logs if self.unit_bytes else ():
                log.split(self.unit_bytes)
            yield Logs(*logs, device_begins_bytes=self.device_begins_bytes, traces=self.traces)


class Logs:
    """Opened logs of one file. The first use of two logs raises `LogError` if their marks differ."""

    def __init__(
        self, *logs: WriteLog, device_begins_bytes: Sequence[int] = (0,), traces: tuple[tuple[int, int], ...] = ()
    ) -> None:
        if not 1 <= len(logs) <= 2:
            raise ValueError(f"{len(logs)} logs: a recording has one or two disks")
        self.all = logs
        self.first = logs[0]
        self._device_begins_bytes = tuple(device_begins_bytes)
        self._traces = traces

    @property
    def file(self) -> LogFile:
        """Return the file of the logs."""
        return LogFile(
            self.first.path,
            tuple(log.begin_bytes for log in self.all),
            self._device_begins_bytes,
            tuple(log.device_bytes for log in self.all),
            self._traces,
            self.first.unit_bytes,
        )

    @cached_property
    def epochs(self) -> tuple[Epoch, ...]:
        """Return the epochs of the first log."""
        return epochs(self.first)

    @cached_property
    def pair(self) -> TwoLogs:
        """Return what both logs prove together; raise `ValueError` if there is only one."""
        if len(self.all) != 2:
            raise ValueError("there is only one log, so nothing can be proven about two disks")
        return TwoLogs(*self.all, b_device_bytes=self._device_begins_bytes[1])

    @cached_property
    def pair_index(self) -> JointIndex:
        """Return the digests of both disks."""
        return JointIndex(self.pair)

    def parse(self, text: str) -> CrashState:
        """Rebuild the state of this content; raise `StateIdError` if these logs have no such state."""
        return parse_state(text, self.first, self.epochs) if len(self.all) == 1 else parse_joint(text, self.pair)

    def complete(self, state: CrashState, late: DiskLetter = DiskLetter.A) -> CrashState:
        """Return a state of one disk with what the other, if there is one, holds at its instant.

        If the logs do not prove what that is, return the state as it is: `parse` does not accept its id.
        """
        if len(self.all) == 1:
            return state
        pinned = self.pair.pin(late, state)
        return state if pinned is None else make_joint(self.pair, late, state, pinned)

    def is_complete(self, state: CrashState) -> bool:
        """Return whether a state says what each disk holds."""
        return len(self.all) == 1 or isinstance(state, JointState)

    def of_disk(self, state: CrashState, disk: DiskLetter = DiskLetter.A) -> CrashState:
        """Return what a complete state says of one disk."""
        return state.states[disk] if isinstance(state, JointState) else state

    def digest(self, state: CrashState) -> str:
        """Return the digest of all disks in a state of these logs."""
        return self.pair_index.digest(state) if isinstance(state, JointState) else self._index.digest(state)

    @cached_property
    def _index(self) -> ContentIndex:
        return ContentIndex(self.first)


def _part(path: Path, begin_bytes: int, length_bytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin_bytes)
        return file.read(length_bytes)
