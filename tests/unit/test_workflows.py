"""Workflow files: the published schemas accept them, and they name only inputs, scripts and options that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rig.front import cli
from tests.workflows import ROOT, read, ten_lines

CHECK = Path(sys.executable).with_name("check-jsonschema")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATE = ROOT / "templates" / "durability.gitlab-ci.yml"
SCHEMAS = {
    ROOT / "action.yml": "vendor.github-actions",
    TEMPLATE: "vendor.gitlab-ci",
    **dict.fromkeys(WORKFLOWS, "vendor.github-workflows"),
}


def complaints(path: Path, schema: str) -> str:
    done = subprocess.run(
        [CHECK, "--builtin-schema", schema, path], capture_output=True, text=True, check=False, timeout=60
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_the_published_schema_accepts_the_file(path: Path) -> None:
    assert "" == complaints(path, SCHEMAS[path])


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (ROOT / "action.yml", "using: composite", "using: magic"),
        (TEMPLATE, "when: always", "when: never-ever"),
        (WORKFLOWS[0], "runs-on:", "runs-at:"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_schema_notices_a_mistake(path: Path, old: str, new: str, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace(old, new))
    assert copy.read_text() != path.read_text()
    assert complaints(copy, SCHEMAS[path])


def test_workflows_give_the_action_only_inputs_that_it_has() -> None:
    action = read(ROOT / "action.yml")
    used = [
        (path.name, name)
        for path in WORKFLOWS
        for job in read(path)["jobs"].values()
        for step in job["steps"]
        if step.get("uses") == "./"
        for name in step["with"]
    ]
    assert used
    assert [] == [one for one in used if one[1] not in action["inputs"]]
    (job,) = ten_lines(ROOT / "docs" / "how-to" / "ci.md")["jobs"].values()
    assert job["steps"][-1]["with"].keys() <= action["inputs"].keys()


def test_every_input_reaches_the_script_that_measures() -> None:
    """Inputs go through the environment: pasted into a command they would be commands themselves."""
    action = read(ROOT / "action.yml")
    steps = action["runs"]["steps"]
    assert [] == [step["run"] for step in steps if "${{" in step.get("run", "")]
    (measuring,) = [step for step in steps if step["name"] == "Measure"]
    passed = set(re.findall(r"inputs\.([\w-]+)", " ".join(measuring["env"].values())))
    assert action["inputs"].keys() - passed == {"artifact"}
    script = (ROOT / "action" / "night").read_text()
    assert [] == [name for name in measuring["env"] if name not in script]
    # The template for GitLab has the same variables, and no others but where the rig comes from.
    variables = read(TEMPLATE)["durability"]["variables"].keys()
    assert variables - measuring["env"].keys() == {"RIG_REPOSITORY", "RIG_VERSION", "RIG_CACHE"}


def test_the_script_uses_only_options_that_the_commands_have() -> None:
    script = (ROOT / "action" / "night").read_text()
    commands = [cli.main.commands[name] for name in ("run", "merge", "export")]
    known = {word for command in commands for option in command.params for word in option.opts}
    own = re.sub(r"^.*(xargs|sed ).*$|^ *#.*$", "", script, flags=re.MULTILINE)
    used = set(re.findall(r"(?<=[\s(])--[a-z-]+", own))
    assert {"--junit", "--summary", "--baseline", "--history", "--shard", "--retries"} <= used
    assert set() == used - known


def test_scripts_of_the_action_are_sound_and_executable() -> None:
    scripts = sorted((ROOT / "action").iterdir())
    assert ["key", "kvm", "night"] == [path.name for path in scripts]
    for path in scripts:
        assert path.stat().st_mode & 0o111
        assert path.read_text().startswith("#!/usr/bin/env bash\n")
        assert "set -euo pipefail" in path.read_text()
        subprocess.run(["bash", "-n", path], check=True, timeout=60)


def test_the_key_of_the_cache_depends_on_the_code_of_the_rig_alone() -> None:
    keys = {
        subprocess.run(
            [ROOT / "action" / "key"], capture_output=True, text=True, check=True, cwd=cwd, timeout=60
        ).stdout
        for cwd in (ROOT, ROOT / "docs")
    }
    (key,) = keys
    assert re.fullmatch(r"powercut-rig-[0-9a-f]{16}\n", key)
