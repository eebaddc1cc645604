"""Joint states of two disks: what the disk that died later holds, and what the other one holds.

`rig.faults.models.twodisk` says which joint states are legal, and makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rig.faults.log.extents import Extent
from rig.faults.log.log import WriteLog
from rig.faults.states import addresses
from rig.faults.states.addresses import StateIdError, parse_state
from rig.faults.states.content import ContentIndex
from rig.faults.states.state import CrashState
from rig.faults.states.twologs import DiskLetter, TwoLogs


@dataclass(frozen=True, kw_only=True)
class JointState(CrashState):
    """A state of the late disk, with what the early one holds. Bases and instants are defined by `TwoLogs`."""

    late: DiskLetter = field(compare=False, repr=False)
    states: Mapping[DiskLetter, CrashState] = field(compare=False, repr=False)
    logs: TwoLogs = field(compare=False, repr=False)

    @property
    def base_end(self) -> int:
        """Return the number of the furthest base that both states contain."""
        return self.logs.base(self.states)

    @property
    def latest_instant(self) -> int:
        """Return the entry of log `a` just after the last mark that was seen."""
        return self.logs.entry_after(self.logs.marks_seen(self.late, self.states[self.late]))

    @property
    def is_apart(self) -> bool:
        """Whether the late disk surely holds something that became durable after all that the early one holds."""
        return self.logs.is_apart(self.late, self.states[self.late], self.states[self.late.other])

    @property
    def base_text(self) -> str:
        """Return the base in words."""
        ends = " and ".join(f"all {self.states[disk].base_end} entries of disk {disk}" for disk in DiskLetter)
        return f"{ends} before the epochs"

    def advance(self, log: WriteLog, from_base: int) -> list[Extent]:  # noqa: ARG002 - the state knows both logs
        """Return what moves a base of both disks from the `base_end` of an earlier joint state to this one."""
        return self.logs.advance(from_base, self.base_end)

    def extents(self, log: WriteLog) -> list[Extent]:  # noqa: ARG002 - the state knows both logs
        """Return what to put on top of the base of both disks, in order."""
        return self.logs.extents(self.base_end, self.states)

    def read(self, log: WriteLog, offset_bytes: int, length_bytes: int) -> bytes:  # noqa: ARG002 - as above
        """Return a range of the device of both disks; it ends where its disk ends."""
        return self.logs.read(self.states, offset_bytes, length_bytes)


class JointIndex:
    """Digests of both disks; hashes both logs once, when built."""

    def __init__(self, logs: TwoLogs) -> None:
        self._indices = {disk: ContentIndex(side.log) for disk, side in logs.sides.items()}

    def digest(self, state: JointState) -> str:
        """Return the digest of both disks in this state: 64 hexadecimal digits."""
        return self.digest_of(state.states)

    def digest_of(self, states: Mapping[DiskLetter, CrashState]) -> str:
        """Return the digest of a state of each disk."""
        return "".join(self._indices[disk].digest(states[disk]) for disk in DiskLetter)


def make_joint(logs: TwoLogs, late: DiskLetter, of_late: CrashState, of_early: CrashState) -> JointState:
    """Build a joint state and its id; the caller must ensure that it is legal (`parse_joint` checks)."""
    text = addresses.join(late, of_late.id, late.other, of_early.id)
    chosen = (of_late.epoch, of_late.fua_count, of_late.whole, of_late.ahead, of_late.tears, of_late.draw)
    return JointState(text, *chosen, late=late, states={late: of_late, late.other: of_early}, logs=logs)


def parse_joint(text: str, logs: TwoLogs) -> JointState:
    """Rebuild the joint state with this id; raise `StateIdError` if the logs lack it or do not prove it legal."""
    late_name, late_text, _, early_text = addresses.split(text)
    late = DiskLetter(late_name)
    side, other = logs.sides[late], logs.sides[late.other]
    of_late = parse_state(late_text, side.log, side.epochs)
    of_early = parse_state(early_text, other.log, other.epochs)
    is_plain = not (of_late.window or of_late.tears or of_late.damages or of_late.cut_at is not None)
    if not is_plain or (of_late.draw and of_late.draw.unit_bytes) or of_late.epoch.doubtful:
        raise StateIdError(f"{text[:80]!r}: the state of disk {late} is not one of a power cut with whole writes")
    pinned = logs.pin(late, of_late)
    if pinned is None:
        raise StateIdError(f"{text[:80]!r}: the logs do not tell what had become durable on disk {late.other} by then")
    if pinned != of_early:
        raise StateIdError(f"{text[:80]!r}: at that instant of disk {late} disk {late.other} held {pinned.id}")
    return make_joint(logs, late, of_late, of_early)
