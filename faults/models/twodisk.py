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

from dataclasses import replace
from itertools import chain

from rig.faults.choosing.phases import phases
from rig.faults.choosing.selection import Budget, Plan, Ranking, in_turns, select
from rig.faults.log.epoch import Epoch
from rig.faults.models.powercut import Batches, after_fuas
from rig.faults.states.jointstate import JointIndex, JointState, make_joint
from rig.faults.states.state import CrashState, make_state
from rig.faults.states.twologs import DiskLetter, TwoLogs


def states(logs: TwoLogs, index: JointIndex, *, first_mark: int, states_max: int, seed: int) -> Plan:
    """Plan joint states of both roles at instants after mark number `first_mark`; deterministic under `seed`.

    Epochs in which nothing is proven are not cut. They count as unproven if clock or marks leave the order open, and
    otherwise as doubtful. Epochs whose own start is open count as doubtful too.
    """
    half = (states_max + 1) // 2
    first = _select(logs, DiskLetter.A, index, first_mark=first_mark, states_max=half, seed=seed)
    left = max(1, states_max - len(first.chosen))
    second = _select(logs, DiskLetter.B, index, first_mark=first_mark, states_max=left, seed=seed)
    of_both = [
        [make_joint(logs, late, of_late, _pin(logs, late, of_late)) for of_late in plan.chosen]
        for late, plan in ((DiskLetter.A, first), (DiskLetter.B, second))
    ]
    by_content: dict[str, JointState] = {}
    for state in chain(*of_both):
        known = by_content.get(content := index.digest(state))
        if known is None or known.instant < state.instant:
            by_content[content] = state
    # Both roles take turns.
    in_order = dict.fromkeys(index.digest(state) for state in in_turns(*of_both))
    return Plan(
        tuple(by_content[content] for content in in_order),
        first.epoch_count + second.epoch_count,
        first.epochs_exhaustive + second.epochs_exhaustive,
        first.epochs_sampled + second.epochs_sampled,
        first.epochs_doubtful + second.epochs_doubtful,
        first.epochs_unproven + second.epochs_unproven,
    )


class _WithPin:
    """Digests of both disks, for states of the late one."""

    def __init__(self, logs: TwoLogs, late: DiskLetter, index: JointIndex) -> None:
        self._logs = logs
        self._late = late
        self._index = index

    def digest(self, state: CrashState) -> str:
        pinned = _pin(self._logs, self._late, state)
        return self._index.digest_of({self._late: state, self._late.other: pinned})


def _pin(logs: TwoLogs, late: DiskLetter, of_late: CrashState) -> CrashState:
    pinned = logs.pin(late, of_late)
    assert pinned is not None, f"{of_late.id} was chosen without proof"
    return pinned


def _select(logs: TwoLogs, late: DiskLetter, index: JointIndex, *, first_mark: int, states_max: int, seed: int) -> Plan:
    side = logs.sides[late]

    def is_proven(state: CrashState) -> bool:
        return logs.pin(late, state) is not None

    # The state with all FUA writes and none of the batch represents the cut at the end of its epoch.
    ends = {epoch.number: is_proven(make_state(epoch, len(epoch.fuas))) for epoch in side.epochs}
    fuas = {epoch.number: [state for state in after_fuas(epoch) if is_proven(state)] for epoch in side.epochs}

    first_entry = side.marks[first_mark]
    alike = phases(side.log, [epoch for epoch in side.epochs if epoch.end > first_entry and ends[epoch.number]])
    batches = Batches(alike, seed)

    def rank(epoch: Epoch) -> Ranking:
        before_end = batches.before_flush(epoch) if ends[epoch.number] else Ranking((), exhaustive=False)
        ranked = batches.mix(epoch, before_end.states, fuas[epoch.number])
        is_whole = before_end.exhaustive and len(fuas[epoch.number]) == len(epoch.fuas)
        return Ranking(ranked, is_whole)

    claimed = [epoch for epoch in side.epochs if ends[epoch.number] or fuas[epoch.number]]
    plan = select(
        side.log, claimed, rank, Budget(first_entry, states_max, seed), alike=alike,
        contents=_WithPin(logs, late, index),
    )  # fmt: skip
    uncut = [epoch for epoch in side.epochs if epoch.end > first_entry and epoch not in claimed]
    unproven = sum(not logs.is_ordered(late, make_state(epoch, len(epoch.fuas))) for epoch in uncut)
    doubtful = plan.epochs_doubtful + len(uncut) - unproven
    return replace(plan, epochs_doubtful=doubtful, epochs_unproven=unproven)
