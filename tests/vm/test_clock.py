"""Wrong clocks in the guest: wrong where they should be and right everywhere else; they cause no false damage."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from rig.campaign import record
from rig.campaign.verdicts import verdict
from rig.contract.clocks import AFTER_CUT, Clock, is_wrong
from rig.contract.faultspecs import CLOCK_FAULTS
from rig.contract.findings import Finding
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Logs, WriteLog, epochs, everything_unflushed_lost
from rig.faults.states.damage import Zeros
from rig.faults.states.state import landable, make_state
from rig.guest.programs.clock import first_wrong
from rig.machines.pool import Clones
from rig.machines.template import Template
from rig.planning import cuts, matrix
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from rig.workloads import ledger
from tests.vm.samples import Recorder, check, entries_of, kinds, open_recording, scenario_of, write_log

_PROFILE = replace(matrix.profile("quick"), states_max=24, instants=0)
_BLOCK = 4096


def under(
    clocks: list[Clock | None], scenario: Scenario, template: Clones, log: WriteLog, states: list[CrashState]
) -> list[Finding]:
    """Verify each state under the clock of the same rank."""
    return list(check(scenario, template, log, states, clocks))


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
def test_the_workload_reads_the_right_time_first_and_then_the_wrong_one_while_the_marks_stay_true(
    fault: str, recorded: Recorder
) -> None:
    scenario = scenario_of("wal_full", fault=fault)
    plain, wrong = recorded(scenario_of("wal_full")), recorded(scenario)
    assert is_wrong(fault, wrong.facts.clock), wrong.facts.clock
    assert not plain.facts.clock
    with open_recording(plain) as (_, log), open_recording(wrong) as (_, wrong_log):
        lengths_ns = [
            timeline.end.time_ns - timeline.setup.time_ns
            for timeline in (Timeline(log.marks), Timeline(wrong_log.marks))
        ]
        injected = [moment for moment in Timeline(wrong_log.marks).moments if moment.kind == "inject"]
    # Sleeps took as long as with a right clock, to a hundredth of the run: a clock that stands still delays nothing.
    assert abs(lengths_ns[1] - lengths_ns[0]) < lengths_ns[0] / 100
    assert [next(number for number, late, *_ in wrong.facts.clock if late)] == [moment.number for moment in injected]
    assert scenario.workload.transaction_count == wrong.facts.transaction_count


def test_a_recording_under_a_clock_that_stands_still_is_the_same_again(recorder: Template, tmp_path: Path) -> None:
    made = record.record(scenario_of("wal_full", fault="clockfrozen"), recorder, tmp_path, reproduce=True)
    assert made.facts.reproduced


def judge(scenario: Scenario, template: Clones, made: Recording) -> list[tuple[Clock | None, Verdict]]:
    """Verify a few cuts of a recording; return each verdict with the clock that its machine came back with."""
    with open_recording(made) as (_, log):
        timeline = Timeline(log.marks)
        groups = cuts.by_content(cuts.cuts(scenario, _PROFILE, Logs(log), timeline).cuts)
        found = under(
            [group[0].clock for group in groups], scenario, template, log, [group[0].state for group in groups]
        )
        return [
            (cut.clock, verdict(cut, finding, timeline))
            for group, finding in zip(groups, found, strict=True)
            for cut in group
        ]


@pytest.mark.parametrize("fault", ["clockback", "clockfrozen"])
def test_where_the_last_writer_wins_all_is_lost_that_was_acknowledged_behind_a_clock_that_stepped_back_or_stands(
    fault: str, checker: Clones, recorded: Recorder
) -> None:
    scenario = scenario_of("wal_full+lastwriter", fault=fault)
    first = first_wrong(scenario.seed, scenario.workload.transaction_count)
    verdicts = [verdict for _, verdict in judge(scenario, checker, recorded(scenario))]
    assert {VerdictKind.DURABLE, VerdictKind.LOST_SUFFIX} == {verdict.kind for verdict in verdicts}
    # A clock that stands still lets one transaction through, because it was right until then.
    last = max(verdict.recovered for verdict in verdicts if verdict.recovered is not None)
    assert last in {first - 1} | ({first} if fault == "clockfrozen" else set())
    assert {(v.acked, min(v.acked, last)) for v in verdicts if v.acked > last} == {
        (v.acked, v.recovered) for v in verdicts if v.lost
    }
    assert 8 == max(verdict.acked for verdict in verdicts)


def test_books_that_are_closed_by_the_clock_are_lost_to_a_machine_that_comes_back_ahead_and_to_no_other(
    checker: Clones, recorded: Recorder
) -> None:
    scenario = scenario_of("wal_full+lastwriter", fault="clockjump")
    found = judge(scenario, checker, recorded(scenario))
    for clock, one in found:
        is_lost = clock is Clock.AHEAD and one.acked > 0
        assert is_lost is (one.kind.is_damage or one.lost > 0), one
    assert {(clock, True) for clock in (Clock.AHEAD, Clock.RIGHT)} <= {(clock, v.acked > 0) for clock, v in found}


def test_a_program_that_trusts_the_clock_loses_nothing_under_a_right_one(checker: Clones, recorded: Recorder) -> None:
    scenario = replace(scenario_of("wal_full"), shim="lastwriter")
    found = judge(scenario, checker, recorded(scenario))
    assert {(None, VerdictKind.DURABLE)} == {(clock, verdict.kind) for clock, verdict in found}
    assert 8 == max(verdict.acked for _, verdict in found)


def test_what_full_promises_holds_under_every_clock_and_the_verifier_judged_under_the_one_it_was_told(
    checker: Clones, recorded: Recorder
) -> None:
    scenario = scenario_of("wal_full", fault="clockback")
    with open_recording(recorded(scenario)) as (path, log):
        timeline = Timeline(log.marks)
        groups = cuts.by_content(cuts.cuts(scenario, _PROFILE, Logs(log), timeline).cuts)
        clocks = [group[0].clock for group in groups]
        found = under(clocks, scenario, checker, log, [group[0].state for group in groups])
        assert path == log.path
        verdicts = [
            verdict(cut, finding, timeline) for group, finding in zip(groups, found, strict=True) for cut in group
        ]
    assert {Clock.EPOCH, Clock.RIGHT} == set(clocks)
    for clock, finding in zip(clocks, found, strict=True):
        assert clock
        assert finding.clock_s is not None
        assert 0 <= finding.clock_s - clock.seconds < 3600
    assert {VerdictKind.DURABLE} == {verdict.kind for verdict in verdicts}
    assert 8 == max(verdict.acked for verdict in verdicts)


def test_a_wrong_clock_alone_damages_no_file_system_and_hides_no_damage(
    checker: Clones, recorded: Recorder, tmp_path: Path
) -> None:
    """A corrupt database, with hot journals to delete, makes e2fsck run: it finds the damage that is there, no more."""
    scenario = scenario_of("delete_full")
    note = str(ledger.transaction(scenario.seed, 7)[2].row[-1]).encode()

    def spoilt(payload: bytes) -> bytes:
        pages = [payload[begin : begin + _BLOCK] for begin in range(0, len(payload), _BLOCK)]
        return b"".join(b"\x55" + page[1:] if page[:1] == b"\x0d" and note in page else page for page in pages)

    with open_recording(recorded(scenario)) as (_, honest):
        entries = [replace(entry, payload=spoilt(entry.payload)) for entry in entries_of(honest)]
    with WriteLog.open(write_log(tmp_path / "log", entries)) as log:
        split, timeline = epochs(log), Timeline(log.marks)
        ends = [moment.entry_index for moment in timeline.moments if moment.number == 8]
        flushes = [epoch.end for epoch in split if ends[0] < epoch.end < ends[-1]]
        states = [everything_unflushed_lost(log, split, end) for end in [*flushes, log.entry_count]]
        # The block bitmap of the first group, after the superblock and the descriptors.
        bitmap = int.from_bytes(log.replay(log.entry_count, 1 << 26)[_BLOCK : _BLOCK + 4].tobytes(), "little")
        tail = split[-1]
        damage = Zeros(bitmap * _BLOCK, _BLOCK)
        states.append(make_state(tail, len(tail.fuas), whole=landable(tail), damages=(damage,)))
        choices: list[Clock | None] = [None, *Clock]
        pairs = [(state, clock) for state, clock in product(states, choices)]
        found = under([clock for _, clock in pairs], scenario, checker, log, [state for state, _ in pairs])
    rows = [kinds(found[begin : begin + len(choices)]) for begin in range(0, len(found), len(choices))]
    assert all(1 == len(set(row)) for row in rows), rows
    seen = [row[0][0] for row in rows]
    assert "corrupt" in seen[:-1]
    assert "file-system-damage" not in seen[:-1]
    assert "file-system-damage" == seen[-1]


def test_each_clock_after_a_cut_can_be_set_and_belongs_to_one_fault() -> None:
    assert {Clock.EPOCH, Clock.AHEAD, Clock.STOOD} == set(AFTER_CUT.values())
