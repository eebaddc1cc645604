"""The command `rig` on real machines: a run, its report, replays, and what remains when it is stopped."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rig.contract.results import Verdict, VerdictKind
from rig.images.image import Image
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.store import Run
from tests.vm.conftest import MadeOnce

RIG = Path(sys.executable).with_name("rig")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only read
# One honest scenario, and the controls of its group: two that must lose, and an fsync that does nothing.
SCENARIO = "sqlite-ext4-wal_full_powercut"
LOSSY = "sqlite-ext4-delete_off_powercut"
SCENARIOS = (SCENARIO, LOSSY, "sqlite-ext4-wal_off_powercut", "sqlite-ext4-wal_full+eatmydata_powercut")
# Far more than it takes. A child that hangs is asked for its stack before it is killed.
_STOP_LIMIT_S = 90
_MIDDLE_LIMIT_S = 120


def rig(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "140"}
    return subprocess.run(
        [str(RIG), *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


Ran = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def ran(recorder: Template, verifier: Template, made_once: MadeOnce) -> Ran:
    assert recorder.folder.exists()
    assert verifier.folder.exists()

    def fill(folder: Path) -> None:
        done = rig("run", SCENARIO, "--run-dir", "run", cwd=folder)
        (folder / "done.json").write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]))

    folder = made_once("a run", fill)
    return folder / "run", subprocess.CompletedProcess(*json.loads((folder / "done.json").read_text()))


def facts(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {line[:12].strip(): line[13:] for line in result.stdout.splitlines()}


def verdicts(folder: Path, scenario_id: str) -> list[Verdict]:
    found, damaged = Run.open(folder).verdicts(scenario_id)
    assert [] == damaged
    return found


@pytest.mark.representative
def test_a_kept_promise_whose_controls_fired_is_exit_code_0(
    ran: Ran,
) -> None:
    """The controls are measured although they were not requested."""
    folder, result = ran
    assert 0 == result.returncode, result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "measured too" in line]
    assert line.startswith("3 controls are measured too (delete_off, wal_full+eatmydata, wal_off): ")
    assert sorted(SCENARIOS) == sorted(path.name for path in (folder / "scenarios").iterdir())
    answer = " ".join(result.stdout.split())
    assert "Every promise was kept: 1 scenario, " in answer
    assert "Nothing is promised for 2 more scenarios." in answer
    for name, words in {"wal_full": "kept", "delete_off": "nothing promised", "wal_off": "nothing promised"}.items():
        (row,) = [line for line in result.stdout.splitlines() if line.split()[:1] == [name]]
        assert row.rstrip().endswith(words)
    assert 2 == sum("control" in line and "fired" in line for line in result.stdout.splitlines() if "_off" in line)
    assert (
        sum(len(verdicts(folder, scenario)) for scenario in SCENARIOS)
        == pq.read_metadata(folder / "verdicts.parquet").num_rows
    )
    assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.representative
def test_a_run_begins_with_what_decides_its_outcome(
    ran: Ran, recorder: Template, verifier: Template, user_mode: UserMode, image: Image
) -> None:
    lines = ran[1].stderr.splitlines()
    (scope,) = [line for line in lines if line.startswith("4 scenarios from 4 recordings, up to ")]
    assert scope.endswith(": profile quick, device ssd-sata, seed 1, the guest's own builds")
    (digests,) = [line for line in lines if line.startswith("image ")]
    in_user_mode = any(line.startswith("crash states are checked in user-mode machines") for line in lines)
    checking = user_mode.identity if in_user_mode else verifier.identity
    assert image.folder.name in digests
    assert f"templates: recorder {recorder.identity}, verifier {verifier.identity}, checker {checking}; QEMU" in digests
    # How many lines of progress there are depends on how busy the host is.
    assert len([line for line in lines if not line.endswith("judged so far")]) < 9


@pytest.mark.representative
def test_the_same_command_again_measures_nothing_and_says_the_same(
    ran: Ran,
) -> None:
    folder, result = ran
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    again = rig("run", SCENARIO, "--run-dir", folder.name, cwd=folder.parent)
    assert (result.returncode, result.stdout) == (again.returncode, again.stdout)
    assert before == {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.representative
def test_report_rewrites_the_same_bytes(ran: Ran) -> None:
    folder, result = ran
    names = ("report.html", "verdicts.parquet")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    again = rig("report", "--run-dir", folder.name, cwd=folder.parent)
    assert (result.returncode, result.stdout) == (again.returncode, again.stdout)
    assert before == {name: (folder / name).read_bytes() for name in names}


@pytest.mark.representative
def test_advice_rests_on_the_run_and_is_refused_beyond_it(
    ran: Ran,
) -> None:
    """A real run of one strict setting with its controls: that setting is advised, and what is faster is named."""
    folder, _ = ran
    asked = ("advise", "--run-dir", folder.name, "--fault", "powercut", "--max-lost", "0")
    result = rig(*asked, "--format", "json", cwd=folder.parent)
    assert 0 == result.returncode, result.stdout + result.stderr
    told = json.loads(result.stdout)
    assert "wal_full" == told["take"]["settings"]
    measured = Run.open(folder).results([SCENARIO])[0][0]
    (evidence,) = told["take"]["evidence"]
    assert (measured.recording.digest, 0) == (evidence["recording"], evidence["lost_max"])
    assert len({one.exposure for one in measured.verdicts}) == evidence["file_contents"]
    faster = told["next_faster"]
    assert faster["transactions_per_virtual_s"] > told["take"]["transactions_per_virtual_s"]
    assert max(one["lost_max"] for one in faster["evidence"]) > 0
    cut = faster["random_instant"]
    assert 0 < cut["losing"]["value"] <= 1
    assert cut["lost_mean"]["value"] <= cut["lost_max"]
    # Nothing was measured under torn writes, and more was asked for than there is.
    for more in (("--fault", "torn"), ("--exposure", str(evidence["file_contents"] + 1))):
        refused = rig(*asked, *more, cwd=folder.parent)
        assert 3 == refused.returncode, refused.stdout
        assert refused.stdout.startswith("No advice: ")
        assert f"rig run {SCENARIO.removesuffix('powercut')}" in refused.stdout


@pytest.mark.representative
def test_replay_of_a_lost_suffix_shows_the_stored_verdict(
    ran: Ran,
) -> None:
    folder, _ = ran
    lost = [one for one in verdicts(folder, LOSSY) if one.kind is VerdictKind.LOST_SUFFIX]
    wanted = max(lost, key=lambda one: (one.lost, one.acked))
    result = rig("replay", LOSSY, wanted.state, "--run-dir", folder.name, cwd=folder.parent)
    assert 0 == result.returncode, result.stderr
    shown = facts(result)
    assert ("lost-suffix", "lost-suffix") == (shown["verdict"], shown["stored"])
    assert f"{wanted.recovered} transactions" == shown["recovered"]
    assert shown["lost"].startswith(f"{wanted.lost} transactions, ")
    assert wanted.content in shown["state"]


def with_verdicts(folder: Path, like: Path, scenario_id: str, stored: list[Verdict]) -> Path:
    """Return a run with the recording of another run and these verdicts."""
    run, source = Run.create(folder, Run.open(like).definition), Run.open(like)
    scenario = source.scenario(scenario_id)
    run.recording_folder(scenario).parent.mkdir()
    run.recording_folder(scenario).symlink_to(source.recording_folder(scenario))
    run.write_plan(scenario, source.results([scenario_id])[0][0].plan)
    run.append(scenario_id, stored)
    return folder


def test_replay_of_a_state_that_only_stood_for_an_earlier_cut_instant_is_judged_at_that(
    ran: Ran, tmp_path: Path
) -> None:
    folder, _ = ran
    latest: dict[str, int] = {}
    for one in verdicts(folder, LOSSY):
        latest[one.state] = max(one.acked, latest.get(one.state, 0))
    early = [one for one in verdicts(folder, LOSSY) if one.lost and one.acked < latest[one.state]]
    forged = with_verdicts(tmp_path / "run", folder, LOSSY, early[:1])
    result = rig("replay", LOSSY, early[0].state, "--run-dir", forged, cwd=tmp_path)
    assert 0 == result.returncode, result.stderr
    assert early[0].kind == facts(result)["stored"]
    assert f"{early[0].acked} transactions acknowledged" in facts(result)["cut"]


def test_replay_of_a_verdict_that_does_not_reproduce_is_not_green(ran: Ran, tmp_path: Path) -> None:
    folder, _ = ran
    lie = replace(verdicts(folder, SCENARIO)[-1], kind=VerdictKind.CORRUPT, recovered=None)
    forged = with_verdicts(tmp_path / "run", folder, SCENARIO, [lie])
    result = rig("replay", SCENARIO, lie.state, "--run-dir", forged, cwd=tmp_path)
    assert 3 == result.returncode
    assert "the verdict differs from the stored one" in result.stderr
    assert "corrupt" == facts(result)["stored"]


@pytest.mark.parametrize("state", ["nonsense", "e999999.f0", "e1.f9999"])
def test_replay_of_what_is_no_state_is_a_usage_error_that_names_it(state: str, ran: Ran) -> None:
    folder, _ = ran
    result = rig("replay", SCENARIO, state, "--run-dir", folder.name, cwd=folder.parent)
    assert (2, "") == (result.returncode, result.stdout)
    assert f"{state!r} is not a crash state of {SCENARIO}: " in result.stderr
    assert "Traceback" not in result.stderr


def test_replay_of_a_scenario_that_the_run_lacks_names_those_it_has(
    ran: Ran,
) -> None:
    folder, _ = ran
    result = rig("replay", "sqlite-ext4-wal_normal_torn", "e1.f0", "--run-dir", folder.name, cwd=folder.parent)
    assert 3 == result.returncode
    assert f"has no scenario 'sqlite-ext4-wal_normal_torn'; it has: {', '.join(sorted(SCENARIOS))}" in result.stderr


def test_a_run_directory_of_another_run_is_refused_and_the_difference_named(
    ran: Ran,
) -> None:
    folder, _ = ran
    result = rig("run", SCENARIO, "--seed", "2", "--run-dir", folder.name, cwd=folder.parent)
    assert (3, "") == (result.returncode, result.stdout)
    assert "holds another run (it differs in orders); name another folder" in result.stderr


@pytest.mark.representative
def test_controls_that_were_not_run_make_it_inconclusive(ran: Ran, tmp_path: Path) -> None:
    """Reuse the recording of the other run: this tests only the answer."""
    folder, _ = ran
    definition = Run.open(folder).definition
    one = {**definition, "scenarios": [SCENARIO], "orders": {SCENARIO: definition["orders"][SCENARIO]}}
    run = Run.create(tmp_path / "run", one)
    scenario = Run.open(folder).scenario(SCENARIO)
    run.recording_folder(scenario).parent.mkdir()
    run.recording_folder(scenario).symlink_to(Run.open(folder).recording_folder(scenario))
    result = rig("run", SCENARIO, "--no-controls", "--run-dir", run.folder, cwd=tmp_path)
    assert 3 == result.returncode
    assert "control wal_off was not run" in result.stdout
    assert "only what is proven is green" in result.stdout


def test_image_list_names_the_image_and_the_templates(image: Image, recorder: Template, verifier: Template) -> None:
    result = rig("image", "list", cwd=Path.cwd())
    assert (0, "") == (result.returncode, result.stderr)
    lines = [shlex.split(line) for line in result.stdout.splitlines()]
    assert image.digest in [words[2] for words in lines if words[0] == "image"]
    assert {recorder.folder.name, verifier.folder.name} <= {words[1] for words in lines if words[0] == "template"}


def test_doctor_finds_a_host_on_which_the_tests_run_healthy(image: Image) -> None:
    result = rig("doctor", cwd=Path.cwd())
    assert 0 == result.returncode, result.stdout
    assert f"ok   guest image: {image.digest}" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if " KVM: " in line]
    assert line.startswith("ok ") == line.endswith("answered")


def processes_of(folder: Path) -> list[int]:
    """Return the processes that inherited this temporary folder, even if their parents have died."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.fsencode(f"TMPDIR={folder}\0") in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def wait_for(what: str, is_there: object, child: subprocess.Popen[str]) -> None:
    assert callable(is_there)
    deadline = time.monotonic() + _MIDDLE_LIMIT_S
    while not is_there():
        assert child.poll() is None, f"it ended with {child.returncode} before {what}"
        assert time.monotonic() < deadline, f"no {what} within {_MIDDLE_LIMIT_S} s"
        time.sleep(0.02)


STAGES: Sequence[tuple[str, str]] = [("recording", "recordings/*/lock"), ("checking", "scenarios/*/verdicts.jsonl")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("stage", "sign"), STAGES, ids=[stage for stage, _ in STAGES])
def test_a_run_that_is_stopped_ends_at_once_and_leaves_nothing(
    number: signal.Signals, stage: str, sign: str, tmp_path: Path, ran: tuple[Path, object]
) -> None:
    assert ran[0].exists()  # so that the templates exist
    scratch, run = tmp_path / "tmp", tmp_path / "run"
    scratch.mkdir()
    shared_memory = set(SHARED_MEMORY.iterdir())
    command: list[str | Path] = [RIG, "run", *SCENARIOS[:2], "--no-controls", "--run-dir", run]
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        wait_for(stage, lambda: any(run.glob(sign)) and len(processes_of(scratch)) > 1, child)
        child.send_signal(number)
        try:
            stdout, stderr = child.communicate(timeout=_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGABRT)
            pytest.fail(f"not stopped after {_STOP_LIMIT_S} s: {child.communicate()[1]}")
    assert (3, "") == (child.returncode, stdout), stderr
    assert "stopped; what was measured is kept" in stderr
    assert "Traceback" not in stderr
    assert [] == processes_of(scratch)
    assert set() == set(SHARED_MEMORY.iterdir()) - shared_memory
    assert [] == list(scratch.rglob("*"))
    known = {"lock", "log-a.zst", "trace-a.zst", "facts.json", "plan.json", "verdicts.jsonl", "manifest.json"}
    assert [] == [path for path in run.rglob("*") if path.is_file() and path.name not in known]
    if stage == "checking":
        found = [verdict for scenario in SCENARIOS[:2] for verdict in Run.open(run).verdicts(scenario)[0]]
        assert found
        assert all(not verdict.kind.is_infrastructure for verdict in found), "a stopped run is not a verdict"


_PROMISE = """
import pytest

def test_that_nothing_is_lost(durability):
    if durability.row.judgement.result != "kept":
        pytest.fail(durability.text(), pytrace=False)
"""


def test_a_broken_promise_fails_its_test_with_a_line_to_paste_that_shows_it_again(ran: Ran, tmp_path: Path) -> None:
    """On two workers: an fsync that does nothing breaks the promise of WAL/FULL, and a kept promise passes."""
    (tmp_path / "test_it.py").write_text(_PROMISE)
    # The controls were measured already; the two scenarios are measured here.
    shutil.copytree(ran[0] / "recordings", tmp_path / "a run" / "recordings")
    for control in SCENARIOS[1:3]:
        shutil.copytree(ran[0] / "scenarios" / control, tmp_path / "a run" / "scenarios" / control)
    words = [
        "-q",
        "-n",
        "2",
        "--rig-scenarios",
        "*-ext4-wal_full[+_][ep]*ercut",
        "--rig-run-dir",
        "a run",
        "--junitxml",
        "out.xml",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == result.returncode, result.stdout
    assert "1 failed, 1 passed" in result.stdout
    lines = [line.strip() for line in result.stdout.splitlines()]
    replays = [line for line in lines if line.startswith("rig replay ")]
    assert replays
    broken = "sqlite-ext4-wal_full+eatmydata_powercut"
    for line in replays:
        _, _, scenario, _, option, folder = shlex.split(line, comments=True)
        assert (broken, "--run-dir", str(tmp_path / "a run")) == (scenario, option, folder)
        kind, _, difference = line.partition("  # ")[2].partition(", ")
        assert VerdictKind(kind) is not VerdictKind.DURABLE
        assert difference.partition(": ")[2], "the first difference, or the engine's words"
    environment = {**os.environ, "PATH": f"{RIG.parent}{os.pathsep}{os.environ['PATH']}"}
    pasted = subprocess.run(
        ["sh", "-c", replays[0]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == pasted.returncode, pasted.stderr
    kind = replays[0].partition("  # ")[2].partition(",")[0]
    assert kind == facts(pasted)["verdict"] == facts(pasted)["stored"]
    cases = ET.parse(tmp_path / "out.xml").iter("testcase")  # noqa: S314 - our own file
    found = {}
    for case in cases:
        figures = {one.get("name"): one.get("value") for one in case.iter("property")}
        found[figures["result"]] = figures
    assert {"kept", "broken"} == set(found)
    assert int(found["kept"]["states"] or 0) > 100
    assert "0" == found["kept"]["lost_max"]
    assert int(found["broken"]["lost_max"] or 0) > 0
    assert found["kept"]["recording"] != found["broken"]["recording"]
