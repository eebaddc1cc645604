"""A night in CI on real machines: the action in a stranger's repository, a baseline, and shards that make one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.results import Verdict
from rig.images.image import Image
from rig.machines.template import Template
from rig.store import Run
from tests.workflows import ROOT, StepsRun, run_action, ten_lines

RIG = Path(sys.executable).with_name("rig")
SCENARIO = "sqlite-ext4-wal_full_powercut"
PROGRAM = "program-ext4-durable_powercut"
# A log of lines, each synced before it is acknowledged.
_MYDB = """#!/bin/sh
if [ "$1" = recover ]; then
    [ -e log ] || exit 0
    n=0
    while read -r line; do n=$((n + 1)); [ "$line" = "$n" ] && echo "have $n"; done < log
    exit 0
fi
i=0
while [ $i -lt "$5" ]; do
    i=$((i + 1))
    echo $i >> log
    sync -d log
    echo "ack $i"
    read -r ok
done
"""
_FEW = ("--profile", "smoke")
_LIMIT_S = 900


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository outside this one, with a program, and the ten lines of the manual."""
    folder = tmp_path_factory.mktemp("outside") / "repository"
    folder.mkdir()
    write_program(folder, _MYDB)
    return folder


def write_program(folder: Path, text: str) -> None:
    (folder / "mydb").write_text(text)
    (folder / "mydb").chmod(0o755)


def night(repository: Path, cache: Path, number: int, *, seed: int = 1, update: bool = False) -> StepsRun:
    """Run the action as the workflow of the manual does, but with a quick look, each night in a fresh checkout."""
    (job,) = ten_lines(ROOT / "docs" / "how-to" / "ci.md")["jobs"].values()
    inputs = dict(job["steps"][-1]["with"])
    assert ["actions/checkout@v4"] == [step["uses"] for step in job["steps"][:-1]]
    inputs |= {"profile": "smoke", "results": f"night-{number}", "update-baseline": str(update).lower()}
    inputs["run"] += f" --workload own --no-explain --seed {seed}"
    inputs["history"] = "history"
    return run_action(inputs, repository, RIG_CACHE=str(cache))


def cases(repository: Path, number: int) -> dict[str, ET.Element]:
    root = ET.parse(repository / f"night-{number}" / "junit.xml")  # noqa: S314 - our own file
    return {str(case.get("name")): case for case in root.iter("testcase")}


def test_a_strangers_nights_are_green_until_a_sync_is_removed(repository: Path, cache: Path) -> None:
    # Without a baseline nothing can be worse: the night writes one, and has no answer.
    first = night(repository, cache, 1)
    assert 3 == first.returncode, first.output
    assert [True] == [line.startswith("::warning title=No baseline yet::") for line in first.annotations]
    assert "No baseline yet: " in first.summary
    known = json.loads((repository / "durability.json").read_text())
    assert [f"{PROGRAM} of mydb"] == list(known["scenarios"])
    assert known == json.loads((repository / "night-1" / "durability.json").read_text())
    # The next night measures with another seed: another recording, other crash states, the same program.
    second = night(repository, cache, 2, seed=2)
    assert (0, []) == (second.returncode, second.annotations), second.output
    assert "Nothing got worse." in second.output
    assert second.summary.startswith("### Nothing got worse.")
    assert f"| {PROGRAM.split('-')[2].removesuffix('_powercut')} |" in second.summary
    assert [] == list(cases(repository, 2)[PROGRAM].iter("failure"))
    assert not (repository / "night-2" / "evidence").exists()
    write_program(repository, _MYDB.replace("    sync -d log\n", ""))
    third = night(repository, cache, 3)
    assert 1 == third.returncode, third.output
    (worse,) = third.annotations
    assert worse.startswith(f"::error title={PROGRAM}::worse: promise: broken; the baseline has kept; ")
    assert f"rig replay {PROGRAM} " in worse
    failed = {
        name for name, case in cases(repository, 3).items() if list(case.iter("failure")) or list(case.iter("error"))
    }
    assert {PROGRAM} == failed
    evidence = repository / "night-3" / "evidence"
    assert failed == {folder.name for folder in evidence.iterdir()}
    assert all((evidence / name / "disk.img.gz").exists() for name in failed)
    assert third.summary.startswith("### Worse than the baseline: ")
    shown = rig("history", "--history", "history", cwd=repository)
    assert f"{PROGRAM} of mydb changed on " in shown.stdout
    assert ": kept -> broken; " in shown.stdout


def rig(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RIG, *words], cwd=cwd, env={**os.environ, "COLUMNS": "140"}, capture_output=True, text=True, check=False,
        timeout=_LIMIT_S,
    )  # fmt: skip


def rows(run: Run, scenario_id: str) -> set[Verdict]:
    """The verdicts, but for which of several equal states the database was opened on: that depends on the machines."""
    return {replace(one, opened=False) for one in run.verdicts(scenario_id)[0]}


def test_merged_shards_equal_a_run_on_one_machine(
    tmp_path: Path, image: Image, recorder: Template, verifier: Template
) -> None:
    assert all(one.folder.exists() for one in (image, recorder, verifier))
    for number in (1, 2):
        words = ("run", SCENARIO, *_FEW, "--shard", f"{number}/2", "--run-dir", f"shard-{number}")
        done = rig(*words, cwd=tmp_path)
        assert 0 == done.returncode, done.stdout + done.stderr
        assert f"shard {number}/2: 2 scenarios measured" in done.stdout
    alone = rig("merge", "shard-1", "--run-dir", "alone", cwd=tmp_path)
    assert 3 == alone.returncode, alone.stdout
    assert "shard 2/2 is missing" in alone.stderr
    merged = rig("merge", "shard-1", "shard-2", "--run-dir", "merged", cwd=tmp_path)
    assert 0 == merged.returncode, merged.stdout + merged.stderr
    whole = rig("run", SCENARIO, *_FEW, "--run-dir", "whole", cwd=tmp_path)
    ours, theirs = (Run.open(tmp_path / name) for name in ("whole", "merged"))
    facts = [{one.scenario.id: one.recording for one in run.results()[0]} for run in (ours, theirs)]
    # On a busy host a race in QEMU can make a recording differ (`rig.campaign.record`).
    ids = {name for name in ours.definition["scenarios"] if facts[0][name] == facts[1][name]}
    assert 2 * len(ids) >= len(facts[0])
    assert {name: rows(ours, name) for name in ids} == {name: rows(theirs, name) for name in ids}
    if len(ids) < len(facts[0]):
        return
    table = [line for line in whole.stdout.splitlines() if not line.startswith("report: ")]
    assert table == [line for line in merged.stdout.splitlines() if not line.startswith("report: ")]
    same = rig("compare", "whole", "merged", cwd=tmp_path)
    assert 0 == same.returncode, same.stdout
