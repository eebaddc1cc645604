"""Workflow files as GitHub reads them: the steps of our action with the inputs of a workflow, run here by bash."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
_LIMIT_S = 900


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


@dataclass(frozen=True)
class StepsRun:
    """What the steps of the action did, up to the first that failed."""

    returncode: int
    output: str
    # What GitHub shows below the step.
    summary: str

    @property
    def annotations(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith(("::error", "::warning"))]


def ten_lines(page: Path) -> Any:
    """The workflow that a page tells users to write."""
    (text,) = re.findall(r"^```yaml\n# \.github/workflows/\S+\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(text.splitlines()) == 10
    return YAML(typ="safe").load(text)


def run_action(inputs: Mapping[str, str], repository: Path, **environment: str) -> StepsRun:
    """Run the steps of action.yml that are commands, in a repository, with the inputs of a workflow."""
    action = read(ROOT / "action.yml")
    unknown = inputs.keys() - action["inputs"].keys()
    assert not unknown
    values = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | dict(inputs)
    files = {name: repository.parent / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.write_text("")
    # Under `make test` the inner make would inherit flags.
    own = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    github = {"GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT), **{k: str(v) for k, v in files.items()}}
    output, code = "", 0
    for step in action["runs"]["steps"]:
        if "run" not in step:
            assert "uses" in step
            continue
        of_step = {name: _resolved(str(value), values) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", _resolved(step["run"], values)],
            cwd=repository, env=own | github | environment | of_step, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=_LIMIT_S,
        )  # fmt: skip
        output += done.stdout
        if code := done.returncode:
            break
    return StepsRun(code, output, files["GITHUB_STEP_SUMMARY"].read_text())


def _resolved(text: str, inputs: Mapping[str, str]) -> str:
    """Fill in the inputs; any other expression would need GitHub, so the commands must not have one."""
    filled = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], text)
    assert "${{" not in filled, filled
    return filled
