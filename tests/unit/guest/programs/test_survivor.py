"""A program that survives errors is owed only what was acknowledged to it, whatever it has read in between."""

from __future__ import annotations

from rig.contract.findings import Finding, FindingKind
from rig.guest.programs.survivor import State, note


def read_back(state: State, recovered: int | None) -> State:
    kind = FindingKind.CORRUPT if recovered is None else FindingKind.PREFIX
    note(state, "reopen", Finding(kind, recovered), "an error")
    return state


def test_a_transaction_that_raised_and_was_read_may_be_gone_when_the_database_is_reopened() -> None:
    state = read_back(State(due=21, acked=20, issued=21), 21)
    assert (22, False) == (state.due, state.is_over)
    read_back(state, 20)
    assert (21, False) == (state.due, state.is_over)
    assert [20, 20] == [one["acked"] for one in state.live]


def test_one_whose_commit_returned_may_not() -> None:
    state = read_back(State(due=22, acked=21, issued=21), 20)
    assert state.is_over
    assert (21, 20) == (state.live[0]["acked"], state.live[0]["recovered"])


def test_a_content_that_no_transaction_explains_ends_the_workload() -> None:
    assert read_back(State(due=21, acked=20, issued=20), None).is_over
    assert read_back(State(due=21, acked=20, issued=20), 21).is_over
