"""The pytest plugin without machines: it collects and registers tests without starting anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rig.analysis.dossiers import control_settings
from rig.front.pytest_plugin import _offer
from rig.planning import defaults, matrix

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = "sqlite-ext4-wal_normal_powercut"
# Runs pytest in this process and records which modules it imported and which programs it started.
_WATCHED = """
import json, sys
started = []
sys.addaudithook(lambda event, args: started.append(repr(args)) if event in ("subprocess.Popen", "os.fork", "os.exec",
    "os.posix_spawn", "os.system") else None)
import pytest
code = pytest.main(sys.argv[2:])
heavy = {"numpy", "scipy", "matplotlib", "pyarrow", "duckdb", "jinja2", "qemu"}
heavy |= {"rig.campaign", "rig.faults", "rig.machines"}
found = {"code": int(code), "started": started, "heavy": sorted(heavy & set(sys.modules))}
open(sys.argv[1], "w").write(json.dumps(found))
"""


def collect(*words: str, cwd: Path = ROOT) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == result.returncode, result.stdout + result.stderr
    return [line for line in result.stdout.splitlines() if "::" in line]


def id_of(line: str) -> str:
    return line.partition("[")[2].removesuffix("]")


def test_the_name_that_the_readme_promises_selects_exactly_one_test() -> None:
    (line,) = collect("-k", "wal_normal_powercut")
    assert f"tests/durability/test_promises.py::test_promise[{SCENARIO}]" == line


def test_offered_are_the_scenarios_of_the_main_job_sorted_and_ascii() -> None:
    found = [id_of(line) for line in collect("tests/durability/test_promises.py")]
    assert [scenario.id for scenario in defaults.default_scenarios(matrix.profile("quick"), control_settings)] == found
    assert sorted(set(found)) == found
    assert all(name.isascii() for name in found)


def test_nothing_is_started_and_nothing_heavy_imported_at_collection(tmp_path: Path) -> None:
    words = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "wal_normal_powercut"]
    note = tmp_path / "note"
    cache = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _WATCHED, str(note), *words, "tests/durability"]
    subprocess.run(command, cwd=ROOT, env=cache, capture_output=True, check=True, timeout=60)
    assert {"code": 0, "started": [], "heavy": []} == json.loads(note.read_text())
    assert not (tmp_path / "cache").exists()


DURABILITY_TEST = """
import pytest

def test_it(durability):
    raise AssertionError("never to be run here")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\naddopts = ["--strict-markers", "--strict-config"]\n')
    pytester.makepyfile(DURABILITY_TEST)
    return pytester


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rig-profile", "slow"], "unknown profile 'slow'; there are: smoke, quick, nightly, exhaustive"),
        (["--rig-device", "tape"], "unknown device 'tape'; there are: none, hdd7200, hdd5400, ssd-sata"),
        (["--rig-scenarios", "sqlite-zfs-wal_full_torn"], "unknown file system 'zfs'"),
        (["--rig-scenarios", "sqlite-ext4-wal_full_rain"], "unknown fault 'rain'"),
        (["--rig-seed", "one"], "--rig-seed: invalid int value: 'one'"),
    ],
)
def test_what_does_not_exist_is_a_usage_error_that_names_the_choices(
    words: list[str], said: str, project: pytest.Pytester
) -> None:
    result = project.runpytest_subprocess("--collect-only", *words)
    assert result.ret in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED}
    text = result.stdout.str() + result.stderr.str()
    assert said in text
    assert "Traceback" not in text


def test_options_stand_in_a_group_of_their_own_and_the_marker_is_registered(project: pytest.Pytester) -> None:
    text = project.runpytest_subprocess("--help").stdout.str()
    group = text.partition("durability under power loss:")[2].partition("\n\n")[0]
    for option in ("--rig-profile", "--rig-device", "--rig-seed", "--rig-run-dir", "--rig-scenarios"):
        assert option in group
    assert "@pytest.mark.durability(*scenarios): " in project.runpytest_subprocess("--markers").stdout.str()


def test_scenarios_carry_the_marker_and_a_test_without_one_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile(test_other="def test_other():\n    pass\n")
    result = project.runpytest_subprocess(
        "--collect-only", "-q", "-m", "durability", "--rig-scenarios", "*ext4-wal_full_powercut"
    )
    result.stdout.fnmatch_lines(["*::test_it[[]sqlite-ext4-wal_full_powercut[]]", "1/2 tests collected*"])
    result = project.runpytest_subprocess("-q", "-m", "not durability")
    result.assert_outcomes(
        passed=1, deselected=len(defaults.default_scenarios(matrix.profile("quick"), control_settings))
    )


def test_scenarios_are_offered_as_asked(project: pytest.Pytester) -> None:
    found = [id_of(line) for line in collect("--rig-scenarios", "*-ext4-*_torn", cwd=project.path)]
    assert [one.id for one in matrix.select(["*-ext4-*_torn"])] == found
    assert len(found) > 16
    # pytest takes half a minute for tests of them all.
    assert matrix.all_scenarios() == _offer(project.parseconfig("--rig-scenarios", "all"), [])


MARKED_TEST = f"""
import pytest

@pytest.mark.durability("{SCENARIO}", "*-ext4-wal_extra_t?rn")
def test_ours(durability):
    durability.check()
"""


def test_a_marker_names_the_scenarios_of_its_own_test_and_of_no_other(project: pytest.Pytester) -> None:
    ours = project.makepyfile(test_ours=MARKED_TEST)
    found = collect("--rig-scenarios", "*ext4-wal_off_powercut", cwd=project.path)
    names = [line.partition("::")[2] for line in found]
    assert [
        "test_it[sqlite-ext4-wal_off_powercut]",
        "test_ours[sqlite-ext4-wal_extra_torn]",
        f"test_ours[{SCENARIO}]",
    ] == names
    ours.write_text(MARKED_TEST.replace(SCENARIO, "wal_nromal"))
    result = project.runpytest_subprocess("--collect-only")
    assert pytest.ExitCode.OK != result.ret
    assert "no scenario matches 'wal_nromal'" in result.stdout.str() + result.stderr.str()


def test_without_a_machine_program_the_scenario_is_an_error_and_not_a_failure_and_junit_says_so(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rig that cannot work has not measured a broken promise."""
    empty = project.mkdir("bin")
    monkeypatch.setenv("PATH", str(empty))
    result = project.runpytest_subprocess("-q", "-k", SCENARIO, "--junitxml", "out.xml")
    result.assert_outcomes(
        errors=1, deselected=len(defaults.default_scenarios(matrix.profile("quick"), control_settings)) - 1
    )
    assert "qemu-system-x86_64 is not installed" in result.stdout.str()
    (case,) = ET.parse(project.path / "out.xml").iter("testcase")  # noqa: S314 - our own file
    assert ["error"] == [child.tag for child in case if child.tag != "properties"]


def test_a_sqlite_library_that_is_none_fails_with_a_sentence(project: pytest.Pytester) -> None:
    words = ["-p", "no:xdist", "-p", "no:cacheprovider", "-k", "wal_normal_powercut", "--rig-library=absent.so"]
    # A separate process, because a session inside ours would run its fixtures twice.
    result = project.runpytest_subprocess(*words)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--rig-library: the SQLite library absent.so cannot be read*"])


def test_the_recipe_of_a_program_is_read_before_anything_is_started(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(project.path / "cache"))
    (project.path / "mydb").write_text("#!/bin/sh\n")
    (project.path / "mydb.toml").write_text('package = ["nodejs"]\n')
    call = 'durability_of("./mydb", filesystem="ext4", image="mydb.toml").check()'
    project.makepyfile(test_mydb=f"def test_mydb(durability_of):\n    {call}\n")
    result = project.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider", "test_mydb.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*mydb.toml: unknown key 'package'; there are: name, packages*"])


def test_known_bugs_are_selected_by_that_name_and_may_name_scenarios_of_their_own() -> None:
    found = collect("-k", "known_bug", "tests/durability")
    assert {"tests/durability/test_known_bugs.py"} == {line.partition("::")[0] for line in found}
    scenarios = [id_of(line) for line in found if "[" in line]
    assert ["sqlite-ext4-delete_extra_powercut", "sqlite-ext4-delete_full_powercut"] == scenarios
    assert 5 == len(found)
