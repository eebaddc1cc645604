"""The timeline of a recording against a scan of every mark; marks that cannot be trusted void the recording."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.errors import RecordingError
from rig.faults import Mark
from rig.recordings.timeline import Timeline


@st.composite
def recordings(draw: st.DrawFn) -> list[Mark]:
    """Draw the marks of a recording: any number of entries and ticks between them, times that may stand still."""
    count = draw(st.integers(0, 5))
    texts = ["setup"]
    for number in range(1, count + 1):
        texts += ["tick"] * draw(st.integers(0, 2)) + [f"begin-{number}", f"ack-{number}"]
    texts += ["tick"] * draw(st.integers(0, 2)) + ["end"]
    entry, time_ns, marks = -1, 0, []
    for text in texts:
        entry += draw(st.integers(1, 4))
        time_ns += draw(st.integers(0, 50))
        marks.append(Mark(entry, f"{text}-{time_ns}"))
    return [*marks, Mark(entry + draw(st.integers(1, 4)), "dm-log-writes-end")]


def numbers_before(marks: list[Mark], kind: str, entry: int) -> list[int]:
    return [int(mark.text.split("-")[1]) for mark in marks if mark.text.startswith(kind) and mark.entry_index < entry]


def time_of(mark: Mark) -> int:
    return int(mark.text.rsplit("-", 1)[1])


@given(marks=recordings())
def test_acked_and_issued_count_the_marks_before_an_entry(marks: list[Mark]) -> None:
    timeline = Timeline(marks)
    for entry in range(marks[-1].entry_index + 2):
        assert len(numbers_before(marks, "ack-", entry)) == timeline.acked_count(entry)
        assert len(numbers_before(marks, "begin-", entry)) == timeline.issued_count(entry)
        assert timeline.acked_count(entry) <= timeline.issued_count(entry) <= timeline.acked_count(entry) + 1


def marks_of(*texts: str) -> list[Mark]:
    return [Mark(number * 10, f"{text}-{number}") for number, text in enumerate(texts)]


def test_a_step_is_hit_from_its_begin_to_the_end_of_the_transaction_after_it() -> None:
    timeline = Timeline(
        marks_of(
            "setup", "begin-1", "ack-1", "begin-2", "ack-2.drop-part", "begin-3", "ack-3", "begin-4", "ack-4.x", "end"
        )
    )
    assert [("drop-part", 30, 60), ("x", 70, 90)] == timeline.steps
    assert [(30, 60)] == [(begin.entry_index, end.entry_index) for begin, end in timeline.step_spans("drop-part")]
    assert [] == timeline.step_spans("drop")
    assert 4 == timeline.acked_count(99)


def test_a_transaction_that_returned_an_error_is_never_acknowledged_unless_it_is_carried_out_again() -> None:
    # The program goes on after 2 and 3; it ends at 4, has 1 and 3, and is started again for 4.
    timeline = Timeline(
        marks_of(
            "setup", "begin-1", "ack-1", "begin-2", "error-2", "begin-3", "ack-3", "begin-4", "error-4", "begin-4",
            "ack-4", "end",
        )
    )  # fmt: skip
    assert (2,) == timeline.failed
    assert [1, 3, 4] == [ack.number for _, ack in timeline.turns]
    # It goes on after the last one that it has, which may be long ago.
    again = ("setup", "begin-1", "ack-1", "begin-2", "error-2", "begin-3", "error-3", "begin-2", "ack-2", "end")
    assert (3,) == Timeline(marks_of(*again)).failed
    for wrong in (("begin-1", "error-1", "begin-3", "ack-3"), ("begin-1", "ack-1", "begin-2", "error-2", "begin-1")):
        with pytest.raises(RecordingError, match="out of turn"):
            Timeline(marks_of("setup", *wrong, "end"))


@given(marks=recordings())
def test_lost_time_runs_from_the_first_lost_ack_to_the_last_mark_before_the_cut(marks: list[Mark]) -> None:
    timeline = Timeline(marks)
    acks = {int(mark.text.split("-")[1]): time_of(mark) for mark in marks if mark.text.startswith("ack-")}
    for entry in range(marks[0].entry_index + 1, marks[-1].entry_index + 1):
        acked = len(numbers_before(marks, "ack-", entry))
        last_ns = max(time_of(mark) for mark in marks[:-1] if mark.entry_index < entry)
        for recovered in range(len(acks) + 1):
            expected = last_ns - acks[recovered + 1] if recovered < acked else 0
            assert expected == timeline.lost_ns(recovered, entry)


@given(marks=recordings(), share=st.floats(0, 1, exclude_max=True))
def test_a_cut_at_a_time_lies_between_the_marks_around_it_and_is_spread_evenly(marks: list[Mark], share: float) -> None:
    timeline = Timeline(marks)
    begin_ns, end_ns = time_of(marks[0]), time_of(marks[-2])
    time_ns = begin_ns + share * (end_ns - begin_ns)
    if time_ns >= end_ns:
        with pytest.raises(ValueError, match="outside the workload"):
            timeline.entry_at(time_ns)
        return
    before, following = next(
        pair for pair in itertools.pairwise(marks[:-1]) if time_of(pair[0]) <= time_ns < time_of(pair[1])
    )
    between = list(range(before.entry_index + 1, following.entry_index)) or [following.entry_index]
    step_ns = (time_of(following) - time_of(before)) / len(between)
    expected = [rank for rank in range(len(between)) if time_of(before) + rank * step_ns <= time_ns + 1e-9]
    assert timeline.entry_at(time_ns) in (between[expected[-1]], between[max(0, expected[-1] - 1)])
    assert before.entry_index < timeline.entry_at(time_ns) <= following.entry_index


def test_entries_between_two_marks_are_spread_evenly_over_their_time() -> None:
    timeline = Timeline([Mark(10, "setup-0"), Mark(14, "begin-1-30"), Mark(15, "ack-1-40"), Mark(16, "end-50")])
    assert [11, 11, 12, 13, 15, 16] == [timeline.entry_at(time_ns) for time_ns in (0, 9, 10, 29, 30, 49)]
    for time_ns in (-1, 50, 51):
        with pytest.raises(ValueError, match="outside the workload"):
            timeline.entry_at(time_ns)


def test_busy_time_is_what_passes_inside_transactions() -> None:
    texts = ["setup-5", "begin-1-10", "ack-1-13", "tick-20", "begin-2-30", "ack-2-34", "end-99"]
    timeline = Timeline([Mark(entry, text) for entry, text in enumerate(texts)])
    assert 3 + 4 == timeline.busy_ns
    assert (5, 99) == (timeline.setup.time_ns, timeline.end.time_ns)


def test_a_failed_transaction_is_tried_again_or_found_and_an_ack_speaks_for_all_below() -> None:
    texts = ["setup-0", "begin-1-1", "fail-1-2", "begin-1-3", "fail-1-4", "begin-2-5", "ack-2-9", "end-20"]
    timeline = Timeline([Mark(10 * rank, text) for rank, text in enumerate(texts)])
    assert [0, 0, 2] == [timeline.acked_count(entry) for entry in (0, 60, 61)]
    assert [0, 1, 1, 2] == [timeline.issued_count(entry) for entry in (10, 11, 50, 51)]
    assert [11, 11, 0] == [timeline.lost_ns(recovered, 71) for recovered in (0, 1, 2)]
    assert 4 == timeline.busy_ns, "only what was acknowledged counts as work"


def test_a_commit_may_begin_and_be_acknowledged_before_the_last_one_is_and_covers_it() -> None:
    texts = ["setup-0", "begin-1-1", "begin-2-2", "ack-2-5", "ack-1-7", "begin-3-8", "ack-3-9", "end-20"]
    timeline = Timeline([Mark(10 * rank, text) for rank, text in enumerate(texts)])
    assert [0, 2, 2, 3] == [timeline.acked_count(entry) for entry in (30, 31, 41, 61)]
    assert [1, 2, 2] == [timeline.issued_count(entry) for entry in (11, 21, 41)]
    assert [(2, 2), (1, 1), (3, 3)] == [(begin.number, ack.number) for begin, ack in timeline.turns]
    assert [2, 2, 0] == [timeline.lost_ns(recovered, 41) for recovered in (0, 1, 2)]
    assert (7 - 1) + (9 - 8) == timeline.busy_ns


def test_transactions_of_several_clients_are_acknowledged_one_by_one_in_any_order() -> None:
    texts = ["setup", "clients-2", "begin-1", "begin-2", "ack-2", "begin-4", "ack-4", "begin-6", "ack-1", "begin-3"]
    timeline = Timeline(marks_of(*texts, "ack-6", "ack-3", "end"))
    assert [0, 1, 2, 3, 5] == [timeline.acked_count(entry) for entry in (40, 41, 61, 81, 111)]
    assert [0, 2, 3, 4, 5] == [timeline.issued_count(entry) for entry in (20, 31, 51, 71, 91)]
    assert [set(), {2}, {1, 2, 4}] == [timeline.acked_numbers(entry) for entry in (40, 41, 81)]
    assert [set(), {1, 2}, {1, 2, 4}] == [timeline.issued_numbers(entry) for entry in (20, 31, 51)]
    # From the acknowledgement of the one that was acknowledged first to the last mark before the cut.
    assert [4, 2] == [timeline.lost_ns_of(numbers, 81) for numbers in ({4, 2}, {4})]
    assert [2, 4, 1, 6, 3] == [ack.number for _, ack in timeline.turns]
    assert (2, 5) == (timeline.client_count, timeline.said_count(999))
    # From the first begin to the last ack, because all overlap.
    assert 9 == timeline.busy_ns
    wrongs = (("begin-1", "begin-3"), ("begin-2", "ack-1"), ("begin-1", "ack-1", "begin-1"), ("begin-4",))
    for wrong in wrongs:
        with pytest.raises(RecordingError, match="out of turn"):
            Timeline(marks_of("setup", "clients-2", *wrong, "end"))


def test_a_later_life_counts_from_what_the_recovered_database_showed() -> None:
    texts = ["recovered-7-10", "begin-8-20", "ack-8-40", "tick-50", "end-60"]
    timeline = Timeline([Mark(10 * rank, text) for rank, text in enumerate(texts)])
    assert (True, 7) == (timeline.is_later, timeline.setup.number)
    assert [0, 7, 7, 8] == [timeline.acked_count(entry) for entry in (0, 1, 20, 21)]
    assert [7, 8] == [timeline.issued_count(entry) for entry in (10, 11)]
    # From the moment at which it showed 7, or acknowledged the eighth.
    assert [40, 10, 0] == [timeline.lost_ns(recovered, 31) for recovered in (6, 7, 8)]
    with pytest.raises(RecordingError, match="begin-7 is out of turn"):
        Timeline([Mark(rank, text) for rank, text in enumerate(["recovered-7-1", "begin-7-2", "ack-7-3", "end-4"])])


def test_a_restart_raises_what_must_be_there_above_what_was_acknowledged() -> None:
    texts = ["setup-0", "begin-1-1", "ack-1-2", "begin-2-3", "fail-2-4", "recovered-2-5", "begin-3-6", "fail-3-7"]
    texts += ["recovered-2-8", "begin-3-9", "ack-3-10", "recovered-3-11", "end-20"]
    timeline = Timeline([Mark(10 * rank, text) for rank, text in enumerate(texts)])
    assert ("setup", False) == (timeline.setup.kind, timeline.is_later)
    assert [1, 2, 2, 3, 3] == [timeline.acked_count(entry) for entry in (50, 51, 81, 101, 111)]
    assert [1, 1, 1, 3, 3] == [timeline.said_count(entry) for entry in (50, 51, 81, 101, 111)]
    assert [2, 3, 3] == [timeline.issued_count(entry) for entry in (51, 61, 81)]
    # From the ack of the first, and from the moment at which the second was shown.
    assert [6, 3, 0] == [timeline.lost_ns(recovered, 81) for recovered in (0, 1, 2)]


GOOD = ["setup-1", "begin-1-2", "ack-1-3", "begin-2-4", "ack-2-5", "tick-6", "end-7", "dm-log-writes-end"]


@pytest.mark.parametrize(
    ("position", "texts", "reason"),
    [
        (0, [], "0 marks 'setup'"),
        (0, ["setup-1", "setup-1"], "2 marks 'setup'"),
        (6, [], "0 marks 'end'"),
        (1, [], "ack-1 is out of turn"),
        (2, [], "1 began but did not end"),
        (4, [], "2 began but did not end"),
        (3, ["begin-3-4"], "begin-3 is out of turn"),
        (4, ["ack-1-5"], "ack-1 is out of turn"),
        (2, ["ack-x-3"], "is unknown"),
        (2, ["ack-1-"], "is unknown"),
        (2, ["ack-1-3-4"], "is unknown"),
        (2, ["ack-3"], "is unknown"),
        (5, ["tick--6"], "is unknown"),
        (5, ["tock-6"], "is unknown"),
        (5, ["tick-\N{SUPERSCRIPT TWO}"], "is unknown"),
        (5, ["tick-3"], "backwards"),
    ],
)
def test_damaged_marks_void_the_recording(position: int, texts: list[str], reason: str) -> None:
    damaged = [*GOOD[:position], *texts, *GOOD[position + 1 :]]
    Timeline([Mark(entry, text) for entry, text in enumerate(GOOD)])
    with pytest.raises(RecordingError, match=reason):
        Timeline([Mark(entry, text) for entry, text in enumerate(damaged)])


@pytest.mark.parametrize(("first", "second"), [(1, 2), (5, 6), (4, 6), (0, 6)])
def test_marks_in_another_order_void_the_recording(first: int, second: int) -> None:
    texts = list(GOOD)
    texts[first], texts[second] = texts[second], texts[first]
    kept = [f"{text.rsplit('-', 1)[0]}-{time}" for time, text in enumerate(texts[:-1])]
    with pytest.raises(RecordingError):
        Timeline([Mark(entry, text) for entry, text in enumerate(kept)])
