"""A dry run of a user's program names each mistake of an adapter, and which files it changes and syncs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.campaign.rehearsal import ProgramStep
from rig.contract.messages import decode
from rig.engines import engine_named
from rig.engines.program import driver
from rig.front.rehearsal import is_wrong, report
from rig.guest.watch import rehearsal
from rig.planning import matrix
from tests.leaks import as_if_the_process_ended

_PROGRAM = """#!/usr/bin/python3
import os, sys
if sys.argv[1] == "run":
    after = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    with open("log", "a") as log:
        {sync_folder}
        for number in range(after + 1, int(sys.argv[5]) + 1):
            print(number, file=log, flush=True)
            {sync}
            print("ack", number, flush=True)
            {wait}
else:
    {recover}
"""
_GOOD = {
    "sync_folder": "os.fsync(os.open('.', os.O_RDONLY))",
    "sync": "os.fsync(log.fileno())",
    "wait": "input()",
    "recover": "print(''.join('have ' + line for line in open('log')), end='')",
}


@pytest.fixture
def rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[ProgramStep]]]:
    """Rehearse a program that differs from the good one in the parts that are given."""
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    scenario = next(iter(matrix.scenarios_of([engine_named("program")])))
    workload = replace(scenario.workload, transaction_count=3)
    orders = replace(scenario, tuning={"library": "program"}, workload=workload).orders

    def rehearse(**parts: str) -> list[ProgramStep]:
        (tmp_path / "program").write_text(_PROGRAM.format(**{**_GOOD, **parts}))
        (tmp_path / "program").chmod(0o755)
        told = rehearsal.steps(orders, tmp_path / "rehearsal", is_confined=False)
        return [decode(ProgramStep, step) for step in told]

    with as_if_the_process_ended():
        yield rehearse


def test_a_good_program_is_carried_out_recovers_works_on_and_recovers(
    rehearsed: Callable[..., list[ProgramStep]],
) -> None:
    steps = rehearsed()
    assert ["ack 1 to 3", "have 1 to 3, twice", "ack 4 to 6", "have 1 to 6, twice"] == [step.answer for step in steps]
    assert not is_wrong(steps)
    lines = report(steps)
    assert "  log: made once, changed 3 times, synced 3 times" in lines
    assert "  .: synced once" in lines
    assert lines[-1].startswith("the program keeps to the protocol")
    assert not [line for line in lines if line.startswith("note")]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"wait": "pass"}, "went on after transaction 1 without waiting for `ok`"),
        ({"wait": "input(); print('done')"}, "said 'done' where `ack 2` was due"),
        ({"sync": "raise ValueError('page 7')"}, "exit code 1 before it had said `ack 1`; it said: Traceback"),
        ({"recover": "print('have 1')"}, "found transactions 1 to 1 where 1 to 3 were acknowledged"),
        ({"recover": "print('yes')"}, "answered 'yes', which is neither"),
        ({"recover": "sys.exit('no header')"}, "ended with exit code 1; it said: no header"),
        ({"recover": "print('have 1\\nhave 3')"}, "is hole where 1 to 3 were acknowledged"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_step_and_ends_the_dry_run(
    rehearsed: Callable[..., list[ProgramStep]], parts: dict[str, str], words: str
) -> None:
    steps = rehearsed(**parts)
    assert is_wrong(steps)
    assert report(steps)[-1].startswith(f"wrong: `{steps[-1].name}`: it ")
    assert words in report(steps)[-1]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"sync": "pass", "sync_folder": "pass"}, "note: it never syncs a file"),
        ({"sync": "pass"}, "note: log is changed and never synced"),
        ({"sync_folder": "pass"}, "note: it makes files and never syncs their directory"),
        ({"sync_folder": "after = 0"}, "note: faults that let it work on after a cut, such as secondcut"),
    ],
)
def test_what_may_lose_data_is_a_note(
    rehearsed: Callable[..., list[ProgramStep]], parts: dict[str, str], words: str
) -> None:
    steps = rehearsed(**parts)
    assert not is_wrong(steps)
    assert [line for line in report(steps) if line.startswith(words)]


def test_what_a_recovery_says_is_shown_though_nothing_is_wrong(rehearsed: Callable[..., list[ProgramStep]]) -> None:
    lines = report(rehearsed(recover=f"print('an old page', file=sys.stderr); {_GOOD['recover']}"))
    assert "  on standard error: an old page" in lines
