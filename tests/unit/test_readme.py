"""The commands that README.md tells people to run exist, and CI runs the same."""

from __future__ import annotations

import re

from tests.unit.house import ROOT


def readme_commands() -> list[str]:
    """The lines of the fenced sh blocks, continued lines joined, without prompts and comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.strip() and not line.startswith("#")]


def goals() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_goal_in_the_readme_exists_and_the_two_commands_are_there() -> None:
    named = {goal for line in readme_commands() for goal in re.findall(r"\bmake ([a-z][\w-]*)", line)}
    assert {"run", "test"} <= named
    assert named - goals() == set()


def test_every_rig_command_in_the_readme_exists() -> None:
    from rig.front.cli import main

    named = {verb for line in readme_commands() for verb in re.findall(r"(?:^|[\s/;&'\"])rig ([a-z][\w-]*)", line)}
    assert named, "the README names no rig command"
    assert named - set(getattr(main, "commands", {})) == set()


def test_what_ci_runs_is_what_the_readme_tells_people_to_run() -> None:
    scripts = sorted((ROOT / ".ci").iterdir())
    assert ["as-user", "check", "login", "run"] == [path.name for path in scripts]
    assert "for goal in test rest; do" in (ROOT / ".ci" / "check").read_text()
    makefile = (ROOT / "Makefile").read_text()
    # Together the two have the tests in machines that `make test-all` has.
    assert re.search(r"^test: lint unit representative\b", makefile, re.MULTILINE)
    assert re.search(r"^test-all: lint unit machines\b", makefile, re.MULTILINE)
    assert ["-m representative", "-m 'not representative'", ""] == [
        words.strip()
        for words in re.findall(r"PYTEST\) --durations \d+ (.*)tests/vm tests/durability$", makefile, re.MULTILINE)
    ]
    for path in (*scripts, ROOT / "bootstrap.sh"):
        assert path.stat().st_mode & 0o111, path
