"""Killed, started again, then cut, on real machines: what a restarted program shows must last."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.outcome import Result
from rig.analysis.judging.promises import promise_of, violates
from rig.campaign import campaign
from rig.campaign.campaign import Silent
from rig.contract.results import VerdictKind
from rig.contract.scenario import WorkloadSpec
from rig.engines.builds import library_for
from rig.front import explaining
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run
from tests.vm.programruns import measured_program

PLAIN, CONTROL = "sqlite-ext4-wal_full_killcut", "sqlite-ext4-wal_off_killcut"
SHORT = WorkloadSpec(transaction_count=16, think_ms=200, rest_ms=1000)
TINY = Profile(
    "tiny", SHORT.transaction_count, 60, 0, exposure_min=60, repeats="none", side_states_max=60,
    side_transaction_count=SHORT.transaction_count,
)  # fmt: skip
# Each start makes a new log, and syncs only that one. What a killed process had written to its own is read back, and
# never synced. The mended program syncs all that it has read before it says so.
_PYTHON = """#!/usr/bin/python3 -IS
import os, sys
LINE = b"%0599d\\n"
logs = sorted(name for name in os.listdir() if name.startswith("log."))
if sys.argv[1] == "run":
    after = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    log = os.open(f"log.{{len(logs)}}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.fsync(os.open(".", os.O_RDONLY))
    for number in range(after + 1, int(sys.argv[5]) + 1):
        os.write(log, LINE % number)
        os.fsync(log)
        print("ack", number, flush=True)
        assert input() == "ok"
else:
    data = b""
    for path in logs:
        log = os.open(path, os.O_RDONLY)
        if {mended}:
            os.fsync(log)
        data += os.read(log, 1 << 20)
    for number in range(1, 99):
        if LINE % number in data:
            print("have", number)
"""
# The same with a file for each transaction.
_SHELL = """#!/bin/sh
if [ "$1" = recover ]; then
    for log in log.*; do
        if [ -s $log ]; then
            if {mended}; then sync $log; fi
            echo "have ${{log#log.}}"
        fi
    done
    exit
fi
i=${{7:-0}}
while [ $i -lt "$5" ]; do
    i=$((i + 1))
    echo $i > log.$i
    sync log.$i .
    echo "ack $i"
    read -r ok
done
"""


@pytest.fixture
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("text", "fault", "result"),
    [
        (_PYTHON.format(mended=False), "powercut", Result.KEPT),
        (_PYTHON.format(mended=False), "killcut", Result.BROKEN),
        (_PYTHON.format(mended=True), "killcut", Result.KEPT),
        (_SHELL.format(mended="false"), "killcut", Result.BROKEN),
        (_SHELL.format(mended="true"), "killcut", Result.KEPT),
    ],
    ids=["cut", "killed-and-cut", "killed-and-cut-mended", "shell", "shell-mended"],
)
def test_a_program_that_reads_unsynced_data_back_and_never_syncs_it_is_found_by_a_kill_before_the_cut(
    tmp_path: Path, text: str, fault: str, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The control of a promise that was kept says that the cuts could have shown a loss.
    summary = measured_program(tmp_path, text, fault, "durable", controls=result is Result.KEPT)
    assert summary.controls or result is Result.BROKEN
    assert all(control.fired for control in summary.controls), summary.controls
    (row,) = (row for row in summary.rows if not row.is_sabotaged)
    verdicts = row.outcome.measured.verdicts
    assert result is row.judgement.result, row.judgement
    assert (result is Result.BROKEN) is any(one.lost_shown for one in verdicts)
    # Whatever it acknowledged is there.
    assert all(one.lost == one.lost_shown for one in verdicts)
    if result is Result.BROKEN:
        run = Run.open(tmp_path / "run")
        monkeypatch.setattr(explaining, "_SEARCH_S", 60)
        explaining.explain_worst(run, 1, library_for({"program"}, str(tmp_path / "program")))
        (telling,) = explaining.tellings(run).values()
        assert telling.story, telling.failure
        assert re.search(r"It is enough that .* of data/log\.\d+", telling.story.paragraph), telling.story.paragraph
        assert "Which calls are behind it is not known" in telling.story.paragraph


@pytest.mark.representative
def test_a_database_that_is_killed_and_cut_keeps_what_it_acknowledged_and_one_without_syncs_does_not(
    recorder: Template, verifier: Template, user_mode: UserMode, tmp_path: Path
) -> None:
    scenarios = [replace(one, workload=SHORT) for one in matrix.select([PLAIN, CONTROL])]
    run = Run.create(tmp_path / "run", {})
    campaign.Campaign(run, TINY, Machines(recorder, verifier, user_mode), Silent()).measure(scenarios)
    assert {} == run.failures()
    (plain, control), _ = run.results([PLAIN, CONTROL])
    promise = promise_of(plain.scenario)
    assert promise
    assert [] == [one for one in plain.verdicts if violates(promise, one) or one.kind.is_infrastructure]
    assert TINY.exposure_of(plain.scenario) <= len({one.exposure for one in plain.verdicts})
    # Four kills, most of them inside a commit; what was written by then is shown.
    live = plain.recording.live
    assert ["kill-1", "kill-2", "kill-3", "kill-4"] == [one["state"] for one in live]
    assert any(one["recovered"] == one["issued"] > one["acked"] for one in live)
    assert any(one.kind is VerdictKind.LOST_SUFFIX and one.lost > one.lost_shown for one in control.verdicts)
