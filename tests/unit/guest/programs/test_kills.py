"""Kills go on while there is space. Under `killcut`: which transactions die where, and what a restart must show."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.findings import Finding, FindingKind
from rig.engines.syncs import Call, CallName
from rig.guest.programs.killcut import Killer, Seen, plan
from rig.guest.programs.kills import has_space
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition

SYNC = Call(CallName.SYNC, "log")


@given(blocks=st.integers(1, 1 << 20), files=st.integers(0, 1 << 20), data=st.data())
def test_there_is_space_if_a_sixteenth_of_the_blocks_and_an_eighth_of_the_files_is_free(
    blocks: int, files: int, data: st.DataObject
) -> None:
    free, unused = data.draw(st.integers(0, blocks)), data.draw(st.integers(0, files))
    # See statvfs(3).
    told = os.statvfs_result((4096, 4096, blocks, free, free, files, unused, unused, 0, 255))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: told)
        assert has_space("") is (free >= blocks / 16 and unused >= files / 8)


@given(
    seed=st.integers(0, 99),
    count=st.integers(1, 60),
    calls=st.lists(st.integers(0, 5), max_size=12).map(tuple),
)
def test_one_of_every_four_transactions_is_killed_at_a_call_that_it_may_make(
    seed: int, count: int, calls: tuple[int, ...]
) -> None:
    deaths = plan(seed, count, calls)
    assert [(number - 1) // 4 for number in deaths] == list(range(-(-count // 4)))
    assert max(deaths) <= count
    assert all(0 <= call <= max(calls, default=0) for call in deaths.values())
    # Three of four die inside a commit, if commits make calls at all.
    inside = sum(call > 0 for call in deaths.values())
    assert inside == (len(deaths) - len(deaths) // 4 if any(calls) else 0)
    assert deaths == plan(seed, count, calls)


def moved(strike: Killer, phase: WorkloadPhase, number: int) -> Action:
    return strike.on_move(WorkloadPosition(phase, number))


def called(strike: Killer, phase: WorkloadPhase, number: int, call: Call = SYNC) -> Action:
    return strike.on_call(WorkloadPosition(phase, number), call, "")


def test_a_life_dies_before_the_call_that_was_drawn_and_nowhere_else() -> None:
    strike = Killer({2: 2, 3: 0})
    for number in (1, 2):
        assert Action.CARRY_OUT is moved(strike, WorkloadPhase.COMMIT, number)
        assert Action.CARRY_OUT is called(strike, WorkloadPhase.COMMIT, number)
        if number == 1:
            assert Action.CARRY_OUT is called(strike, WorkloadPhase.COMMIT, number)
            assert Action.CARRY_OUT is called(strike, WorkloadPhase.COMMITTED, number)
            assert Action.CARRY_OUT is moved(strike, WorkloadPhase.ACKED, number)
    assert Action.KILL is called(strike, WorkloadPhase.COMMIT, 2)
    assert (2, 1) == (strike.issued, strike.acked)
    assert strike.where.startswith("killed in transaction 2 before its call 2 (")


@pytest.mark.parametrize("call_number", [0, 3])
def test_a_commit_without_the_call_that_was_drawn_dies_once_it_is_acknowledged(call_number: int) -> None:
    strike = Killer({1: call_number})
    moved(strike, WorkloadPhase.COMMIT, 1)
    assert Action.CARRY_OUT is called(strike, WorkloadPhase.COMMIT, 1)
    assert Action.KILL is moved(strike, WorkloadPhase.ACKED, 1)
    assert "killed right after transaction 1 was acknowledged" == strike.where
    assert (1, 1) == (strike.issued, strike.acked)


def test_swallowed_syncs_do_nothing_but_for_the_setup_of_the_first_life() -> None:
    first, later = (Killer({}, swallows=True, is_first=is_first) for is_first in (True, False))
    assert Action.CARRY_OUT is called(first, WorkloadPhase.SETUP, 0)
    assert Action.PRETEND is called(later, WorkloadPhase.SETUP, 0)
    for strike in (first, later):
        assert Action.PRETEND is called(strike, WorkloadPhase.COMMIT, 1)
        assert Action.CARRY_OUT is called(strike, WorkloadPhase.COMMIT, 1, Call(CallName.UNLINK, "log"))
    assert Action.CARRY_OUT is called(Killer({}), WorkloadPhase.COMMIT, 1)


def test_the_end_is_noted_so_that_it_is_marked_once() -> None:
    strike = Killer({})
    moved(strike, WorkloadPhase.ACKED, 1)
    assert not strike.has_ended
    moved(strike, WorkloadPhase.END, 0)
    assert strike.has_ended


@pytest.mark.parametrize(
    ("kind", "recovered", "is_admitted"),
    [
        (FindingKind.PREFIX, 3, True),
        (FindingKind.PREFIX, 4, True),
        (FindingKind.PREFIX, 2, False),
        (FindingKind.PREFIX, 5, False),
        (FindingKind.HOLE, None, False),
        (FindingKind.KEPT_OPEN, 3, False),
    ],
)
def test_a_restart_shows_what_was_acknowledged_and_no_more_than_had_begun(
    kind: FindingKind, recovered: int | None, is_admitted: bool
) -> None:
    assert is_admitted is Seen(known=3, issued=4).admits(Finding(kind, recovered))
