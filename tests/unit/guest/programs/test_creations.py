"""A user's program that is made many times: each directory counts as one transaction, and one that fails is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rig.contract.findings import FindingKind
from rig.engines.own import Task
from rig.engines.program import driver
from rig.guest.programs import creations
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from tests.leaks import as_if_the_process_ended

COUNT = 3
_PROGRAM = """#!/bin/sh
if [ "$1" = recover ]; then
    [ -s header ] || { echo no header >&2; exit 3; }
    echo recovered >> ../recoveries
    sed 's/^/have /' log
    exit
fi
[ "$5" = 1 ] || exit 4
echo "seed $3" > header
echo 1 >> log
echo "ack 1"
read -r ok
echo "$ok" > left
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    """Give a program that was made in each directory."""
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    monkeypatch.setattr(creations, "_WHOLE", set())
    (tmp_path / "program").write_text(_PROGRAM)
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "data").mkdir()
    made = Task({"library": "program", "promise": "durable"}, str(tmp_path / "data"), 7, COUNT)
    with as_if_the_process_ended():
        creations.make_directories(made)
        session = creations.Creations(driver, start, made)
        for number in range(1, COUNT + 1):
            session.commit(number)
        session.close()
        yield made
        kill_children()


def start(directory: str, arguments: Sequence[str]) -> Child:
    return Child(arguments, directory, is_confined=False)


def test_a_program_is_made_acknowledged_and_left_in_each_directory_with_a_seed_of_its_own(task: Task) -> None:
    folders = [Path(task.directory, str(number)) for number in range(1, COUNT + 1)]
    assert ["ok\n"] * COUNT == [(folder / "left").read_text() for folder in folders]
    assert [f"seed {seed}\n" for seed in (8, 9, 10)] == [(folder / "header").read_text() for folder in folders]
    found = creations.recovered(driver, start, task)
    assert (FindingKind.PREFIX, COUNT, "") == (found.kind, found.recovered, found.detail)


@pytest.mark.parametrize(
    ("harm", "kind", "recovered", "words"),
    [
        (lambda data: (data / "3" / "header").write_text(""), FindingKind.UNOPENABLE, None, "in directory 3 it ended"),
        (lambda data: (data / "3" / "log").write_text(""), FindingKind.PREFIX, 2, ""),
        (lambda data: shutil.rmtree(data / "2"), FindingKind.UNOPENABLE, None, "directory 2 is gone"),
        (lambda data: emptied(data / "3"), FindingKind.PREFIX, 2, ""),
        (lambda data: emptied(data / "1"), FindingKind.HOLE, None, "transaction 1 is missing before 3"),
        (lambda data: (data / "2" / "log").write_text("2\n"), FindingKind.FOREIGN, None, "in directory 2: it has"),
    ],
    ids=["header lost", "transaction lost", "directory lost", "nothing made", "acknowledged lost", "strange"],
)
def test_what_a_cut_of_a_creation_left_is_told_by_directory(
    task: Task, harm: Callable[[Path], object], kind: FindingKind, recovered: int | None, words: str
) -> None:
    harm(Path(task.directory))
    found = creations.recovered(driver, start, task)
    assert (kind, recovered) == (found.kind, found.recovered)
    assert words in found.detail


def test_a_directory_with_the_same_content_is_asked_about_once(task: Task) -> None:
    asked = Path(task.directory, "recoveries")
    creations.recovered(driver, start, task)
    # Each recovery is made twice.
    assert 2 * COUNT == len(asked.read_text().split())
    Path(task.directory, "2", "more").write_text("")
    creations.recovered(driver, start, task)
    assert 2 * COUNT + 2 == len(asked.read_text().split())


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
