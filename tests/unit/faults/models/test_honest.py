"""OS crash, protected disk and discards against the brute-force disk: every planned state is legal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.faults import CrashState, EntryFlag, Fault, Logs, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.states.damage import Discarded
from rig.faults.states.state import landable, make_state
from tests.unit.faults.disks import (
    Content,
    Op,
    everything,
    in_log_order,
    marks_claimed,
    passes_self_check,
    reachable,
    rebuild,
    run_of,
    some_ops,
)

FLUSH = [Op("flush-begin"), Op("flush-end")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("honest") / "log"


@settings(max_examples=100)
@given(ops=some_ops(4, 0, 3, writes_max=5), fault=st.sampled_from([Fault.OSCRASH, Fault.PLP]))
def test_every_state_is_one_of_the_power_cut_with_its_acknowledgements_seen(
    place: Path, ops: list[Op], fault: Fault
) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        possible = reachable(disk.moments)
        for state in everything(fault, log).states:
            assert possible.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id


@settings(max_examples=100)
@given(ops=some_ops(4, 2, 2, writes_max=5), fault=st.sampled_from([Fault.OSCRASH, Fault.PLP]))
def test_no_reader_of_the_log_can_say_that_the_disk_never_looked_like_that(
    place: Path, ops: list[Op], fault: Fault
) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        views = in_log_order(disk).views()
        for state in everything(fault, log).states:
            assert views.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id
        # None is missing: each content that the disk had on the way is planned.
        assert set(views) == {rebuild(log, state) for state in everything(Fault.PLP, log).states}


@settings(max_examples=100)
@given(ops=some_ops(6, 0, 3, writes_max=5))
def test_without_fua_and_with_short_flushes_the_disk_did_look_as_an_os_crash_leaves_it(
    place: Path, ops: list[Op]
) -> None:
    """Only the order of marks and writes is open then, and no state answers for a mark that may be later."""
    kept = [[] if op.kind in {"fua", "flush-end"} else FLUSH if op.kind == "flush-begin" else [op] for op in ops]
    disk = run_of(place, [op for some in kept for op in some])
    with WriteLog.open(place) as log:
        views = disk.views()
        states = everything(Fault.OSCRASH, log).states
        for state in states:
            assert views.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id
        assert set(views) == {rebuild(log, state) for state in states}


def test_an_os_crash_loses_nothing_of_a_whole_epoch_and_answers_for_all_its_marks(place: Path) -> None:
    run_of(place, [Op("mark"), Op("write", 0, 1, 1), Op("write", 1, 1, 2), Op("mark"), *FLUSH])
    with WriteLog.open(place) as log:
        states = {state.id: marks_claimed(log, state) for state in everything(Fault.OSCRASH, log).states}
        # The content of the tail is the content of the whole epoch, at a later instant.
        assert {"e4.f0.i0": 0, "e4.f0.w2.i0": 0, "tail.f0": 2} == states


@settings(max_examples=100)
@given(ops=some_ops(4, 0, 3, writes_max=3))
def test_every_state_with_late_discards_is_reachable_with_its_acknowledgements_seen(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        states = plan(Fault.DISCARD, Logs(log), first_entry=-1, states_max=80, seed=1).states
        assume(states)
        possible = reachable(disk.discard_moments)
        split = epochs(log)
        for state in states:
            assert parse_state(state.id, log, split) == state
            assert possible.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id


@settings(max_examples=100)
@given(ops=some_ops(4, 0, 2, writes_max=2))
def test_every_part_of_a_discard_is_made_where_flushes_are_short(place: Path, ops: list[Op]) -> None:
    """Without FUA writes the log tells all: each sector of a discard may read zeros by itself."""
    kept = [[] if op.kind in {"fua", "flush-end"} else FLUSH if op.kind == "flush-begin" else [op] for op in ops]
    disk = run_of(place, [op for some in kept for op in some])
    assume(sum(op.count for op in disk.log if op.kind == "discard") <= 5)
    with WriteLog.open(place) as log:
        made: dict[Content, int] = {}
        for fault in (Fault.DISCARD, Fault.POWERCUT):
            for state in everything(fault, log).states:
                content = rebuild(log, state)
                made[content] = max(made.get(content, 0), marks_claimed(log, state))
        assert reachable(disk.discard_moments) == made


def test_a_discarded_place_that_was_written_again_and_lost_reads_zeros_or_what_was_there(place: Path) -> None:
    run_of(place, [Op("write", 0, 4, 1), Op("discard", 0, 4), *FLUSH, Op("write", 1, 1, 2)])
    with WriteLog.open(place) as log:
        tail = epochs(log)[-1]
        old, new = (33, 34, 35, 36), 2 * 32 + 1
        for text, expected in (
            # The whole range as far as nothing may have come later, whether it landed or not.
            ("tail.f0.d1", (0, old[1], 0, 0)),
            ("tail.f0.d1:512:0-3", (0, 0, 0, 0)),
            ("tail.f0.w3.d1:512:0-3", (0, new, 0, 0)),
            ("tail.f0.d1:512:1,3", (old[0], 0, old[2], 0)),
        ):
            state = parse_state(text, log, epochs(log))
            assert tail == state.epoch
            assert expected == rebuild(log, state)[:4], text
        made = {rebuild(log, state)[:4] for state in everything(Fault.DISCARD, log).states if state.epoch == tail}
        assert 2 * 16 - 8 == len(made), "four sectors of zeros or not; of a write that landed the discard shows nowhere"


@pytest.mark.parametrize("units", ["512:", "512:4", "512:2-1", "512:0-1,2", "512:1,0", "1024:0", "512:0,0", "4096:1"])
def test_units_that_a_discard_does_not_have_are_refused(place: Path, units: str) -> None:
    run_of(place, [Op("write", 0, 4, 1), Op("discard", 0, 4), *FLUSH])
    with WriteLog.open(place) as log:
        assert "tail.f0.d1:512:0-1,3" == parse_state("tail.f0.d1:512:0-1,3", log, epochs(log)).id
        with pytest.raises(StateIdError):
            parse_state(f"tail.f0.d1:{units}", log, epochs(log))


def test_a_discard_takes_what_was_there_and_nothing_that_was_written_since(place: Path) -> None:
    before = [Op("write", 0, 8, 1), *FLUSH]
    run_of(
        place, [*before, Op("write", 1, 1, 2), Op("discard", 0, 6), Op("write", 4, 1, 3), Op("fua", 5, 1, 4), *FLUSH]
    )
    with WriteLog.open(place) as log:
        epoch = epochs(log)[1]
        discard = next(i for i in range(log.entry_count) if log.flags[i] == 4)
        state = make_state(epoch, 1, whole=landable(epoch), damages=(Discarded(discard),))
        old = {sector: 32 + sector + 1 for sector in range(8)}
        assert (0, 0, 0, 0, 3 * 32 + 1, 4 * 32 + 1, old[6], old[7]) == rebuild(log, state)[:8]
        lost = make_state(epoch, 1, damages=(Discarded(discard),))
        # The later write did not land, but its place is left alone too.
        assert (0, 0, 0, 0, old[4], 4 * 32 + 1, old[6], old[7]) == rebuild(log, lost)[:8]
        assert parse_state(state.id, log, epochs(log)) == state
        with pytest.raises(StateIdError, match="no such DISCARD"):
            parse_state(make_state(epoch, 0, damages=(Discarded(discard),)).id, log, epochs(log))
        with pytest.raises(StateIdError, match="no such DISCARD"):
            parse_state(f"e1.f0.d{discard}", log, epochs(log))


def test_a_cut_after_a_fua_write_applies_no_discard_of_the_same_epoch(place: Path) -> None:
    """The log does not tell whether the discard had completed by then."""
    run_of(place, [Op("write", 0, 8, 1), Op("discard", 0, 2), *FLUSH, Op("fua", 9, 1, 2), Op("discard", 4, 2), *FLUSH])
    with WriteLog.open(place) as log:
        early, late = (index for index in range(log.entry_count) if log.flags[index] == EntryFlag.DISCARD)
        states = everything(Fault.DISCARD, log).states
        before_fua = [state for state in states if state.epoch.number == 1 and state.fua_count == 0 and state.damages]
        assert {early} == {damage.entry_index for damage in damages_of(before_fua)}
        assert late in {damage.entry_index for damage in damages_of(states)}


def test_a_recording_without_discards_has_none_that_took_effect(place: Path) -> None:
    run_of(place, [Op("write", 0, 8, 1), *FLUSH, Op("fua", 5, 1, 4)])
    with WriteLog.open(place) as log:
        found = {rebuild(log, state)[:6] for state in everything(Fault.DISCARD, log).states}
        assert not any(state.damages for state in everything(Fault.DISCARD, log).states)
        assert {(0,) * 6, (33, 34, 35, 36, 37, 38), (33, 34, 35, 36, 37, 4 * 32 + 1)} == found


def damages_of(states: Iterable[CrashState]) -> list[Discarded]:
    return [damage for state in states for damage in state.damages if isinstance(damage, Discarded)]


def test_a_discard_of_what_nobody_had_written_takes_nothing(place: Path) -> None:
    run_of(place, [Op("discard", 0, 8), Op("write", 1, 2, 1), *FLUSH, Op("discard", 0, 8), *FLUSH])
    with WriteLog.open(place) as log:
        first, second = (index for index in range(log.entry_count) if log.flags[index] == EntryFlag.DISCARD)
        assert {second} == {one.entry_index for one in damages_of(everything(Fault.DISCARD, log).states)}
        early, late = (make_state(epoch, 0, damages=(Discarded(first),)) for epoch in epochs(log)[:2])
        assert [[], []] == [early.extents(log), late.extents(log)]
        taken = make_state(epochs(log)[1], 0, damages=(Discarded(second),)).extents(log)
        assert [(512, 1024)] == [(one.device_offset_bytes, one.length_bytes) for one in taken]
