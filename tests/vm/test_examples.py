"""The examples of programs: from a clean clone to a verdict by the commands of their READMEs.

One that is compiled on the host, one that its recipe builds, and one with an image of its own stand for all. Of the one
in JavaScript the image and the answers are tested.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rig.campaign.record import record
from rig.contract.errors import UsageError
from rig.front import programs
from rig.images import image as vm_image
from rig.images import recipes
from rig.machines.guests import guests
from rig.recordings.timeline import Timeline
from tests.unit import wheels
from tests.unit.docs.test_readme import commands
from tests.vm.samples import findings, open_recording
from tests.vm.test_program import ROOT, durable_at, scenario_of, shell

NODELOG = ROOT / "examples" / "nodelog"
_OWN, _BOTH = ("",), ("", ".creation")


@pytest.mark.parametrize(
    ("name", "workloads"),
    [
        pytest.param("kvlog", _BOTH, marks=pytest.mark.representative),
        ("javalog", _OWN),
        ("rustlog", _OWN),
    ],
)
def test_an_example_keeps_its_promise_by_the_commands_of_its_readme(
    name: str, workloads: tuple[str, ...], cache: Path, tmp_path: Path
) -> None:
    clone = wheels.clone(tmp_path / "clone")
    (clone / ".venv").symlink_to(Path(sys.executable).parents[1])
    prepare, *others = commands((clone / "examples" / name / "README.md").read_text())
    # It has made the environment and the image before any test in machines begins.
    assert "make image" == prepare
    printed = ""
    for command in others:
        # The same with fewer states.
        looks = "rig run" in command and "--profile" not in command
        done = shell(cache, clone, f"{command} --profile smoke" if looks else command)
        assert 0 == done.returncode, done.stdout + done.stderr
        printed = done.stdout
    assert f"Every promise was kept: {len(workloads)} scenario" in printed
    for workload in workloads:
        assert f"control durable_atomic{workload}+eatmydata (powercut) fired: every sync is swallowed" in printed


def test_a_script_for_another_interpreter_runs_in_the_image_of_its_recipe_with_the_files_beside_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))
    made = vm_image.build(recipes.of_file(NODELOG / "recipe.toml").recipe)
    chosen = programs.select(str(NODELOG / "nodelog"), "ext4", (), None, NODELOG / "recipe.toml")
    scenario = scenario_of(chosen.build, 1)
    with guests([chosen.build]) as source:
        machines = source.of(scenario)
        assert made.folder.name == machines.recorder.image == machines.verifier.image
        recording = record(scenario, machines.recorder, tmp_path)
        with open_recording(recording) as (_, log):
            # The emulated interpreter takes seconds to start.
            states = [durable_at(log, ack.entry_index) for ack in Timeline(log.marks).acks[3::5]]
            found = findings(scenario, machines.checker, log, states)
    assert scenario.tuning["image"] == recording.facts.settings["image"]
    assert [("prefix", 4), ("prefix", 9)] == [(one.kind, one.recovered) for one in found], found
    without = programs.select(str(NODELOG / "nodelog"), "ext4", (), None)
    words = "a script for /usr/bin/node, which the guest does not have"
    with guests([without.build]) as source, pytest.raises(UsageError, match=words):
        source.of(scenario_of(without.build, 1))
