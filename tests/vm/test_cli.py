"""The command `rig` on real machines: a run, its report, replays, and what is left when it is stopped."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rig.results import Verdict, VerdictKind
from rig.store import Run
from rig.vm.image import Image
from rig.vm.template import Template

RIG = Path(sys.executable).with_name("rig")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written to
# One honest cell, the controls of its group, and an fsync that does nothing.
CELL = "sqlite-ext4-wal_full_powercut"
LOSSY = "sqlite-ext4-delete_off_powercut"
CELLS = (CELL, LOSSY, "sqlite-ext4-wal_off_powercut")
_STOP_LIMIT_S = 15
_MIDDLE_LIMIT_S = 120


def rig(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "140"}
    return subprocess.run(
        [RIG, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def ran(
    recorder: Template, verifier: Template, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    assert recorder.folder.exists()
    assert verifier.folder.exists()
    folder = tmp_path_factory.mktemp("a run") / "run"
    return folder, rig("run", *CELLS, "--run-dir", folder, cwd=folder.parent)


def facts(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {line[:12].strip(): line[13:] for line in result.stdout.splitlines()}


def verdicts(folder: Path, cell: str) -> list[Verdict]:
    found, damaged = Run.open(folder).verdicts(cell)
    assert [] == damaged
    return found


def test_a_kept_promise_whose_controls_fired_is_exit_code_0(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = ran
    assert 0 == result.returncode, result.stdout + result.stderr
    assert "Every promise was kept: 3 scenarios" in result.stdout
    for name in ("wal_full", "delete_off", "wal_off"):
        (row,) = [line for line in result.stdout.splitlines() if line.split()[:1] == [name]]
        assert row.split()[-1] == "kept"
    assert 2 == sum("control" in line and "fired" in line for line in result.stdout.splitlines() if "_off" in line)
    assert sum(len(verdicts(folder, cell)) for cell in CELLS) == pq.read_metadata(folder / "verdicts.parquet").num_rows
    assert (folder / "report.html").stat().st_size > 10_000


def test_the_same_command_again_measures_nothing_and_says_the_same(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = ran
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    again = rig("run", *CELLS, "--run-dir", folder, cwd=folder.parent)
    assert (result.returncode, result.stdout) == (again.returncode, again.stdout)
    assert before == {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_report_rewrites_the_same_bytes(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, result = ran
    names = ("report.html", "verdicts.parquet")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    again = rig("report", "--run-dir", folder, cwd=folder.parent)
    assert (result.returncode, result.stdout) == (again.returncode, again.stdout)
    assert before == {name: (folder / name).read_bytes() for name in names}


def test_replay_of_a_lost_suffix_shows_the_stored_verdict(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = ran
    lost = [one for one in verdicts(folder, LOSSY) if one.kind is VerdictKind.LOST_SUFFIX]
    wanted = max(lost, key=lambda one: (one.lost, one.acked))
    result = rig("replay", LOSSY, wanted.state, "--run-dir", folder, cwd=folder.parent)
    assert 0 == result.returncode, result.stderr
    shown = facts(result)
    assert ("lost-suffix", "lost-suffix") == (shown["verdict"], shown["stored"])
    assert f"{wanted.recovered} transactions" == shown["recovered"]
    assert shown["lost"].startswith(f"{wanted.lost} transactions, ")
    assert wanted.content in shown["state"]


def test_replay_of_a_state_that_only_stood_for_a_cut_instant_finds_its_stored_verdict(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """It was judged earlier than the last instant at which it is legal, when less was acknowledged."""
    folder, _ = ran
    by_state: dict[str, list[Verdict]] = {}
    for one in verdicts(folder, LOSSY):
        by_state.setdefault(one.state, []).append(one)
    instants = [same for same in by_state.values() if all(one.instant_weight_ns for one in same)]
    assert instants, "every cut instant is a planned state as well"
    for same in instants[:2]:
        result = rig("replay", LOSSY, same[0].state, "--run-dir", folder, cwd=folder.parent)
        assert 0 == result.returncode, result.stderr
        assert same[0].kind == facts(result)["stored"]


def test_replay_of_a_verdict_that_does_not_reproduce_is_not_green(
    ran: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, _ = ran
    stored = verdicts(folder, CELL)
    lie = replace(stored[-1], kind=VerdictKind.CORRUPT, recovered=None)
    forged = Run.create(tmp_path / "run", Run.open(folder).definition)
    scenario = Run.open(folder).scenario(CELL)
    recording = forged.recording_folder(scenario)
    recording.parent.mkdir()
    recording.symlink_to(Run.open(folder).recording_folder(scenario))
    forged.write_plan(scenario, Run.open(folder).results([CELL])[0][0].plan)
    forged.append(CELL, [lie])
    result = rig("replay", CELL, lie.state, "--run-dir", forged.folder, cwd=tmp_path)
    assert 3 == result.returncode
    assert "the verdict differs from the stored one" in result.stderr
    assert "corrupt" == facts(result)["stored"]


@pytest.mark.parametrize("state", ["nonsense", "e999999.f0", "e1.f9999"])
def test_replay_of_what_is_no_state_is_a_usage_error_that_names_it(
    state: str, ran: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    folder, _ = ran
    result = rig("replay", CELL, state, "--run-dir", folder, cwd=folder.parent)
    assert (2, "") == (result.returncode, result.stdout)
    assert f"{state!r} is no crash state of {CELL}: " in result.stderr
    assert "Traceback" not in result.stderr


def test_replay_of_a_cell_that_the_run_lacks_names_those_it_has(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = ran
    result = rig("replay", "sqlite-ext4-wal_normal_torn", "e1.f0", "--run-dir", folder, cwd=folder.parent)
    assert 3 == result.returncode
    assert f"has no cell 'sqlite-ext4-wal_normal_torn'; it has: {', '.join(sorted(CELLS))}" in result.stderr


def test_a_run_directory_of_another_run_is_refused_and_the_difference_named(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = ran
    result = rig("run", *CELLS, "--seed", "2", "--run-dir", folder, cwd=folder.parent)
    assert (3, "") == (result.returncode, result.stdout)
    assert "holds another run (it differs in orders); name another folder" in result.stderr


def test_controls_that_were_not_run_make_it_inconclusive(
    ran: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The recording is taken from the other run: what is at stake is the answer."""
    folder, _ = ran
    definition = Run.open(folder).definition
    one = {**definition, "cells": [CELL], "orders": {CELL: definition["orders"][CELL]}}
    run = Run.create(tmp_path / "run", one)
    scenario = Run.open(folder).scenario(CELL)
    run.recording_folder(scenario).parent.mkdir()
    run.recording_folder(scenario).symlink_to(Run.open(folder).recording_folder(scenario))
    result = rig("run", CELL, "--run-dir", run.folder, cwd=tmp_path)
    assert 3 == result.returncode
    assert "control wal_off was not run" in result.stdout
    assert "what is not proven is not green" in result.stdout


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
    """The processes that inherited this temporary folder, whatever became of their parents."""
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


STAGES: Sequence[tuple[str, str]] = [("recording", "recordings/*/lock"), ("checking", "cells/*/verdicts.jsonl")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("stage", "sign"), STAGES, ids=[stage for stage, _ in STAGES])
def test_a_run_that_is_stopped_ends_at_once_and_leaves_nothing(
    number: signal.Signals, stage: str, sign: str, tmp_path: Path, recorder: Template, verifier: Template
) -> None:
    assert recorder.folder.exists()
    assert verifier.folder.exists()
    scratch, run = tmp_path / "tmp", tmp_path / "run"
    scratch.mkdir()
    shared_memory = set(SHARED_MEMORY.iterdir())
    command = [RIG, "run", *CELLS[:2], "--run-dir", run]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        wait_for(stage, lambda: any(run.glob(sign)) and len(processes_of(scratch)) > 1, child)
        begin_s = time.monotonic()
        child.send_signal(number)
        stdout, stderr = child.communicate(timeout=60)
        took_s = time.monotonic() - begin_s
    assert (3, "") == (child.returncode, stdout), stderr
    assert "stopped; what was measured is kept" in stderr
    assert "Traceback" not in stderr
    assert took_s < _STOP_LIMIT_S
    assert [] == processes_of(scratch)
    assert set() == set(SHARED_MEMORY.iterdir()) - shared_memory
    assert [] == list(scratch.rglob("*"))
    known = {"lock", "log.zst", "facts.json", "plan.json", "verdicts.jsonl", "manifest.json"}
    assert [] == [path for path in run.rglob("*") if path.is_file() and path.name not in known]
    if stage == "checking":
        found = [verdict for cell in CELLS[:2] for verdict in Run.open(run).verdicts(cell)[0]]
        assert found
        assert all(not verdict.kind.is_infrastructure for verdict in found), "being stopped is nobody's verdict"
