"""The options of the commands: one name for one thing, declared once if several commands share it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rig.contract.errors import UsageError
from rig.front.cli import main
from rig.front.options import tuning_of
from tests.unit.house import ROOT, tree_of

FRONT = ROOT / "rig" / "front"


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{prefix}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")


def own_options() -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each option that a command declares for itself."""
    for path in sorted(FRONT.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.option":
                yield path.stem, ast.literal_eval(node.args[0]).partition("/")[0]


def test_an_option_of_several_commands_is_declared_among_the_shared() -> None:
    users = defaultdict(set)
    for name, command in commands(main):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                users[parameter.opts[0]].add(name)
    shared = {option for option, names in users.items() if len(names) > 1}
    assert {"--pause-ms", "--tune", "--run-dir", "--device", "--seed", "--fs"} <= shared
    own = list(own_options())
    assert ("speed", "--json") in own
    assert [] == [(module, option) for module, option in own if option in shared]


def test_a_shared_option_is_the_same_argument_of_every_function() -> None:
    parameters = defaultdict(set)
    for _, command in commands(main):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                parameters[parameter.opts[0]].add((parameter.type.name, parameter.metavar, parameter.is_flag))
    assert {} == {option: kinds for option, kinds in parameters.items() if len(kinds) > 1}


@pytest.mark.parametrize(("old", "value"), [("--think-ms", "5"), ("--set", "page_size=1024")])
@pytest.mark.parametrize("command", ["run", "sweep", "speed"])
def test_an_old_name_is_a_usage_error(command: str, old: str, value: str) -> None:
    result = CliRunner().invoke(main, [command, old, value])
    assert (2, True) == (result.exit_code, f"No such option {old!r}" in result.stderr.replace(":", ""))


@pytest.mark.parametrize("command", [["run"], ["sweep", "x"], ["speed"]])
def test_each_command_refuses_a_tuning_of_another_form(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--tune", "page_size"])
    assert (2, True) == (result.exit_code, "--tune page_size: a tuning is NAME=VALUE" in result.stderr)


@pytest.mark.parametrize("word", ["wal_autocheckpoint", "=5", "page_size="])
def test_a_tuning_needs_a_name_and_a_value(word: str) -> None:
    with pytest.raises(UsageError, match="a tuning is NAME=VALUE"):
        tuning_of([word])


def test_a_tuning_may_hold_an_equals_sign() -> None:
    assert {"a": "b=c"} == tuning_of(["a=b=c"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "2", "--workers", "2"], "--jobs, --workers and --dask each say where machines run"),
        (["--dask", "tcp://127.0.0.1:1"], "no Dask scheduler answers at tcp://127.0.0.1:1"),
    ],
    ids=["two places", "no scheduler"],
)
def test_machines_run_in_one_place_that_exists(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    result = CliRunner().invoke(main, ["run", *words])
    assert (2, True) == (result.exit_code, message in result.stderr), result.output
    assert [] == list(tmp_path.rglob("*.json"))
