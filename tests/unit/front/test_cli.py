"""The command `rig` without machines: exit codes, messages for bad input, and the sources of a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from rig.analysis.dossiers import control_settings
from rig.contract.results import MeasuredScenario, VerdictKind
from rig.front import cli
from rig.front.verbs import doctor
from rig.machines.template import PROGRAM
from rig.planning import defaults, matrix
from rig.store import Run
from tests.unit import samples
from tests.unit.storedruns import store

ROOT = Path(__file__).resolve().parents[3]
RIG = Path(sys.executable).with_name("rig")
SCENARIO = "sqlite-ext4-wal_normal_powercut"
Rig = Callable[..., subprocess.CompletedProcess[str]]
Here = Callable[..., Result]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    def call(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "140", **(env or {})}
        return subprocess.run(
            [RIG, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    return call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Call the command in this process, because matplotlib takes seconds to import."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli.main, list(words), env={"COLUMNS": "140"})


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    yield words
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


def test_every_command_explains_itself() -> None:
    assert isinstance(cli.main, click.Group)
    found = list(commands(cli.main))
    assert {("run",), ("plan",), ("replay",), ("report",), ("doctor",), ("image", "list")} <= set(found)
    for words in found:
        for option in ("--help", "-h"):
            result = CliRunner().invoke(cli.main, [*words, option])
            assert 0 == result.exit_code, words
            assert result.output.startswith(f"Usage: main{''.join(f' {word}' for word in words)} ")
            # At least one line of prose, for a reader who knows only the name.
            assert any(line.strip() and line[:2] == "  " for line in result.output.splitlines()[2:4]), words


SQLITE = "sqlite-ext4-"
BAD: Sequence[tuple[list[str], list[str]]] = [
    (["plan", "oracle-ext4-wal_full_powercut"], ["unknown engine 'oracle'", "there are: "]),
    (["plan", "sqlite-zfs-wal_full_powercut"], ["unknown file system 'zfs'", "; did you mean xfs? ", "btrfs"]),
    (
        ["plan", "sqlite-ext4-wal_ful_powercut"],
        ["unknown settings 'wal_ful'", "; did you mean wal_full? ", "wal_normal"],
    ),
    (["plan", "sqlite-ext4-wal_full_powercat"], ["unknown fault 'powercat'", "; did you mean powercut? ", "oscrash"]),
    (
        ["plan", "sqlite-ext4-wal_full_zzz"],
        ["unknown fault 'zzz' in 'sqlite-ext4-wal_full_zzz'; there are: ", "bitflip"],
    ),
    (
        ["plan", "wal_full"],
        ["no scenario matches 'wal_full'; did you mean '*wal_full*'? ", "`rig plan '*'` lists them all"],
    ),
    (["plan", "wal_ful_powercut"], ["no scenario matches", "did you mean 'sqlite-ext4-wal_full_powercut'? "]),
    (["plan", "xfs-wal_ful_powercut"], ["no scenario matches", "did you mean 'sqlite-xfs-wal_full_powercut'? "]),
    (["plan", "--profile", "slow"], ["unknown profile 'slow'", "smoke, quick, nightly, exhaustive"]),
    (["run", "--profile", "slow"], ["unknown profile 'slow'", "smoke, quick, nightly, exhaustive"]),
    (["run", "--device", "tape"], ["unknown device 'tape'", "none, hdd7200, hdd5400, ssd-sata"]),
    (["run", "sqlite-zfs-wal_full_powercut"], ["unknown file system 'zfs'"]),
    (["run", "--jobs", "-1"], ["--jobs"]),
    (["run", "--seed", "one"], ["--seed"]),
    (["run", "--seed", "-1"], ["--seed"]),
    (["image", "build", "debian"], ["'debian'", "base"]),
    (["image", "remove", "debian"], ["no image 'debian'; there are: none"]),
    (["frobnicate"], ["No such command 'frobnicate'"]),
    (["replay", SCENARIO], ["STATE"]),
]


@pytest.mark.parametrize(
    ("words", "said"), BAD, ids=[" ".join(words).replace(SCENARIO, "SCENARIO") for words, _ in BAD]
)
def test_what_does_not_exist_is_a_usage_error_that_names_the_choices(
    words: list[str], said: list[str], rig: Rig, tmp_path: Path
) -> None:
    result = rig(*words)
    assert (2, "") == (result.returncode, result.stdout)
    assert [] == [part for part in said if part not in result.stderr], result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()


def test_of_many_names_a_message_lists_the_few_nearest(rig: Rig) -> None:
    (line,) = rig("plan", "sqlite-ext4-wal_ful_powercut").stderr.splitlines()
    listed = line.partition("there are: ")[2].partition(", and ")
    assert "wal_full" == listed[0].split(", ")[0]
    assert 8 == len(listed[0].split(", "))
    assert listed[2].endswith("more: `rig plan '*'`")


def test_plan_lists_exactly_the_scenarios_that_run_would_measure(rig: Rig) -> None:
    result = rig("plan")
    assert 0 == result.returncode
    default = defaults.default_scenarios(matrix.profile("quick"), control_settings)
    assert [scenario.id for scenario in default] == result.stdout.splitlines()
    assert "44 scenarios from 27 recordings; at most 9040 crash states and 1620 cut instants" in result.stderr
    names = ["sqlite-ext4-wal_full+e*_powercut", "sqlite-ext4-wal_full_powercut", SCENARIO]
    words = ["plan", *names, "--profile", "nightly"]
    of_a_build = rig("plan", "--library", "./libsqlite3.so").stdout.splitlines()
    assert {*result.stdout.splitlines(), f"{SQLITE}delete_full.life_recoverycut"} < set(of_a_build)
    some = rig(*words, "--no-controls")
    full = [f"{SQLITE}{name}_powercut" for name in ("wal_full+eatmydata", "wal_full")]
    assert sorted([*full, SCENARIO]) == some.stdout.splitlines()
    assert "3 scenarios from 3 recordings; at most 680 crash states" in some.stderr
    all_of_them = rig(*words)
    controls = [f"{SQLITE}{name}_powercut" for name in ("delete_off", "wal_off")]
    assert sorted([*full, *controls, SCENARIO]) == all_of_them.stdout.splitlines()
    said, counted = all_of_them.stderr.splitlines()
    assert said.startswith("2 controls are measured too (delete_off, wal_off): ")
    assert said.endswith("; --no-controls leaves them out")
    assert counted.startswith("5 scenarios ")
    few = rig("plan", "sqlite-ext4-wal_full_powercut", "--states", "24", "--no-controls")
    assert "at most 24 crash states and 24 cut instants" in few.stderr


@pytest.mark.parametrize(
    ("scenarios", "code", "said"),
    [
        (samples.matrix(), 0, "Every promise was kept"),
        ([samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(120))], 3, "Inconclusive"),
        (
            [
                *samples.controls_that_fire(),
                samples.measured_scenario(
                    samples.sqlite("wal", "extra"), [*samples.durable(120), samples.verdict(lost=2)]
                ),
            ],
            1,
            "A promise was broken by wal_extra",
        ),
    ],
    ids=["kept", "inconclusive", "broken"],
)
def test_report_exits_with_the_code_of_the_answer(
    scenarios: list[MeasuredScenario], code: int, said: str, here: Here, tmp_path: Path
) -> None:
    if code == 1:
        lossy = replace(scenarios[-1].verdicts[-1], kind=VerdictKind.LOST_SUFFIX)
        scenarios = [*scenarios[:-1], replace(scenarios[-1], verdicts=(*scenarios[-1].verdicts[:-1], lossy))]
    store(tmp_path / "run", scenarios)
    result = here("report", "--run-dir", "run")
    assert (code, "") == (result.exit_code, result.stderr)
    assert said in result.stdout
    assert "report: run/report.html" in result.stdout


def test_report_rewrites_the_same_bytes_and_a_parquet_row_for_each_verdict(here: Here, tmp_path: Path) -> None:
    folder = store(tmp_path / "runs" / "one", samples.matrix())
    assert 0 == here("report").exit_code
    names = ("report.html", "verdicts.parquet")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    again = here("report")
    assert 0 == again.exit_code
    assert before == {name: (folder / name).read_bytes() for name in names}
    assert sum(len(scenario.verdicts) for scenario in samples.matrix()) == pq.read_metadata(folder / names[1]).num_rows
    left = [path.name for path in folder.iterdir()]
    assert sorted(["scenarios", "manifest.json", "recordings", *names]) == sorted(left)


def test_one_report_of_several_runs_keeps_the_verdicts_of_each(here: Here, tmp_path: Path) -> None:
    lossy = [*samples.durable(120), samples.verdict(VerdictKind.LOST_SUFFIX, 2, "e1")]
    torn = [
        *samples.controls_that_fire("torn"),
        samples.measured_scenario(samples.sqlite("wal", "full"), lossy, "torn"),
    ]
    store(tmp_path / "runs" / "whole", samples.matrix())
    store(tmp_path / "torn", torn)
    words = ["report", "--run-dir", "runs/whole", "--run-dir", "torn"]
    result = here(*words, "--out", "both.html")
    page = (tmp_path / "both.html").read_text()
    assert 1 == result.exit_code
    assert "rig replay sqlite-ext4-wal_full_torn e1 --run-dir torn" in result.stdout
    assert "rig replay sqlite-ext4-wal_full_torn e1 --run-dir torn" in page
    assert re.search(r"rig replay sqlite-ext4-wal_normal_powercut \S+<", page)
    scenarios = [one.scenario for one in samples.matrix()]
    promised = [one for one in scenarios if one.shim == "none" and one.settings["synchronous"] != "off"]
    assert f"1 of {len(promised) + 1} scenarios" in result.stdout
    alone = here(*words)
    assert (2, True) == (alone.exit_code, "--out goes with several --run-dir" in alone.stderr)
    again = here("report", "--run-dir", "torn", "--run-dir", "runs/whole", "--run-dir", "torn", "--out", "again.html")
    assert 1 == again.exit_code


def without_reader(words: list[str], folder: Path, *, stderr_too: bool = False) -> tuple[int, str]:
    """Run a command that prints into a pipe without a reader; return the exit code and its standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    said = folder / "said"
    with os.fdopen(writer, "w") as pipe, said.open("w") as file:
        stderr = subprocess.STDOUT if stderr_too else file
        result = subprocess.run([RIG, *words], cwd=folder, stdout=pipe, stderr=stderr, check=False, timeout=300)
    return result.returncode, said.read_text()


def test_a_reader_who_leaves_ends_the_command_quietly(tmp_path: Path) -> None:
    assert (3, "") == without_reader(["plan"], tmp_path)
    assert (3, "") == without_reader(["plan"], tmp_path, stderr_too=True)


def test_a_reader_who_leaves_the_table_still_has_the_report(tmp_path: Path) -> None:
    folder = store(tmp_path / "runs" / "one", samples.matrix())
    assert (3, "") == without_reader(["report"], tmp_path)
    assert (folder / "report.html").exists()
    assert (folder / "verdicts.parquet").exists()


def test_what_is_damaged_or_was_not_measured_is_named_and_the_run_is_not_green(here: Here, tmp_path: Path) -> None:
    folder = store(tmp_path / "run", samples.matrix())
    victim = folder / "scenarios" / SCENARIO
    (victim / "failure").write_text("the recording is void")
    result = here("report", "--run-dir", str(folder))
    assert 3 == result.exit_code
    assert f"not measured {SCENARIO}: the recording is void" in result.stderr
    (victim / "failure").unlink()
    (victim / "plan.json").write_text("{")
    result = here("report", "--run-dir", str(folder))
    assert 3 == result.exit_code
    assert f"damaged: {victim / 'plan.json'} is damaged" in result.stderr
    assert "wal_full" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "there is no run in"),
        (["report", "--run-dir", "nowhere"], "nowhere is not a run directory: it has no manifest.json"),
        (
            ["replay", SCENARIO, "e1:i1", "--run-dir", "nowhere"],
            "nowhere is not a run directory: it has no manifest.json",
        ),
        (["replay", SCENARIO, "e1:i1"], f"there is no run with the scenario '{SCENARIO}' in"),
        (["claims", "S1-16", "--run-dir", "nowhere"], "nowhere is not a run directory: it has no manifest.json"),
    ],
    ids=["report", "report of nowhere", "replay of nowhere", "replay", "claims of nowhere"],
)
def test_a_run_that_is_not_there_is_said_so_without_a_traceback(
    words: list[str], said: str, rig: Rig, tmp_path: Path
) -> None:
    result = rig(*words)
    assert 3 == result.returncode
    assert said in result.stderr
    assert 1 == len(result.stderr.splitlines())
    assert not (tmp_path / "nowhere").exists()


def test_a_program_error_is_never_taken_for_a_broken_promise(
    here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store(tmp_path / "run", samples.matrix()[:2])
    nothing: dict[str, str] = {}
    monkeypatch.setattr(Run, "results", lambda *_: nothing["nothing known"])
    result = here("report", "--run-dir", str(folder))
    assert 3 == result.exit_code
    assert "this is a bug in the rig" in caplog.text
    assert "KeyError: 'nothing known'" in caplog.text


def test_a_report_that_cannot_be_written_is_one_line_with_the_fix(here: Here, tmp_path: Path) -> None:
    folder = store(tmp_path / "run", samples.matrix()[:2])
    (folder / "report.html").mkdir()
    result = here("report", "--run-dir", str(folder))
    assert 3 == result.exit_code
    (line,) = result.stderr.splitlines()
    assert "report.html could not be written" in line
    assert f"Check that {folder} is a directory to which this user may write" in line


def test_an_empty_cache_has_no_images_and_the_list_says_how_to_build_those_of_the_engines(rig: Rig) -> None:
    result = rig("image", "list")
    assert (0, "") == (result.returncode, result.stderr)
    said = {line.split()[1]: line.split("  ")[-1] for line in result.stdout.splitlines()}
    assert {"base", "embedded"} <= set(said)
    assert {name: f"not built: rig image build {name}" for name in said} == said


def path_without_qemu(tmp_path: Path) -> Path:
    """A PATH with everything but QEMU, and without folders that this user may not list, such as root's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).iterdir() if os.access(directory, os.R_OK | os.X_OK) else []:
            if program.name != PROGRAM and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)
    return folder


def without_system_qemu() -> bool:
    return not any(Path(folder, PROGRAM).exists() for folder in ("/usr/local/sbin", "/usr/sbin", "/sbin"))


def test_without_qemu_doctor_and_run_say_one_line_with_the_fix(rig: Rig, tmp_path: Path) -> None:
    assert without_system_qemu(), "QEMU is where the rig looks without PATH"
    fix = f"the program {PROGRAM} is not installed: on Debian and Ubuntu it is in the package qemu-system-x86"
    environment = {"PATH": str(path_without_qemu(tmp_path))}
    result = rig("doctor", env=environment)
    assert 3 == result.returncode
    (line,) = [line for line in result.stdout.splitlines() if PROGRAM in line]
    assert line.startswith(f"MISS {PROGRAM}: {fix}")
    assert "" == result.stderr
    assert "guest image" in result.stdout, "it stopped at the first thing that is missing"
    ran = rig("run", SCENARIO, env=environment)
    assert (3, "") == (ran.returncode, ran.stdout)
    (line,) = ran.stderr.splitlines()
    assert fix in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ("QEMU emulator version 6.1.0", True),
        ("QEMU emulator version 2.12.0 (Debian)", True),
        ("QEMU emulator version 6.2.0", False),
        ("QEMU emulator version 10.0.2", False),
    ],
)
def test_a_qemu_that_is_too_old_is_one_line_with_the_fix(version: str, is_old: bool, rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / PROGRAM).write_text(f"#!/bin/sh\necho '{version}'\n")
    (folder / PROGRAM).chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    result = rig("doctor", env=environment)
    (line,) = [line for line in result.stdout.splitlines() if PROGRAM in line]
    assert ("MISS" if is_old else "ok") == line.split()[0]
    assert version in line
    if not is_old:
        return
    fix = "older than 6.2; install qemu-system-x86 of Debian 12 or later"
    assert line.endswith(fix)
    assert 3 == result.returncode
    ran = rig("run", SCENARIO, env=environment)
    assert 3 == ran.returncode
    (line,) = ran.stderr.splitlines()
    assert fix in line


def test_doctor_lists_all_that_is_missing_and_the_one_line_that_installs_it(rig: Rig, tmp_path: Path) -> None:
    folder = path_without_qemu(tmp_path)
    (folder / "mmdebstrap").unlink(missing_ok=True)
    result = rig("doctor", env={"PATH": str(folder)})
    lines = result.stdout.splitlines()
    assert "MISS mmdebstrap: in the Debian package mmdebstrap" in lines
    install = "apt-get install --no-install-recommends mmdebstrap qemu-system-x86"
    assert f"To install what is missing, run as root: {install}" == lines[-1]
    assert "Install" not in rig("doctor").stdout


def test_doctor_looks_for_what_bootstrap_installs_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without an image no machine starts.
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    script = (ROOT / "bootstrap.sh").read_text().partition("needs_of_run=(")[2].partition("\n)")[0]
    needed = {line.strip(' "').split()[1] for line in script.splitlines() if line.strip()}
    looked_for = {finding.package for finding in doctor.examine()} - {""}
    # A clone has a Makefile; tar is on every Debian.
    assert needed - {"make"} == looked_for - {"tar"}
