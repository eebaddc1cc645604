"""Wrong clocks: when one counts as wrong, which states are judged under which, and what voids a group."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers import control_settings
from rig.analysis.dossiers.sqlite import JOURNAL_MODES, SYNCHRONOUS
from rig.analysis.judging.controls import check_controls
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.promises import promise_for
from rig.analysis.show.report import report_html
from rig.campaign.replay import address_of
from rig.campaign.verdicts import verdict
from rig.contract.clocks import AFTER_CUT, Clock, is_wrong
from rig.contract.errors import UsageError
from rig.contract.faultspecs import CLOCK_FAULTS, SPECS, FaultClass
from rig.contract.findings import Finding, FindingKind
from rig.contract.injections import Injection
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.engines.sqlite.spec import SPEC
from rig.faults import Address, Logs, WriteLog
from rig.guest.programs.clock import environment, first_wrong
from rig.planning.cuts import Cut, by_content, cuts
from rig.planning.matrix import PROFILES
from rig.recordings.timeline import Timeline
from tests.unit.faults.log.test_log import encode
from tests.unit.planning.test_cuts import ENTRIES
from tests.unit.samples import changed, controls_that_fire, durable, measured_scenario, sqlite
from tests.unit.samples import verdict as row

PROFILE = replace(PROFILES["quick"], states_max=40, instants=20)
YEAR_NS = 365 * 86_400 * 10**9
SECOND_NS = 10**9
STEP_NS = {"clockback": -YEAR_NS, "clockjump": 20 * YEAR_NS}

Readings = list[tuple[int, bool, int, int]]


def scenario_of(fault: str) -> Scenario:
    return Scenario("sqlite", "ext4", sqlite("wal", "full"), fault)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WriteLog]:
    (tmp_path / "log").write_bytes(encode(ENTRIES))
    with WriteLog.open(tmp_path / "log") as opened:
        yield opened


@st.composite
def readings(draw: st.DrawFn, fault: str) -> Readings:
    """A workload's clock readings under this fault; the two clocks are not read at the same instant."""
    count = draw(st.integers(3, 12))
    first = draw(st.integers(2, count - 1))
    moments = sorted(draw(st.lists(st.integers(1, 10**12), min_size=count + 1, max_size=count + 1, unique=True)))
    stood_ns = moments[first - 1] // SECOND_NS * SECOND_NS
    slip_ns = draw(st.integers(0, SECOND_NS // 2))
    found: Readings = []
    for rank, moment in enumerate(moments):
        number = rank + (rank < first)
        wrong_ns = stood_ns if fault == "clockfrozen" else moment + STEP_NS.get(fault, 0)
        found.append((number, rank >= first, wrong_ns if rank >= first else moment, moment + slip_ns))
    return found


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
@given(data=st.data())
def test_a_clock_is_wrong_in_the_way_of_its_fault_and_of_no_other(fault: str, data: st.DataObject) -> None:
    found = data.draw(readings(fault))
    assert is_wrong(fault, found)
    assert not any(is_wrong(other, found) for other in CLOCK_FAULTS if other != fault)


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
@given(data=st.data())
def test_a_clock_that_was_right_all_along_or_wrong_from_the_start_is_not_the_fault(
    fault: str, data: st.DataObject
) -> None:
    right = data.draw(readings("right"))
    assert not is_wrong(fault, right)
    found = data.draw(readings(fault))
    assert not is_wrong(fault, [one for one in found if one[1]])
    assert not is_wrong(fault, [one for one in found if not one[1]])
    assert not is_wrong(fault, [])
    # So does a clock that was right again before the end.
    assert not is_wrong(fault, [*found, (99, False, *found[0][2:])])


@given(seed=st.integers(0, 2**32), count=st.integers(2, 500))
def test_some_transactions_come_before_the_clock_goes_wrong_and_half_of_them_after(seed: int, count: int) -> None:
    assert 2 <= first_wrong(seed, count) <= max(2, count // 2)
    assert first_wrong(seed, count) == first_wrong(seed, count)


def test_the_seed_decides_when_the_clock_goes_wrong() -> None:
    assert 10 < len({first_wrong(seed, 40) for seed in range(60)})


@pytest.mark.parametrize("fault", sorted(SPECS))
def test_only_the_clock_arm_gets_a_library_under_its_workload(fault: str) -> None:
    spec = SPECS[fault]
    assert (spec.fault_class is FaultClass.CLOCK) is bool(environment(spec.injection))
    assert (spec.fault_class is FaultClass.CLOCK) is (fault in AFTER_CUT)
    if spec.fault_class is FaultClass.CLOCK:
        assert (fault, "powercut") == (spec.injection, spec.model)


@pytest.mark.parametrize("injection", ["", *CLOCK_FAULTS])
def test_a_workload_marks_the_transaction_before_which_its_clock_goes_wrong_and_no_other(injection: str) -> None:
    """Runs in a separate process because it changes its environment; without the library its clock stays right."""
    program = (
        "import json, sys; from rig.contract.messages import decode; from rig.contract.orders import Orders\n"
        "from rig.guest.programs.clock import ProcessClock\n"
        "marks = []; clock = ProcessClock(decode(Orders, json.loads(sys.argv[1])), marks.append)\n"
        "[clock.before(number) for number in range(1, 9)]\n"
        "print(json.dumps([marks, clock.readings]))"
    )
    plain = scenario_of("powercut").orders
    orders = json.dumps(asdict(replace(plain, injection=Injection(injection), seed=5, transaction_count=8)))
    told = subprocess.run([sys.executable, "-c", program, orders], capture_output=True, text=True, check=True).stdout
    marks, found = json.loads(told)
    first = first_wrong(5, 8)
    if not injection:
        assert ([], []) == (marks, found)
        return
    assert [f"inject-{first}"] == marks
    assert sorted([*range(1, 9), first]) == [number for number, *_ in found]
    assert [number for number, wrong, *_ in found if wrong] == list(range(first, 9))
    assert not is_wrong(injection, found)


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
def test_every_state_of_a_power_cut_is_judged_under_the_wrong_clock_and_a_sample_under_the_right_one(
    fault: str, log: WriteLog
) -> None:
    timeline = Timeline(log.marks)
    side = replace(PROFILE, instants=0, states_max=PROFILE.side_states_max)
    plain = cuts(scenario_of("powercut"), side, Logs(log), timeline)
    found = cuts(scenario_of(fault), PROFILE, Logs(log), timeline)
    wrong = [cut.state for cut in found.cuts if cut.clock is AFTER_CUT[fault]]
    right = [cut.state for cut in found.cuts if cut.clock is Clock.RIGHT]
    assert [cut.state for cut in plain.cuts] == wrong
    assert right
    assert set(right) < set(wrong)
    assert len(found.cuts) == len(wrong) + len(right) == found.facts.state_count
    # Equal content under another clock must be judged separately.
    groups = by_content(found.cuts)
    assert all(1 == len({(cut.content, cut.clock) for cut in group}) for group in groups)
    assert len(groups) == len({(cut.content, cut.clock) for cut in found.cuts})
    assert len(found.cuts) == len({cut.address for cut in found.cuts})


def judge(clock: Clock | None, read_s: float | None, log: WriteLog) -> Verdict:
    (cut, *_) = cuts(scenario_of("powercut"), PROFILE, Logs(log), Timeline(log.marks)).cuts
    timed = Cut(cut.scenario, cut.state, cut.content, cut.entry, 0, clock)
    return verdict(timed, Finding(FindingKind.CORRUPT, None, "the engine's words", {}, read_s), Timeline(log.marks))


@pytest.mark.parametrize("clock", Clock)
def test_a_verdict_under_another_clock_than_the_one_asked_for_is_none(clock: Clock, log: WriteLog) -> None:
    told = judge(clock, clock.seconds + 0.4, log)
    assert (VerdictKind.CORRUPT, "the engine's words") == (told.kind, told.detail)
    assert (Address.parse(told.state).clock, told.clock) == (clock, clock)
    for read_s in (None, clock.seconds - 1, clock.seconds + 86_400, *(o.seconds for o in Clock if o is not clock)):
        assert VerdictKind.INCONCLUSIVE is judge(clock, read_s, log).kind
    assert VerdictKind.CORRUPT is judge(None, None, log).kind


def test_the_clocks_after_a_cut_are_before_and_after_all_that_was_recorded() -> None:
    assert Clock.EPOCH.seconds < Clock.STOOD.seconds < Clock.RIGHT.seconds < 2**31 < Clock.AHEAD.seconds


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
def test_a_state_is_replayed_under_the_clock_of_its_id(fault: str) -> None:
    for clock in (AFTER_CUT[fault], Clock.RIGHT):
        assert Address("e9.f0", clock=clock) == address_of(scenario_of(fault), f"e9.f0@{clock}")
    others = {*Clock} - {AFTER_CUT[fault], Clock.RIGHT}
    for text in ("e9.f0", "e9.f0@noon", *(f"e9.f0@{other}" for other in others)):
        with pytest.raises(UsageError, match=f"look like e9.f0@{AFTER_CUT[fault]} or e9.f0@right"):
            address_of(scenario_of(fault), text)
    with pytest.raises(UsageError, match="a part of it is missing"):
        address_of(scenario_of(fault), "e9.f0@")


def test_other_faults_have_no_clock_in_their_addresses() -> None:
    assert Address("e9.f0") == address_of(scenario_of("powercut"), "e9.f0")
    with pytest.raises(UsageError, match=r"look like e9\.f0$"):
        address_of(scenario_of("powercut"), "e9.f0@right")


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
def test_the_promise_under_a_wrong_clock_is_that_of_the_power_cut(fault: str) -> None:
    for journal_mode in JOURNAL_MODES:
        for synchronous in SYNCHRONOUS:
            settings = sqlite(journal_mode, synchronous)
            own, plain = (promise_for("sqlite", settings, name, "none") for name in (fault, "powercut"))
            assert own
            assert plain
            assert (plain.keeps, plain.atomic, plain.source) == (own.keeps, own.atomic, own.source)
            assert "clock" in own.note


def wrong_readings(fault: str) -> Readings:
    moments = [1_000 * SECOND_NS + rank * SECOND_NS for rank in range(6)]
    found: Readings = [(1 + rank, False, moment, moment) for rank, moment in enumerate(moments[:3])]
    for rank, moment in enumerate(moments[3:]):
        wall = moments[2] if fault == "clockfrozen" else moment + STEP_NS[fault]
        found.append((3 + rank, True, wall, moment))
    return found


def group(fault: str, found: Sequence[tuple[int, bool, int, int]], clocks: Sequence[str]) -> list[MeasuredScenario]:
    """Three scenarios of a group, judged under these clocks; the controls lose."""
    scenarios = []
    controls = [SPEC.settings_named(name) for name in control_settings("sqlite", fault)]
    for settings in (*controls, sqlite("wal", "full")):
        rows = durable(9) if settings == sqlite("wal", "full") else [row(VerdictKind.LOST_SUFFIX, 3, "lost")]
        rows = [replace(one, state=f"{one.state}@{clock}", clock=clock) for one in rows for clock in clocks]
        one = measured_scenario(settings, rows, fault)
        scenarios.append(replace(one, recording=replace(one.recording, clock=found)))
    return scenarios


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
def test_a_clock_that_was_right_voids_its_group(fault: str) -> None:
    wrong, clocks = wrong_readings(fault), [AFTER_CUT[fault], "right"]
    assert ("delete_off", "wal_off") == control_settings("sqlite", fault)
    assert Result.KEPT is summarise(group(fault, wrong, clocks), 5).result
    right = [(number, is_late, moment, moment) for number, is_late, _, moment in wrong]
    for void in (group(fault, right, clocks), group(fault, (), clocks), group(fault, wrong, clocks[:1])):
        assert Result.INCONCLUSIVE is summarise(void, 5).result
        assert not next(one for one in check_controls([outcome(c) for c in void]) if one.name == "clock").fired


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
def test_a_program_that_trusts_the_clock_has_to_break_under_a_wrong_one_and_is_never_held_against_the_engine(
    fault: str,
) -> None:
    wrong, clocks = wrong_readings(fault), [AFTER_CUT[fault], "right"]
    scenarios = group(fault, wrong, clocks)
    lossless = scenarios[-1]
    trusting = changed(lossless, shim="lastwriter")
    lost = replace(lossless.verdicts[0], kind=VerdictKind.LOST_SUFFIX, lost=3)
    broken = replace(trusting, verdicts=(*lossless.verdicts[1:], lost))
    for one, result, fired in ((broken, Result.KEPT, True), (trusting, Result.INCONCLUSIVE, False)):
        summary = summarise([*scenarios, one], 5)
        (control,) = [c for c in summary.controls if c.name == "wal_full+lastwriter"]
        assert (result, fired) == (summary.result, control.fired)
        assert "trusts the clock" in control.what
    summary = summarise([*scenarios, broken], 5)
    texts = {row.outcome.settings_name: row.result_text for row in summary.rows}
    assert ("broken (control)", "kept") == (texts["wal_full+lastwriter"], texts["wal_full"])
    assert "because its shim trusts the clock (control)" in report_html(summary, {})
    assert all(one.name != "wal_full+lastwriter" for one in summarise(scenarios, 5).controls)
    # It skips half of what it acknowledges, so its speed says nothing about the engine.
    assert outcome(broken).transactions_per_s is None
    assert outcome(lossless).transactions_per_s


def test_under_a_right_clock_a_program_that_trusts_it_is_held_to_its_promise() -> None:
    broken = measured_scenario(sqlite("wal", "full"), [row(VerdictKind.LOST_SUFFIX, 3, "lost")], shim="lastwriter")
    summary = summarise([broken, *controls_that_fire()], 5)
    assert Result.BROKEN is summary.result
    assert not any(one.is_sabotaged for one in summary.rows)


def test_verdicts_that_differ_between_the_clocks_are_counted() -> None:
    fault = "clockback"
    scenarios = group(fault, wrong_readings(fault), ["epoch", "right"])
    rows = [row(VerdictKind.CORRUPT, content="c", clock="epoch"), row(VerdictKind.DURABLE, content="c", clock="right")]
    scenarios[0] = replace(scenarios[0], verdicts=(*scenarios[0].verdicts, *rows))
    (control,) = [one for one in check_controls([outcome(c) for c in scenarios]) if one.name == "clock"]
    assert "1 verdicts differ" in control.what
    assert control.fired
    # Differences in a program that trusts the clock belong to its own control.
    trusting = changed(scenarios[0], shim="lastwriter")
    (same,) = [one for one in check_controls([outcome(c) for c in [*scenarios, trusting]]) if one.name == "clock"]
    assert control.what == same.what
