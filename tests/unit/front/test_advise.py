"""The command `rig advise` on stored runs: what it says in each format, and its exit codes."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rig.contract.results import MeasuredScenario
from rig.front import cli
from rig.store import Run
from tests.unit import samples
from tests.unit.storedruns import store

Here = Callable[..., Result]
FAULTS = ("powercut", "torn")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose runs/ holds the whole matrix; every verdict is synced, so it is stored once."""
    folder = tmp_path_factory.mktemp("home")
    finish(folder / "runs" / "one", matrix())
    return folder


@pytest.fixture
def there(home: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(home)
    return lambda *words: CliRunner().invoke(cli.main, ["advise", *words], env={"COLUMNS": "140"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli.main, ["advise", *words], env={"COLUMNS": "140"})


def matrix() -> list[MeasuredScenario]:
    return [one for fault in FAULTS for one in samples.matrix(fault)]


def finish(folder: Path, scenarios: list[MeasuredScenario]) -> Path:
    store(folder, scenarios)
    (folder / "report.html").touch()
    return folder


def test_the_answer_comes_first_with_speed_evidence_bounds_run_and_recording(there: Here) -> None:
    result = there("--max-lost", "0")
    assert 0 == result.exit_code, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Take wal_full (sqlite 3.46.1 on ext4, device ssd-sata): ")
    (evidence,) = [line for line in lines if line.startswith("  torn: lost max 0")]
    for words in ("damage 0 of 220, <= 1.4 %", "runs/one", "profile quick", "recording ", "documented: loses nothing"):
        assert words in evidence
    faster = lines[lines.index("next faster") + 1]
    assert "wal_normal" in faster
    assert "rig replay sqlite-ext4-wal_normal_powercut" in result.stdout
    assert any(line.startswith("  loses something: ") for line in lines)


def test_a_folder_that_is_no_scenario_and_a_manifest_without_a_profile_are_no_crash(here: Here, tmp_path: Path) -> None:
    folder = finish(tmp_path / "runs" / "one", samples.controls_that_fire())
    (folder / "scenarios" / "odd").mkdir()
    (folder / "scenarios" / "odd" / "plan.json").write_text("{}")
    assert "not enough values" not in here().output
    (folder / "manifest.json").write_text(json.dumps({"format": Run.open(folder).definition["format"]}))
    result = here()
    assert (3, True) == (result.exit_code, "does not name a profile" in result.output), result.output


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_a_wish_that_nothing_could_go_against_is_none(word: str, there: Here) -> None:
    result = there("--max-lost-seconds", word)
    assert 2 == result.exit_code, result.output
    assert f"'{word}' is not a finite number" in result.output


def test_what_a_wish_rules_out_is_named_with_the_wish(there: Here) -> None:
    lines = there("--max-lost", "3", "--max-lost-seconds", "1").stdout.splitlines()
    (line,) = [line for line in lines[lines.index("ruled out") :] if line.startswith("  wal_normal: ")]
    assert "--max-lost 3: lost up to 12" in line
    assert "--max-lost-seconds 1: lost up to 6 s of acknowledged work" in line


def test_if_nothing_meets_the_wishes_it_says_so_and_the_exit_code_is_1(here: Here, tmp_path: Path) -> None:
    kept = [
        one
        for one in matrix()
        if one.scenario.settings in (samples.sqlite("wal", "normal"), samples.sqlite("wal", "off"))
    ]
    kept += [
        one
        for fault in FAULTS
        for one in samples.controls_that_fire(fault)
        if one.scenario.settings["journal_mode"] != "wal"
    ]
    finish(tmp_path / "runs" / "one", kept)
    result = here("--max-lost", "0")
    assert 1 == result.exit_code, result.output
    assert result.stdout.startswith("Nothing that was measured meets --max-lost 0 under powercut and torn.")


def test_thin_evidence_is_refused_with_the_command_that_would_do(there: Here) -> None:
    result = there("--exposure", "230")
    assert 3 == result.exit_code, result.output
    assert result.stdout.startswith("No advice: the evidence does not suffice.")
    assert "wal_full" in result.stdout
    assert "220 distinct file contents, --exposure 230 asked for" in result.stdout
    (command,) = [line.strip() for line in result.stdout.splitlines() if line.startswith("  rig run ")]
    assert "sqlite-ext4-wal_full_powercut sqlite-ext4-wal_full_torn" in command
    assert command.endswith("--profile exhaustive --device ssd-sata")


def test_a_control_that_was_not_run_is_refused(here: Here, tmp_path: Path) -> None:
    folder = finish(
        tmp_path / "elsewhere", [one for one in matrix() if one.scenario.settings == samples.sqlite("wal", "full")]
    )
    result = here("--run-dir", str(folder))
    assert 3 == result.exit_code, result.output
    assert "control wal_off was not run" in result.stdout
    assert (
        "rig run sqlite-ext4-wal_full_powercut sqlite-ext4-wal_full_torn --profile quick --device ssd-sata"
        in result.stdout
    )


def test_nothing_measured_on_a_file_system_is_refused_with_the_command(there: Here) -> None:
    result = there("--fs", "xfs", "--engine", "sqlite", "--fault", "powercut")
    assert 3 == result.exit_code
    assert "No advice: nothing that fits was measured." in result.stdout
    assert "rig run 'sqlite-xfs-*_powercut' --device ssd-sata" in result.stdout


def test_without_a_finished_run_it_says_what_to_do(here: Here, tmp_path: Path) -> None:
    store(tmp_path / "runs" / "stopped", samples.matrix()[:1])
    result = here()
    assert 3 == result.exit_code
    assert "there is no finished run in" in result.stderr
    assert "--run-dir" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "sqlit"], "unknown engine 'sqlit'; did you mean sqlite? "),
        (["--fs", "ext5"], "unknown file system 'ext5'; did you mean ext"),
        (["--device", "tape"], "unknown device 'tape'; there are: none, hdd7200"),
        (["--device", "ssd"], "the device 'ssd' is now called 'ssd-sata'"),
        (["--fault", "powercat"], "unknown fault 'powercat'; did you mean powercut? "),
        (["--engine", "files"], "the settings of files do different things"),
        (["--max-lost", "-1"], "--max-lost"),
        (["--exposure", "0"], "--exposure"),
        (["--format", "yaml"], "yaml"),
    ],
)
def test_a_word_that_does_not_exist_is_a_usage_error(words: list[str], said: str, here: Here) -> None:
    result = here(*words)
    assert 2 == result.exit_code
    assert said in result.stderr


def test_json_and_markdown_say_what_the_text_says(there: Here) -> None:
    told = json.loads(there("--format", "json").stdout)
    assert ("wal_full", "wal_normal") == (told["take"]["settings"], told["next_faster"]["settings"])
    assert 16 == len(told["candidates"])
    losing = told["take"]["random_instant"]["losing"]
    assert 0 == losing["value"] < losing["high"] < 0.2
    assert [220, 220] == [one["file_contents"] for one in told["take"]["evidence"]]
    text = there().stdout
    page = there("--format", "markdown").stdout
    assert text.splitlines()[0] == page.splitlines()[0].strip("*") == told["headline"]
    assert {"wal_full*", "take"} <= {cell.strip() for line in page.splitlines() for cell in line.split("|")}


def test_the_page_says_what_the_text_says_and_has_a_row_for_each_setting(there: Here) -> None:
    page = there("--max-lost", "0", "--format", "html").stdout
    headline, *lines = there("--max-lost", "0").stdout.splitlines()
    assert f"<h1>{headline}</h1>" in page
    assert 16 == page.count('<tr><th scope="row">')
    assert '<th scope="row">wal_full*</th>' in page
    said = html.unescape(page)
    shown = [
        line.strip() for line in lines[: lines.index(next(one for one in lines if one.split()[:1] == ["settings"]))]
    ]
    assert [] == [line for line in shown if line not in said]


def test_a_tuned_run_is_another_candidate_and_the_command_repeats_its_tuning(here: Here, tmp_path: Path) -> None:
    folder = finish(tmp_path / "run", samples.matrix("powercut")[-4:])
    for path in folder.glob("scenarios/*/plan.json"):
        known = json.loads(path.read_text())
        own = Run.open(folder).recording_folder(Run.open(folder).scenario(path.parent.name))
        known["scenario"]["tuning"]["wal_autocheckpoint"] = "1000"
        known["scenario"]["workload"]["think_ms"] = 100
        path.write_text(json.dumps(known))
        recording = Run.open(folder).recording_folder(Run.open(folder).scenario(path.parent.name))
        shutil.copytree(own, recording)
    result = here("--run-dir", str(folder), "--fault", "powercut")
    assert "wal_full wal_autocheckpoint=1000 pause=100ms" in result.stdout
    (command,) = [line for line in result.stdout.splitlines() if line.startswith("  rig run ")]
    assert command.endswith("--device ssd-sata --tune wal_autocheckpoint=1000 --pause-ms 100")


@pytest.mark.parametrize("wanted", ["text", "markdown", "html", "json"])
def test_it_never_says_safe(wanted: str, there: Here) -> None:
    assert "safe" not in there("--format", wanted).stdout.lower()


def test_several_run_directories_are_one_body_of_evidence(here: Here, tmp_path: Path) -> None:
    words = []
    for fault in FAULTS:
        kept = [one for one in samples.matrix(fault) if one.scenario.settings["synchronous"] == "off"]
        wal_full = samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(70), fault)
        words += ["--run-dir", str(finish(tmp_path / fault, [*kept[::3], wal_full]))]
    assert 3 == here(*words[:2]).exit_code
    result = here(*words)
    assert 0 == result.exit_code, result.output
    assert result.stdout.startswith("Take wal_full")
