"""Power cut on two honest disks that need not die at one instant: a file system whose journal has a disk of its own.

The file system flushes the data disk before it commits to the journal. Each disk has its own write log, see
`rig.faults.states.twologs`.

Model: each disk is a disk of `rig.faults.models.powercut`. One, the early disk, dies first; the late disk and the host
go on until the host needs the early one. If the host saw a FLUSH or FUA of the early disk complete, that disk was alive
until then. So a joint state is legal if
(x) the late disk is in any state of the families (a) and (b) of a power cut, at that state's instant, and
(y) the early disk has lost all that was not flushed, at a moment such that nothing became durable on it between that
    moment and the instant of the late disk: no FUA completed, and no FLUSH that took a write.

Legal because a disk may lose its whole cache at any moment, and because what was durable on the early disk did not
change in that time: it holds the same whether it died at the beginning or at the end.

Provable from the logs: clock or marks (`rig.faults.states.twologs`) must place each FUA, and each FLUSH that took a
write, of the early disk either before or after the instant of the late disk. The early disk is then pinned just after
the last of these FUAs and FLUSHes before that instant. If clock or marks leave a single one open, or the early disk's
log does not tell what the pin holds (`Epoch.doubtful`), no state is claimed. In a joint state the acknowledgements are
the marks before the instant of the late disk, in the log of the late disk: the host went on until then, and the pin
holds all that had become durable on the early disk by then.

Left out: parts of the early disk's cache; instants of the late disk other than the latest for its content (with
nothing unflushed, that is the other role's pin); writes in flight; torn writes.

The id of a joint state names the late disk first, for example `a:e43.f2.w12+b:e17.f1` (`rig.faults.states.addresses`).
The state of the late disk decides the state of the early one, which the id names for the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rig.faults.choosing.selection import Plan, Ranking, in_turns, select
from rig.faults.log.epoch import Epoch
from rig.faults.log.extents import Extent
from rig.faults.log.log import WriteLog
from rig.faults.models.powercut import Turns, after_fuas, before_flush, opening
from rig.faults.states import addresses
from rig.faults.states.addresses import StateIdError, parse_state
from rig.faults.states.content import ContentIndex
from rig.faults.states.state import CrashState, make_state
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


def states(logs: TwoLogs, index: JointIndex, *, first_mark: int, states_max: int, seed: int) -> Plan:
    """Plan joint states of both roles at instants after mark number `first_mark`; deterministic under `seed`.

    Epochs in which nothing is proven are not cut. They count as unproven if clock or marks leave the order open, and
    otherwise as doubtful. Epochs whose own start is open count as doubtful too.
    """
    half = (states_max + 1) // 2
    first = _select(logs, DiskLetter.A, index, first_mark=first_mark, states_max=half, seed=seed)
    left = max(1, states_max - len(first.states))
    second = _select(logs, DiskLetter.B, index, first_mark=first_mark, states_max=left, seed=seed)
    found: dict[str, JointState] = {}
    for late, plan in ((DiskLetter.A, first), (DiskLetter.B, second)):
        for of_late in plan.states:
            state = make_joint(logs, late, of_late, _pinned(logs, late, of_late))
            known = found.get(content := index.digest(state))
            if known is None or known.instant < state.instant:
                found[content] = state
    return Plan(
        tuple(sorted(found.values(), key=lambda state: (state.base_end, state.id))),
        first.epoch_count + second.epoch_count,
        first.epochs_exhaustive + second.epochs_exhaustive,
        first.epochs_sampled + second.epochs_sampled,
        first.epochs_doubtful + second.epochs_doubtful,
        first.epochs_unproven + second.epochs_unproven,
    )


def make_joint(logs: TwoLogs, late: DiskLetter, of_late: CrashState, of_early: CrashState) -> JointState:
    """Build a joint state and its id; the caller must ensure that it is legal (`parse_joint` checks)."""
    text = addresses.joined(late, of_late.id, late.other, of_early.id)
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


class _WithPin:
    """Digests of both disks, for states of the late one."""

    def __init__(self, logs: TwoLogs, late: DiskLetter, index: JointIndex) -> None:
        self._logs = logs
        self._late = late
        self._index = index

    def digest(self, state: CrashState) -> str:
        pinned = _pinned(self._logs, self._late, state)
        return self._index.digest_of({self._late: state, self._late.other: pinned})


def _pinned(logs: TwoLogs, late: DiskLetter, of_late: CrashState) -> CrashState:
    pinned = logs.pin(late, of_late)
    assert pinned is not None, f"{of_late.id} was chosen without proof"
    return pinned


def _select(logs: TwoLogs, late: DiskLetter, index: JointIndex, *, first_mark: int, states_max: int, seed: int) -> Plan:
    side = logs.sides[late]

    def is_proven(state: CrashState) -> bool:
        return logs.pin(late, state) is not None

    # The state with all FUA writes and none of the batch represents the cut at the end of its epoch.
    ends = {epoch.number: is_proven(make_state(epoch, len(epoch.fuas))) for epoch in side.epochs}
    fuas = {epoch.number: [one for one in after_fuas(epoch) if is_proven(one)] for epoch in side.epochs}

    first_entry = side.marks[first_mark]
    turns = Turns(side.log, [epoch for epoch in side.epochs if epoch.end > first_entry and ends[epoch.number]], seed)

    def rank(epoch: Epoch) -> Ranking:
        before_end = before_flush(epoch, turns) if ends[epoch.number] else Ranking((), exhaustive=False)
        families = [before_end.states, fuas[epoch.number]]
        ranked = in_turns(*(reversed(families) if opening(epoch, seed) == 1 else families))
        is_whole = before_end.exhaustive and len(fuas[epoch.number]) == len(epoch.fuas)
        return Ranking(ranked, is_whole)

    claimed = [epoch for epoch in side.epochs if ends[epoch.number] or fuas[epoch.number]]
    plan = select(
        side.log, claimed, rank,
        first_entry=first_entry, states_max=states_max, contents=_WithPin(logs, late, index),
    )  # fmt: skip
    uncut = [epoch for epoch in side.epochs if epoch.end > first_entry and epoch not in claimed]
    unproven = sum(not logs.is_ordered(late, make_state(epoch, len(epoch.fuas))) for epoch in uncut)
    doubtful = plan.epochs_doubtful + len(uncut) - unproven
    return replace(plan, epochs_doubtful=doubtful, epochs_unproven=unproven)
