"""The cuts of a scenario: instants spread over virtual time, a verdict for each cut, a disk for each content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.campaign.verdicts import verdict
from rig.contract.errors import NoSuchStepError
from rig.contract.findings import Finding, FindingKind
from rig.contract.scenario import Scenario
from rig.faults import Fault, Logs, WriteLog, epochs, everything_unflushed_lost, parse_state
from rig.faults.states.state import is_told
from rig.planning.cuts import Cut, by_content, cuts, missing
from rig.planning.matrix import PROFILES
from rig.recordings.timeline import Timeline
from tests.unit.faults.log.test_log import FLUSH, FUA, MARK, Entry, encode

PROFILE = replace(PROFILES["quick"], states_max=40, instants=20)
DISK_BYTES = 64 * 512
POWERCUT = Scenario("sqlite", "ext4", {}, "powercut")
TORN = replace(POWERCUT, fault="torn")


def mark(text: str) -> Entry:
    return Entry(MARK, text=text)


ENTRIES = [
    Entry(0, 0, 16, 1),
    Entry(FLUSH),
    mark("setup-1000"),
    mark("begin-1-1100"),
    Entry(FUA, 20, 8, 2),
    mark("ack-1-1300"),
    mark("begin-2-1400"),
    Entry(0, 32, 16, 3),
    Entry(0, 40, 8, 4),
    Entry(FLUSH),
    mark("ack-2-1700"),
    # The same bytes again, so the states before and after it have equal content.
    Entry(0, 40, 8, 4),
    Entry(FLUSH),
    mark("end-1900"),
    Entry(0, 8, 8, 5),
    mark("dm-log-writes-end"),
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WriteLog]:
    (tmp_path / "log").write_bytes(encode(ENTRIES))
    with WriteLog.open(tmp_path / "log") as opened:
        yield opened


def disk_of(cut: Cut, log: WriteLog) -> bytes:
    disk = bytearray(log.replay(cut.state.base_end, DISK_BYTES).tobytes())
    file = log.path.read_bytes()
    for extent in cut.state.extents(log):
        begin, source, length = extent.device_offset_bytes, extent.source_offset_bytes, extent.length_bytes
        disk[begin : begin + length] = file[source : source + length]
    return bytes(disk)


def test_instants_are_drawn_one_of_each_stretch_and_lose_all_that_was_not_flushed(log: WriteLog) -> None:
    timeline = Timeline(log.marks)
    found = cuts(POWERCUT, PROFILE, Logs(log), timeline)
    instants = [cut for cut in found.cuts if cut.weight_ns]
    bounds = [timeline.entry_at(1000 + 900 * number / 20) for number in range(20)]
    for cut, first, last in zip(instants, bounds, [*bounds[1:], log.entry_count], strict=True):
        assert first <= cut.entry <= last
        assert everything_unflushed_lost(log, epochs(log), cut.entry) == cut.state
        assert (900 // 20, True) == (cut.weight_ns, cut.state.unflushed_lost)
    assert 20 == found.facts.instant_count
    # Ten of twenty lie between the first ack and the second, which is 700 of 900 ns into the workload.
    acked = [timeline.acked_count(cut.entry) for cut in instants]
    assert sorted(acked) == acked
    assert {0, 1, 2} == set(acked)
    other = cuts(replace(POWERCUT, seed=2), PROFILE, Logs(log), timeline)
    assert [cut.entry for cut in instants] != [cut.entry for cut in other.cuts if cut.weight_ns]


def test_the_first_turns_are_a_tour_of_states_with_an_instant_after_every_three(log: WriteLog) -> None:
    found = cuts(POWERCUT, replace(PROFILE, states_max=10), Logs(log), Timeline(log.marks))
    order = sorted(found.cuts, key=lambda cut: cut.turn)
    assert len({cut.turn for cut in order}) == len(order)
    assert [False, False, False, True] * 2 == [cut.weight_ns > 0 for cut in order[:8]]
    first = [cut.entry for cut in order if cut.weight_ns]
    assert first != sorted(first)


def test_planned_states_are_judged_at_the_latest_instant_at_which_they_are_legal(log: WriteLog) -> None:
    for scenario in (POWERCUT, TORN):
        found = cuts(scenario, PROFILE, Logs(log), Timeline(log.marks))
        planned = [cut for cut in found.cuts if not cut.weight_ns]
        assert planned
        assert [cut.state.instant for cut in planned] == [cut.entry for cut in planned]
        assert [scenario.id] * len(found.cuts) == [cut.scenario for cut in found.cuts]
        assert all(cut.entry >= 2 for cut in planned)
        split = epochs(log)
        assert all(parse_state(cut.state.id, log, split) == cut.state for cut in planned)


def test_only_a_power_cut_has_instants_and_the_facts_count_what_is_there(log: WriteLog) -> None:
    for scenario in (POWERCUT, TORN):
        found = cuts(scenario, PROFILE, Logs(log), Timeline(log.marks))
        assert len(found.cuts) == found.facts.state_count
        assert sum(cut.weight_ns > 0 for cut in found.cuts) == found.facts.instant_count
        assert (scenario.fault == Fault.POWERCUT) is (found.facts.instant_count > 0)
        assert found.facts.epochs_exhaustive + found.facts.epochs_sampled <= found.facts.epoch_count


def test_the_same_seed_gives_the_same_cuts(log: WriteLog) -> None:
    logs, timeline = Logs(log), Timeline(log.marks)
    assert cuts(POWERCUT, PROFILE, logs, timeline) == cuts(POWERCUT, PROFILE, logs, timeline)


def test_half_of_a_mutants_states_is_for_the_epochs_without_its_sync_and_none_is_planned_twice(
    tmp_path: Path,
) -> None:
    transactions = [
        [mark(f"begin-{number}-{10 * number}"), *writes, *dropped, mark(f"ack-{number}-{10 * number + 5}")]
        for number in range(1, 31)
        for writes in [[Entry(0, 64 * number + 8 * rank, 8, number) for rank in range(7)]]
        for dropped in [[mark(f"drop-{number}-{10 * number + 2}")] if number in {7, 20} else []]
    ]
    # A mark is logged before the writes that wait for the same FLUSH.
    in_order = [
        [*(e for e in entries if e.flags == MARK), *(e for e in entries if e.flags != MARK), Entry(FLUSH)]
        for entries in transactions
    ]
    entries = [mark("setup-1"), *(entry for part in in_order for entry in part), mark("end-400")]
    (tmp_path / "log").write_bytes(encode(entries))
    scenario = replace(TORN, shim="drop-wal-header")
    wanted = replace(PROFILE, side_states_max=80)
    with WriteLog.open(tmp_path / "log") as log:
        timeline = Timeline(log.marks)
        found = cuts(scenario, wanted, Logs(log), timeline)
        numbers = [cut.state.epoch.number for cut in found.cuts]
        assert [7, 20] == [drop.number for drop in timeline.drops]
        assert all(numbers.count(number) >= 18 for number in (6, 19))
        assert max(numbers.count(number) for number in set(numbers) - {6, 19}) <= 3
        assert len({cut.address for cut in found.cuts}) == len(found.cuts) == found.facts.state_count
        assert wanted.states_max_of(scenario) == 120 >= len(found.cuts) > 100
        ends = [cut.state.base_end for cut in found.cuts]
        assert sorted(ends) == ends
        assert found == cuts(scenario, wanted, Logs(log), timeline)


def test_cuts_share_a_group_exactly_if_they_leave_the_same_disk(log: WriteLog) -> None:
    timeline = Timeline(log.marks)
    found = [*cuts(POWERCUT, PROFILE, Logs(log), timeline).cuts, *cuts(TORN, PROFILE, Logs(log), timeline).cuts]
    groups = by_content(found)
    disks = [{disk_of(cut, log) for cut in group} for group in groups]
    assert all(1 == len(disk) for disk in disks)
    assert len(groups) == len(set[bytes]().union(*disks))
    assert len(groups) < len(found)
    assert sorted(map(id, found)) == sorted(id(cut) for group in groups for cut in group)


def test_the_base_moves_forward_only_from_group_to_group(log: WriteLog) -> None:
    found = cuts(POWERCUT, PROFILE, Logs(log), Timeline(log.marks)).cuts
    for order in (found, tuple(reversed(found))):
        ends = [group[0].state.base_end for group in by_content(order)]
        assert sorted(ends) == ends


def test_with_a_focus_all_cuts_lie_in_steps_of_that_name(tmp_path: Path) -> None:
    entries = [mark("ack-2.compaction-1700") if entry == mark("ack-2-1700") else entry for entry in ENTRIES]
    (tmp_path / "log").write_bytes(encode(entries))
    with WriteLog.open(tmp_path / "log") as log:
        timeline = Timeline(log.marks)
        found = cuts(replace(POWERCUT, focus="compaction"), PROFILE, Logs(log), timeline)
        ((_, first, last),) = timeline.steps
        assert {1} <= {timeline.acked_count(cut.entry) for cut in found.cuts} <= {1, 2}
        assert all(first < cut.entry <= last for cut in found.cuts)
        assert PROFILE.instants == found.facts.instant_count
        assert sum(cut.weight_ns for cut in found.cuts) <= 1900 - 1400
        with pytest.raises(NoSuchStepError, match="no step is called 'x'; the names of steps are: compaction"):
            cuts(replace(POWERCUT, focus="x"), PROFILE, Logs(log), timeline)


def test_an_instant_whose_base_is_in_doubt_is_left_out(tmp_path: Path) -> None:
    # The log does not tell which of the two came last, and a later epoch starts on them.
    doubt = [Entry(FUA, 3, 1, 1), Entry(0, 3, 1, 2), Entry(FLUSH)]
    rewrite = [Entry(0, 3, 1, 6), Entry(FLUSH)]
    entries = [mark("setup-0"), *doubt, mark("begin-1-50"), mark("ack-1-60"), *rewrite, mark("end-100")]
    (tmp_path / "doubt").write_bytes(encode([Entry(FLUSH), *entries]))
    with WriteLog.open(tmp_path / "doubt") as log:
        assert any(epoch.doubtful for epoch in epochs(log))
        found = cuts(POWERCUT, PROFILE, Logs(log), Timeline(log.marks))
        assert 0 < found.facts.instant_count < PROFILE.instants
        assert not any(cut.state.epoch.doubtful for cut in found.cuts if cut.weight_ns)
        assert all(is_told(log, cut.state) for cut in found.cuts)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_that_goes_on_judges_what_has_no_verdict_and_nothing_twice(log: WriteLog, data: st.DataObject) -> None:
    timeline = Timeline(log.marks)
    clocked = replace(POWERCUT, fault="clockback")
    planned = [*cuts(POWERCUT, PROFILE, Logs(log), timeline).cuts, *cuts(clocked, PROFILE, Logs(log), timeline).cuts]
    # Instants between the same two entries are identical.
    assert len({(cut.address, cut.entry, cut.weight_ns) for cut in planned}) < len(planned)
    is_done = data.draw(st.lists(st.booleans(), min_size=len(planned), max_size=len(planned)))
    done = [cut for cut, one in zip(planned, is_done, strict=True) if one]
    verdicts = [verdict(cut, Finding(FindingKind.PREFIX, 0), timeline) for cut in data.draw(st.permutations(done))]
    lacking = missing(planned, verdicts)
    assert Counter(map(key_of, planned)) == Counter(map(key_of, lacking)) + Counter(map(key_of, done))


def key_of(cut: Cut) -> tuple[str, int, int]:
    return cut.address, cut.entry, cut.weight_ns
