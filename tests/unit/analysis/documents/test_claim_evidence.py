"""Claims that are judged from what is stored: losses from a run, speed from a measurement; and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rig.analysis.documents import crash, loader, speed
from rig.analysis.documents.answer import Answer
from rig.analysis.documents.claim import Claim, ClaimVerdict, Speed
from rig.analysis.documents.condition import parse
from rig.analysis.documents.crash import CONTENTS_MIN, Evidence
from rig.analysis.documents.measuring import Answered
from rig.analysis.documents.replications import replications
from rig.analysis.documents.table import details, headline, summary
from rig.analysis.judging.outcome import summarise
from rig.contract.results import MeasuredScenario, VerdictKind
from rig.contract.scenario import WorkloadSpec
from rig.front import cli
from rig.speed.session import of_document
from rig.speed.speeds import WHOLE, ArmFacts, Space, Speeds, Trial
from rig.speed.trials.disks import Disk
from rig.speed.trials.probe import SyncProbe
from rig.speed.trials.replication import Figure, Metric
from tests.unit import samples
from tests.unit.storedruns import store

ARMS = {"wal": ("sqlite-ext4-wal_full_powercut",), "off": ("sqlite-ext4-wal_off_powercut",)}
LOST, CORRUPT = VerdictKind.LOST_SUFFIX, VerdictKind.CORRUPT
CLAIM = """
id = "S9"
file = "009_x.txt"
about = "an example"
[[claim]]
id = "S9-1"
line = 3
says = "WAL loses nothing."
scenarios = ["wal"]
controls = ["off"]
shows = "wal.lost"
metric = "what is lost"
control = "OFF must lose"
fires = ["off.lost_max > 0"]
confirm = ["wal.lost_max == 0", "wal.damaged == 0"]
refute = ["wal.lost_max > 0"]
imprecise = ["wal.damaged > 0"]
seen = "{wal.losing} of {wal.contents} contents lost up to {wal.lost_max} (at most {wal.losing_bound})"
truth = "it lost {wal.lost_max}"
documentation = "Nothing is lost."
source = "a book"
[[claim]]
id = "S9-2"
line = 4
says = "WAL is fast."
speed = { experiment = "S9", over = "wal", under = "delete" }
metric = "the ratio"
confirm = ["ratio_low > 2"]
refute = ["ratio_high < 1"]
imprecise = ["ratio > 1"]
seen = "{ratio} ({ratio_low} to {ratio_high}) over {rounds} rounds"
truth = "it is {ratio}"
documentation = "It is fast."
source = "a book"
""" + "".join('[[summary]]\ntext = "WAL keeps all."\nrests_on = { S9-1 = "confirmed" }\n' for _ in range(5))
DOCUMENT = loader.document_of(CLAIM, "S9.toml", ARMS)
OF_LOSS, OF_SPEED = DOCUMENT.claims


def evidence(scenarios: Iterable[MeasuredScenario], run_dir: str = "") -> Evidence:
    return Evidence(summarise(scenarios, exposure_min=0), run_dir, {})


def run(wal: list[Any], *, controls: list[MeasuredScenario] | None = None) -> list[MeasuredScenario]:
    others = samples.controls_that_fire() if controls is None else controls
    return [samples.measured_scenario(samples.sqlite("wal", "full"), wal), *others]


def judge_claim(scenarios: Iterable[MeasuredScenario], claim: Claim = OF_LOSS) -> Answer:
    return crash.judge(claim, evidence(scenarios))


def test_a_zero_over_enough_contents_confirms_with_its_bound() -> None:
    answer = judge_claim(run(samples.durable(CONTENTS_MIN)))
    assert ClaimVerdict.CONFIRMED is answer.verdict
    assert "0 of 300 contents lost up to 0 (at most 1.0 %)" == answer.seen


def test_a_zero_over_fewer_contents_confirms_nothing_and_says_how_many() -> None:
    answer = judge_claim(run(samples.durable(152)))
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert "152 of 300 file contents (wal); it would be confirmed" == answer.why


def test_the_same_contents_seen_often_count_once() -> None:
    often = [samples.verdict(state=f"e{index}", content=f"c{index % 10}") for index in range(CONTENTS_MIN)]
    assert "10 of 300 file contents (wal)" in judge_claim(run(often)).why


def test_one_counterexample_refutes_and_is_named_to_be_replayed() -> None:
    lost = [*samples.durable(3), samples.verdict(LOST, 1, "e7.f0"), samples.verdict(LOST, 2, "e9.f0")]
    answer = crash.judge(OF_LOSS, evidence(run(lost), "elsewhere"))
    assert ClaimVerdict.REFUTED is answer.verdict
    assert "it lost 2" == answer.truth
    assert (
        "rig replay sqlite-ext4-wal_full_powercut e9.f0 --run-dir elsewhere",
        "rig replay sqlite-ext4-wal_full_powercut e7.f0 --run-dir elsewhere",
    ) == answer.replays


def test_a_state_that_was_judged_at_several_instants_is_named_once() -> None:
    often = [samples.verdict(LOST, lost, "e7.f0") for lost in (4, 3, 2, 1)]
    answer = judge_claim(run([*samples.durable(3), *often, samples.verdict(LOST, 1, "e9.f0")]))
    assert ["e7.f0", "e9.f0"] == [line.split()[3] for line in answer.replays]


@pytest.mark.parametrize(
    ("refute", "verdict"),
    [
        ("wal.lost_max > 0", ClaimVerdict.REFUTED),
        ("off.lost_max < wal.lost_max", ClaimVerdict.REFUTED),
        ("wal.lost_max < 99", ClaimVerdict.NOT_MEASURED),
        ("wal.lost_max < 99 * off.lost_max", ClaimVerdict.NOT_MEASURED),
        ("wal.lost_max == 5", ClaimVerdict.NOT_MEASURED),
    ],
)
def test_only_an_example_that_more_states_could_not_undo_refutes_with_few(refute: str, verdict: ClaimVerdict) -> None:
    lost = [*samples.durable(3), samples.verdict(LOST, 5, "e7.f0")]
    claim = replace(OF_LOSS, fires=(), confirm=(), refute=(parse(refute),), imprecise=())
    assert verdict is judge_claim(run(lost), claim).verdict


@pytest.mark.parametrize(
    ("refute", "confirm", "verdict"),
    [
        ("wal.lost_max == 0", "wal.lost_max > 0", ClaimVerdict.CONFIRMED),
        ("wal.lost_max < 5", "wal.lost_max > 0", ClaimVerdict.CONFIRMED),
        # One more lost would refute it.
        ("wal.lost_max > 5", "wal.lost_max > 0", ClaimVerdict.NOT_MEASURED),
        ("wal.lost_max == 6", "wal.lost_max > 0", ClaimVerdict.NOT_MEASURED),
        ("wal.lost_max > 2 * off.lost_max", "wal.lost_max > 0", ClaimVerdict.NOT_MEASURED),
        # Damage would refute it, and was only not seen yet.
        ("wal.damaged > 0", "wal.lost_max > 0", ClaimVerdict.NOT_MEASURED),
        ("wal.lost_max == 0", "wal.lost_max <= 5", ClaimVerdict.NOT_MEASURED),
    ],
)
def test_a_claim_that_something_is_lost_is_confirmed_by_few_if_more_could_not_refute_it(
    refute: str, confirm: str, verdict: ClaimVerdict
) -> None:
    lost = [*samples.durable(3), samples.verdict(LOST, 5, "e7.f0")]
    claim = replace(OF_LOSS, fires=(), confirm=(parse(confirm),), refute=(parse(refute),), imprecise=())
    answer = judge_claim(run(lost), claim)
    assert verdict is answer.verdict
    assert answer.replays


def test_what_was_lost_is_imprecise_only_if_more_could_not_confirm_it() -> None:
    lost = [*samples.durable(3), samples.verdict(LOST, 5, "e7.f0")]
    claim = replace(OF_LOSS, fires=(), confirm=(parse("wal.lost_max > 7"),), refute=(parse("wal.lost_max == 0"),))
    assert (
        ClaimVerdict.NOT_MEASURED
        is judge_claim(run(lost), replace(claim, imprecise=(parse("wal.lost_max > 0"),))).verdict
    )
    sure = replace(claim, confirm=(parse("wal.lost_max == 0"),), imprecise=(parse("wal.lost_max > 0"),))
    assert ClaimVerdict.IMPRECISE is judge_claim(run(lost), sure).verdict


def test_damage_is_no_loss_but_counts_as_a_content() -> None:
    damaged = [*samples.durable(CONTENTS_MIN - 1), samples.verdict(CORRUPT, 0, "e8")]
    assert ClaimVerdict.IMPRECISE is judge_claim(run(damaged)).verdict


def test_a_claim_whose_control_lost_nothing_is_not_measured() -> None:
    dead = [samples.measured_scenario(samples.sqlite(mode, "off"), samples.durable(3)) for mode in ("delete", "wal")]
    answer = judge_claim(run(samples.durable(CONTENTS_MIN), controls=dead))
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert "control" in answer.why


def test_a_scenario_that_is_missing_is_named() -> None:
    assert "sqlite-ext4-wal_off_powercut is not in the run" == judge_claim(run([], controls=[])).why
    assert "sqlite-ext4-wal_full_powercut is not in the run, nor are 1 more" == judge_claim([]).why
    assert "no run directory" in crash.judge(OF_LOSS, Evidence()).why


def test_a_scenario_that_failed_is_named_with_its_reason() -> None:
    failed = Evidence(summarise([], 0), "", {"sqlite-ext4-wal_full_powercut": "the disk is full"})
    assert "sqlite-ext4-wal_full_powercut could not be measured: the disk is full" == crash.judge(OF_LOSS, failed).why


def test_a_scenario_whose_plan_is_damaged_is_not_said_to_be_missing(tmp_path: Path) -> None:
    store(tmp_path / "run", run(samples.durable(CONTENTS_MIN)))
    plan = tmp_path / "run" / "scenarios" / ARMS["wal"][0] / "plan.json"
    plan.write_text("{")
    answer = crash.judge(OF_LOSS, crash.evidence_of(tmp_path / "run", [ARMS["wal"][0], ARMS["off"][0]], tmp_path))
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert answer.why.startswith(f"{plan} is damaged"), answer.why


def test_a_scenario_with_other_settings_than_asked_for_is_no_evidence() -> None:
    full = samples.sqlite("wal", "full")
    strange = samples.measured_scenario(full, samples.durable(CONTENTS_MIN), read_back=samples.sqlite("wal", "normal"))
    answer = judge_claim([strange, *samples.controls_that_fire()])
    assert "is inconclusive: synchronous=full was asked for" in answer.why


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tuning": {"library": "apsw==3.8.1"}}, "library=apsw==3.8.1"),
        ({"tuning": {"page_size": "512"}}, "page_size=512"),
        ({"workload": WorkloadSpec(think_ms=7)}, "pause=7ms"),
    ],
)
def test_another_build_or_tuning_is_no_evidence(changes: dict[str, Any], words: str) -> None:
    full, *others = run(samples.durable(CONTENTS_MIN))
    answer = judge_claim([replace(full, scenario=replace(full.scenario, **changes)), *others])
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert f"sqlite-ext4-wal_full_powercut was measured with {words}" in answer.why


def trial(arm: str, number: int, value: float) -> Trial:
    return Trial(number, arm, 1, 1, 1, 1, {"tx/s": value}, {}, (), None, None, 0.0, {})


def speeds(count: int, wal: float, delete: float, experiment: str = "S9", arms: str = "wal delete") -> Speeds:
    values = {arm: value for arm, value in {"wal": wal, "delete": delete}.items() if arm in arms.split()}
    trials = [trial(arm, number, value + number % 3) for number in range(1, count + 1) for arm, value in values.items()]
    return Speeds(
        experiment=experiment, document="009_x.txt", metrics=[Metric("tx/s", "/s", more_is_better=True)], versions={},
        filesystem="fs", options=(), disks=[Disk("sda", "", "", "")], probe=SyncProbe(0.004, 0.003, 1.0), warnings=(),
        seed=7, repeats=count, made="2000-01-01T00:00:00+00:00",
        figures=[Figure("wal", "delete", "tx/s", 3.0, 5, 300, 100)] if len(values) == 2 else [],
        arms={name: ArmFacts("e", {}, WHOLE, "delete", {}) for name in values},
        # The warm-up would decide otherwise.
        trials=[*trials, trial("wal", 0, 1.0), trial("delete", 0, 99999.0)], absent={"delete": "there was no room"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wal", "delete", "verdict"),
    [(400, 100, ClaimVerdict.CONFIRMED), (100, 400, ClaimVerdict.REFUTED), (150, 100, ClaimVerdict.IMPRECISE)],
)
def test_a_ratio_of_medians_decides_with_its_interval(wal: float, delete: float, verdict: ClaimVerdict) -> None:
    answer = speed.judge(OF_SPEED, [speeds(10, wal, delete)])
    assert verdict is answer.verdict
    assert "over 10 rounds" in answer.seen


def test_the_last_measurement_of_an_experiment_counts() -> None:
    both = [speeds(10, 400, 100), speeds(10, 100, 400)]
    assert ClaimVerdict.REFUTED is speed.judge(OF_SPEED, both).verdict
    assert ClaimVerdict.CONFIRMED is speed.judge(OF_SPEED, both[::-1]).verdict


def test_a_later_measurement_of_other_arms_or_of_other_work_hides_no_earlier_one() -> None:
    first = speeds(10, 400, 100)
    for other in (speeds(10, 1, 1, arms="wal"), with_load(speeds(10, 1, 1), "scale 0.1")):
        assert ClaimVerdict.CONFIRMED is speed.judge(OF_SPEED, [first, other]).verdict


def test_too_few_rounds_another_experiment_or_a_missing_arm_are_no_measurement() -> None:
    assert "9 of 10 rounds of wal and delete have tx/s" == speed.judge(OF_SPEED, [speeds(9, 400, 100)]).why
    assert "rig speed --dir DIR --document S9" in speed.judge(OF_SPEED, [speeds(10, 400, 100, "S8")]).why
    elsewhere = replace(OF_SPEED, experiment=Speed("S9", "wal", "delete", filesystem="btrfs"))
    assert "it is about btrfs, and what was given was measured on fs" in speed.judge(elsewhere, [speeds(10, 4, 1)]).why
    alone = speed.judge(OF_SPEED, [speeds(10, 400, 100, arms="wal")])
    assert "delete was not measured: there was no room" == alone.why


def test_a_ratio_to_nothing_at_all_is_no_measurement() -> None:
    found = speeds(10, 400, 100)
    still = [replace(one, metrics={"tx/s": 0.0}) if one.arm == "delete" else one for one in found.trials]
    answer = speed.judge(OF_SPEED, [replace(found, trials=still)])
    assert ClaimVerdict.NOT_MEASURED is answer.verdict
    assert "tx/s of delete is 0 in some round, and nothing compares with that" == answer.why


def test_the_last_measurement_where_a_claim_has_to_be_measured_counts() -> None:
    on_btrfs = replace(speeds(10, 400, 100), filesystem="btrfs")
    claim = replace(OF_SPEED, experiment=Speed("S9", "wal", "delete", filesystem="btrfs"))
    assert ClaimVerdict.CONFIRMED is speed.judge(claim, [on_btrfs, speeds(10, 400, 100)]).verdict


def virtual(found: Speeds, wall_ns: int = 1) -> Speeds:
    last = replace(found.trials[-1], wall_ns=wall_ns)
    said = {"filesystem": "fs.variant", "device": "hdd7200", "delays": "flush 8 ms", "clock": "slow"}
    return replace(found, trials=[*found.trials[:-1], last], virtual=said)


def test_one_round_of_a_virtual_machine_decides_and_is_named() -> None:
    answer = speed.judge(OF_SPEED, [virtual(speeds(1, 400, 100))])
    assert ClaimVerdict.CONFIRMED is answer.verdict
    assert "in a virtual machine, on fs.variant on the modelled disk hdd7200" in answer.seen


def test_a_real_disk_is_preferred_to_a_virtual_one_whichever_came_last() -> None:
    both = [speeds(10, 400, 100), virtual(speeds(1, 100, 400))]
    assert [ClaimVerdict.CONFIRMED] * 2 == [speed.judge(OF_SPEED, one).verdict for one in (both, both[::-1])]


def test_virtual_runs_that_differ_decide_nothing() -> None:
    answer = speed.judge(OF_SPEED, [virtual(speeds(1, 400, 100), wall_ns=2)])
    assert "the virtual runs of an arm differ by 1 of their time" == answer.why


def test_a_single_virtual_run_beside_a_watched_one_decides_nothing() -> None:
    found = virtual(speeds(1, 400, 100))
    trials = [one if one.round else replace(one, space=Space(1, {}, {})) for one in found.trials]
    answer = speed.judge(OF_SPEED, [replace(found, trials=trials)])
    assert "1 virtual run of an arm agrees with no other: --repeats 2" == answer.why


def with_load(found: Speeds, load: str) -> Speeds:
    return replace(found, arms={name: replace(facts, load=load) for name, facts in found.arms.items()})


def test_a_look_at_a_smaller_scale_or_other_transactions_are_no_measurement() -> None:
    small = speed.judge(OF_SPEED, [with_load(speeds(10, 400, 100), "scale 0.01")])
    assert "it is about scale 1, and what was given was measured with scale 0.01" == small.why
    claim = replace(OF_SPEED, experiment=Speed("settings", "wal", "delete"))
    found = replace(speeds(10, 400, 100, "settings"), document="")
    rows = speed.judge(claim, [with_load(found, "10 rows, 8 writers")])
    assert "it is about ledger, and what was given was measured with 10 rows, 8 writers" == rows.why
    assert ClaimVerdict.CONFIRMED is speed.judge(claim, [with_load(found, "ledger")]).verdict
    of_rows = replace(OF_SPEED, experiment=Speed("settings", "wal", "delete", load="1 row"))
    verdicts = [speed.judge(of_rows, [with_load(found, load)]).verdict for load in ("ledger", "1 row")]
    assert [ClaimVerdict.NOT_MEASURED, ClaimVerdict.CONFIRMED] == verdicts


def test_the_load_of_a_whole_document_is_what_the_claims_ask_for() -> None:
    plan = of_document(replications()[:1], 1, 1.0)
    assert {WHOLE} == {facts.load for _, facts in plan.arms.values()}


def answer_page() -> Answered:
    scenarios = run([*samples.durable(CONTENTS_MIN), samples.verdict(LOST, 1, "e1<b>")])
    return Answered(DOCUMENT, (judge_claim(scenarios), speed.judge(OF_SPEED, [])))


def test_everything_about_a_claim_can_be_read() -> None:
    lines = details(answer_page().answers[0])
    assert "S9-1, line 3: refuted" == lines[0]
    assert "threshold   confirmed if wal.lost_max == 0 and wal.damaged == 0; refuted if wal.lost_max > 0" in lines[3]
    assert lines[-1].startswith("replay      rig replay sqlite-ext4-wal_full_powercut")


def test_a_line_of_the_summary_is_said_only_if_its_claims_came_out_so() -> None:
    whole = loader.documents()[0]
    first = Answer(whole.claims[0], ClaimVerdict.CONFIRMED)
    silent = Answered(whole, tuple(Answer(one, ClaimVerdict.NOT_MEASURED) for one in whole.claims))
    assert all(line.startswith("Open: ") for line in summary(silent))
    as_wanted = {name: verdict for line in whole.summary for name, verdict in line.rests_on.items()}
    told = Answered(whole, tuple(Answer(one, as_wanted.get(one.id, first.verdict)) for one in whole.claims))
    assert [line.text for line in whole.summary] == summary(told)


def test_the_headline_counts_every_claim() -> None:
    assert "2 claims: 1 refuted, 1 not measured." == headline(answer_page().answers)


def test_the_command_measures_one_claim_and_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["claims", "S0-1"], env={"COLUMNS": "140"})
    assert 0 == result.exit_code
    assert "S0-1, line 10: confirmed" in result.output
    assert "1 claim: 1 confirmed." in result.output
    assert "S0-1" in (tmp_path / "runs" / "claims.html").read_text()


def test_the_command_says_by_its_exit_code_that_a_claim_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["claims", "S1-16"])
    assert 3 == result.exit_code
    assert "rig claims --profile nightly" in result.output


def test_an_unknown_claim_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["claims", "S0-99"])
    assert 2 == result.exit_code
    assert "unknown claim 'S0-99'" in result.output
