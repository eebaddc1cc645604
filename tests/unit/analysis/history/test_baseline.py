"""A baseline: what got worse is red by its name, all else is green, and the file can be reviewed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.history import baseline
from rig.analysis.history.baseline import Baseline, Entry, Provenance, baseline_of
from rig.analysis.history.changes import Aspect, Changes, changes
from rig.analysis.history.changetext import answer, lines
from rig.analysis.history.spans import FigureSpan
from rig.analysis.judging.outcome import Summary, summarise
from rig.contract.errors import UsageError
from rig.contract.results import LogFacts, MeasuredScenario, Verdict, VerdictKind
from tests.unit.samples import controls_that_fire, durable, matrix, measured_scenario, sqlite, verdict

FULL, NORMAL = "sqlite-ext4-wal_full_powercut", "sqlite-ext4-wal_normal_powercut"
GROUP = "sqlite on ext4, powercut"


def losing(lost: Sequence[int], *, count: int = 160) -> list[Verdict]:
    """States of 40 transactions that lose these numbers, one after the other."""
    found = []
    for number in range(count):
        acked = 1 + number * 40 // count
        here = min(acked, lost[number % len(lost)])
        kind = VerdictKind.LOST_SUFFIX if here else VerdictKind.DURABLE
        found.append(verdict(kind, here, f"e{number}", acked=acked))
    return found


def run(
    *, full: Sequence[Verdict] = (), normal: Sequence[Verdict] = (), controls: bool = True
) -> list[MeasuredScenario]:
    quiet = [measured_scenario(sqlite(mode, "off"), durable(80)) for mode in ("delete", "wal")]
    return [
        *(controls_that_fire() if controls else quiet),
        measured_scenario(sqlite("wal", "full"), full or durable(150)),
        measured_scenario(sqlite("wal", "normal"), normal or losing(range(6))),
    ]


def of(scenarios: Sequence[MeasuredScenario]) -> Summary:
    return summarise(scenarios, 60)


def recorded_anew(scenarios: Sequence[MeasuredScenario], seed: int) -> list[MeasuredScenario]:
    """The same scenarios with other recordings, as another seed gives them."""
    found = []
    for one in scenarios:
        log = LogFacts(f"{seed:08x}{one.recording.logs[0].digest[8:]}", 2_103_296, 912)
        found.append(replace(one, recording=replace(one.recording, seed=seed, logs=[log])))
    return found


def since(before: Sequence[MeasuredScenario], after: Sequence[MeasuredScenario]) -> Changes:
    return changes(baseline_of(of(before), "quick"), of(after), "quick", {})


def test_a_run_is_not_worse_than_itself() -> None:
    found = since(run(), run())
    assert Changes() == found
    assert 0 == found.exit_code
    assert "Nothing got worse." == answer(found)


def slower(scenarios: list[MeasuredScenario], share: float) -> list[MeasuredScenario]:
    def slow(one: MeasuredScenario) -> MeasuredScenario:
        facts = one.recording
        taken = [round(latency * share) for latency in facts.latencies_virtual_ns]
        busy = round(facts.busy_virtual_ns * share)
        return replace(one, recording=replace(facts, busy_virtual_ns=busy, latencies_virtual_ns=taken))

    return [slow(one) for one in scenarios]


LOST = [*durable(150), verdict(VerdictKind.LOST_SUFFIX, 1, "bad")]
TORN = [*losing(range(6)), *(verdict(VerdictKind.TORN, 0, f"torn{number}", acked=number) for number in range(40))]
WORSE: dict[str, tuple[Callable[[], list[MeasuredScenario]], str, Aspect, str]] = {
    "a promise broken that was kept": (lambda: run(full=LOST), FULL, Aspect.PROMISE, "broken; the baseline has kept"),
    "a larger loss": (
        lambda: recorded_anew(run(normal=losing(range(40))), 2), NORMAL, Aspect.LOSS, "lost on average: ",
    ),
    "a larger worst loss": (
        lambda: recorded_anew(run(normal=[*losing(range(6)), verdict(VerdictKind.LOST_SUFFIX, 39, "x", acked=40)]), 1),
        NORMAL, Aspect.LOSS, "lost by the worst state: 39, recorded 5 (up to ",
    ),
    "more damage": (
        lambda: recorded_anew(run(normal=TORN), 2), NORMAL, Aspect.PROMISE, "broken; the baseline has kept",
    ),
    "a control that went silent": (
        lambda: run(controls=False), GROUP, Aspect.CONTROL, "delete_off did not fire: ",
    ),
    "less exposure": (
        lambda: run(full=durable(75)), FULL, Aspect.EXPOSURE, "distinct file contents: 75, recorded 150 (at least ",
    ),
    "a slower setting": (
        lambda: slower(run(), 1.02), FULL, Aspect.SPEED, "transactions per virtual second: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WORSE)
def test_each_kind_of_worsening_is_red_by_its_name(what: str) -> None:
    after, subject, aspect, text = WORSE[what]
    found = since(run(), after())
    own = [change for change in found.worse if (change.subject, change.aspect) == (subject, aspect)]
    assert own, found
    assert any(change.text.startswith(text) for change in own), own
    assert 1 == found.exit_code
    assert answer(found).startswith("Worse than the baseline: ")
    assert any(line.startswith(f"worse: {subject}: {aspect}: ") for _, line in lines(found))


def test_only_what_got_worse_is_red() -> None:
    found = since(run(), run(full=LOST))
    assert {FULL} == {change.subject for change in found.worse}


def test_damage_that_no_promise_excludes_is_worse_if_there_is_more_of_it() -> None:
    def damaged(count: int) -> list[Verdict]:
        states = losing([0])
        torn = {states[number * len(states) // count].state for number in range(count)}
        return [replace(one, kind=VerdictKind.CORRUPT, recovered=None) if one.state in torn else one for one in states]

    # Tears may damage a database in rollback mode at NORMAL: nothing is promised.
    before, after = (
        [*controls_that_fire("torn"), measured_scenario(sqlite("persist", "normal"), damaged(count), "torn")]
        for count in (2, 80)
    )
    (change,) = since(before, recorded_anew(after, 2)).worse
    assert Aspect.DAMAGE == change.aspect
    assert change.text.startswith("share of damaged states: 0.5, recorded 0.0125 (0 to ")


def test_what_is_recorded_as_broken_does_not_fail_again_and_its_repair_is_reported() -> None:
    assert 0 == since(run(full=LOST), run(full=LOST)).exit_code
    repaired = since(run(full=LOST), run())
    assert 0 == repaired.exit_code
    assert (FULL, Aspect.PROMISE, "kept; the baseline has broken") in {
        (one.subject, one.aspect, one.text) for one in repaired.better
    }


def test_a_faster_setting_is_reported_and_green() -> None:
    found = since(run(), slower(run(), 0.9))
    assert 0 == found.exit_code
    assert {Aspect.SPEED} == {change.aspect for change in found.better}


def test_virtual_speed_is_compared_by_the_per_cent_with_the_same_seed_only() -> None:
    assert () == since(run(), slower(run(), 1.009)).worse
    assert since(run(), slower(run(), 1.02)).worse
    assert () == since(run(), recorded_anew(slower(run(), 1.02), 2)).worse


def test_another_seed_is_slower_if_all_transactions_are_and_not_if_a_few_stall() -> None:
    # The times of SQLite without syncs on ext4, measured with two seeds.
    even = [1013, 583, 614, 534, 541, 580, 556, 634, 897, 552, 528, 494, 546, 489, 675, 535, 463, 526, 507, 789] * 2
    stalled = [*even[:3], 1963, *even[4:11], 4334, *even[12:18], 3368, *even[19:]]

    def taking(latencies_us: list[int]) -> list[MeasuredScenario]:
        (full,) = (measured for measured in run() if measured.scenario.id == FULL)
        taken = [1000 * latency for latency in latencies_us]
        facts = replace(full.recording, latencies_virtual_ns=taken, busy_virtual_ns=sum(taken), transaction_count=40)
        return [*controls_that_fire(), replace(full, recording=facts)]

    assert () == since(taking(even), recorded_anew(taking(stalled), 2)).worse
    slow = [round(1.6 * latency) for latency in even]
    assert {Aspect.SPEED} == {change.aspect for change in since(taking(even), recorded_anew(taking(slow), 2)).worse}


@pytest.mark.parametrize(("seed", "count", "is_worse"), [(2, 1, False), (2, 8, False), (2, 20, True), (1, 1, True)])
def test_few_states_that_lose_more_are_chance_under_another_seed(seed: int, count: int, *, is_worse: bool) -> None:
    rare = [verdict(VerdictKind.LOST_SUFFIX, 30, f"rare{number}", acked=40) for number in range(count)]
    found = since(run(normal=losing([1])), recorded_anew(run(normal=[*losing([1]), *rare]), seed))
    assert is_worse is any(change.aspect is Aspect.LOSS for change in found.worse), found.worse


def test_one_content_that_loses_more_at_many_transactions_is_no_chance() -> None:
    still = [verdict(VerdictKind.LOST_SUFFIX, 10 + number, "still", acked=10 + number) for number in range(31)]
    found = since(run(normal=losing([1])), recorded_anew(run(normal=[*losing([1]), *still]), 2))
    assert any(change.aspect is Aspect.LOSS for change in found.worse), found.worse


def test_no_answer_is_never_green_and_replaces_no_entry() -> None:
    doubtful = run(full=durable(10))
    found = since(run(), doubtful)
    assert (3, [FULL]) == (found.exit_code, [change.subject for change in found.unanswered])
    old = baseline_of(of(run()), "quick")
    assert old.entries[FULL] == baseline.update(old, baseline_of(of(doubtful), "quick")).entries[FULL]
    missing = changes(old, of(run()[:-1]), "quick", {NORMAL: "the machine was lost"})
    assert (3, NORMAL) == (missing.exit_code, missing.unanswered[0].subject)


def test_a_run_without_a_scenario_of_the_baseline_is_no_answer() -> None:
    normal = [*controls_that_fire(), measured_scenario(sqlite("wal", "normal"), losing(range(6)))]
    entries = {name: entry for name, entry in baseline_of(of(normal), "quick").entries.items() if name == NORMAL}
    others = changes(Baseline(entries, {}), of(run()[:-1]), "quick", {})
    nothing = changes(Baseline({}, {}), of([]), "quick", {})
    for found in (others, nothing):
        assert ["the baseline: answer: none of its scenarios was measured"] == [str(one) for one in found.unanswered]
        assert 3 == found.exit_code


def test_scenarios_without_an_entry_are_held_to_their_promise_alone() -> None:
    before = [*controls_that_fire(), measured_scenario(sqlite("wal", "normal"), losing(range(6)))]
    found = since(before, run())
    assert (0, (FULL,)) == (found.exit_code, found.new)
    assert 1 == since(before, run(full=LOST)).exit_code
    assert (FULL,) == since(run(), before).absent


def test_figures_of_another_profile_are_not_compared() -> None:
    old = baseline_of(of(run()), "nightly")
    found = changes(old, of(slower(run(full=durable(75)), 2)), "quick", {})
    assert Changes(uncompared=tuple(sorted(old.entries))) == replace(found, uncompared=tuple(sorted(found.uncompared)))
    assert any("figures not compared" in line for _, line in lines(found))


def test_what_a_run_was_asked_for_and_has_not_is_no_answer() -> None:
    old = baseline_of(of(run()), "quick")
    without = of(run()[:-1])
    asked = changes(old, without, "quick", {}, is_asked=lambda name: name == NORMAL)
    assert [f"{NORMAL}: answer: in the baseline, and this run did not measure it"] == list(map(str, asked.unanswered))
    assert (3, ()) == (asked.exit_code, asked.absent)
    # Another profile may have other scenarios.
    assert 0 == changes(old, without, "nightly", {}, is_asked=lambda _: True).exit_code


def test_what_is_not_judged_any_more_is_no_answer() -> None:
    old = baseline_of(of(run()), "quick")
    kept = old.entries["sqlite-ext4-wal_off_powercut"]
    found = changes(
        replace(old, entries={"sqlite-ext4-wal_off_powercut": replace(kept, result="kept")}), of(run()), "quick", {}
    )
    (change,) = found.unanswered
    assert change.text.startswith("nothing is promised: ")
    assert 3 == found.exit_code


def test_the_first_damage_of_a_promise_that_only_losses_broke_is_no_answer() -> None:
    known = baseline_of(of(run(full=LOST)), "quick")
    assert 0 == changes(known, of(run(full=LOST)), "quick", {}).exit_code
    found = changes(known, of(run(full=[*LOST, verdict(VerdictKind.CORRUPT, 0, "e900")])), "quick", {})
    assert [f"{FULL}: answer: 1 states are damaged, for example e900; the baseline has losses alone"] == list(
        map(str, found.unanswered)
    )


def test_a_control_that_is_none_any_more_is_no_answer() -> None:
    old = baseline_of(of(run()), "quick")
    more = replace(old, controls={GROUP: (*old.controls[GROUP], "former"), "another group": ("gone",)})
    found = changes(more, of(run()), "quick", {})
    assert [f"{GROUP}: control: former fired in the baseline, and is no control any more"] == list(
        map(str, found.unanswered)
    )


@pytest.mark.parametrize("first", range(4))
def test_another_seed_alone_makes_nothing_worse(first: int) -> None:
    """Twenty runs whose states, losses and latencies are drawn anew; the real ones are in the tests on machines."""

    def drawn(seed: int) -> list[MeasuredScenario]:
        draw, found = random.Random(seed), []
        for one in recorded_anew(matrix(seed=seed), seed):
            latencies = [round(latency * draw.uniform(0.8, 1.2)) for latency in one.recording.latencies_virtual_ns]
            count = round(len(one.verdicts) * draw.uniform(0.85, 1))
            facts = replace(one.recording, latencies_virtual_ns=latencies, busy_virtual_ns=sum(latencies))
            plan = replace(one.plan, state_count=count)
            found.append(replace(one, recording=facts, verdicts=one.verdicts[:count], plan=plan))
        return found

    old = baseline_of(of(drawn(first)), "quick")
    for seed in range(100, 120):
        found = changes(old, of(drawn(seed)), "quick", {})
        assert () == found.worse


def test_a_file_can_be_reviewed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "durability.json"
    old, new = (baseline_of(of(scenarios), "quick") for scenarios in (run(), slower(run(), 1.5)))
    baseline.write(old, path)
    assert baseline.text_of(old) == path.read_text()
    assert old == baseline.read(path) or baseline.text_of(baseline.read(path)) == path.read_text()
    known = json.loads(path.read_text())
    assert sorted(known["scenarios"]) == list(known["scenarios"])
    for entry in known["scenarios"].values():
        assert {"profile", "seed", "states", "build", "recording", "kernel", "image"} <= entry["evidence"].keys()
    before, after = (baseline.text_of(one).splitlines() for one in (old, new))
    differing = [line for line in after if line not in before]
    # A change of speed changes the line of what is expected, and leaves the evidence alone.
    assert differing
    assert all(line.startswith('   "expected": ') for line in differing)
    assert max(map(len, before)) < 500


NUMBERS = st.none() | st.floats(0, 1e9).map(baseline._round_figure)
KNOWN_SPANS = st.builds(FigureSpan, st.floats(0, 1e9).map(baseline._round_figure), NUMBERS, NUMBERS)
SPANS = st.none() | KNOWN_SPANS
ENTRIES = st.builds(
    Entry,
    result=st.sampled_from(["kept", "broken", "not judged"]),
    exposure=KNOWN_SPANS, damaged=KNOWN_SPANS, lost_max=SPANS, lost_mean=SPANS, per_virtual_s=SPANS,
    evidence=st.builds(Provenance),
)  # fmt: skip


@given(
    st.builds(Baseline, st.dictionaries(st.text(), ENTRIES), st.dictionaries(st.text(), st.lists(st.text()).map(tuple)))
)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, value: Baseline) -> None:
    path = tmp_path_factory.getbasetemp() / "baseline.json"
    baseline.write(value, path)
    assert value == baseline.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a baseline"),
        ("[]", "is not a baseline"),
        ('{"format": 1, "scenarios": {"a": {"expected": {}}}, "controls": {}}', "is not a baseline"),
        ('{"format": 9, "scenarios": {}, "controls": {}}', "has format 9"),
    ],
)
def test_what_is_no_baseline_is_refused_with_what_to_do(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UsageError, match=said) as error:
        baseline.read(tmp_path / "b.json")
    assert "--update-baseline writes it" in str(error.value)
    with pytest.raises(UsageError, match="cannot be read"):
        baseline.read(tmp_path / "nowhere.json")
