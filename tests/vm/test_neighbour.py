"""A noisy neighbour on real machines: it brings to the disk what a lone program would not have there yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.outcome import Result
from rig.analysis.judging.promises import promise_of, violates
from rig.campaign import campaign
from rig.campaign.campaign import Silent
from rig.contract.results import VerdictKind
from rig.contract.scenario import WorkloadSpec
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run
from tests.vm.programruns import measured_program

PLAIN, CONTROL = "sqlite-ext4-wal_full.neighbour_powercut", "sqlite-ext4-wal_full.neighbour+eatmydata_powercut"
# Longer than the half minute after which the kernel writes back: a control without syncs comes back whole only then.
SHORT = WorkloadSpec(transaction_count=16, think_ms=3000, rest_ms=6000)
TINY = Profile("tiny", SHORT.transaction_count, 80, 0, exposure_min=20, repeats="first", side_states_max=80)
# The careless program gives a new file its name before its bytes are durable. Alone, both become durable at once; the
# mended program syncs the bytes first.
_PYTHON = """#!/usr/bin/python3 -IS
import os, sys, time
LINE = b"%0599d\\n"
if sys.argv[1] == "run":
    for number in range(1, int(sys.argv[5]) + 1):
        file = os.open("new", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, LINE % number)
        if {mended}:
            os.fsync(file)
        os.rename("new", f"{{number}}.done")
        time.sleep(0.05)
        os.fsync(file)
        os.close(file)
        os.fsync(os.open(".", os.O_RDONLY))
        print("ack", number, flush=True)
        assert input() == "ok"
else:
    for name in os.listdir("."):
        number = int(name.partition(".")[0]) if name.endswith(".done") else 0
        if number:
            whole = open(name, "rb").read() == LINE % number
            print(f"have {{number}}" if whole else f"torn {{number}} it has a name and no bytes")
"""
_SHELL = """#!/bin/sh
if [ "$1" = recover ]; then
    for name in *.done; do
        i=${{name%.done}}
        if [ "$(cat $name)" = "$(printf '%0599d' "$i")" ]; then
            echo "have $i"
        elif [ -e $name ]; then
            echo "torn $i it has a name and no bytes"
        fi
    done
    exit
fi
i=0
while [ $i -lt "$5" ]; do
    i=$((i + 1))
    printf '%0599d\\n' $i > new
    if {mended}; then sync new; fi
    mv new $i.done
    sleep 0.05
    sync $i.done .
    echo "ack $i"
    read -r ok
done
"""


# Two pages and the numbers that they had before, to take back half a transaction. One clears these before its pages are
# synced, and never syncs that, so alone it is in time.
_UNDO = """#!/usr/bin/python3 -IS
import os, sys
data, undo = (os.open(name, os.O_RDWR | os.O_CREAT, 0o644) for name in ("data", "undo"))
places = (0, 65536)
if sys.argv[1] == "run":
    for place in places:
        os.pwrite(data, b"%04096d" % 0, place)
    os.pwrite(undo, b"none", 0)
    for file in (data, undo, os.open(".", os.O_RDONLY)):
        os.fsync(file)
    for number in range(1, int(sys.argv[5]) + 1):
        os.pwrite(undo, b"%04d" % (number - 1), 0)
        os.fsync(undo)
        for step in ("pages", "undo") if {mended} else ("undo", "pages"):
            if step == "undo":
                os.pwrite(undo, b"none", 0)
            else:
                for place in places:
                    os.pwrite(data, b"%04096d" % number, place)
                os.fsync(data)
        os.fsync(undo)
        print("ack", number, flush=True)
        assert input() == "ok"
else:
    before = os.pread(undo, 4, 0)
    pages = [int(os.pread(data, 4096, place) or 0) for place in places]
    if before not in (b"", b"none"):
        pages = [int(before)] * 2
    print("".join(f"have {{number}}\\n" for number in range(1, min(pages) + 1)), end="")
    if pages[0] != pages[1]:
        print("torn", min(pages) + 1, "it has a name and no bytes")
"""


@pytest.fixture
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("program", "neighbour", "result"),
    [
        (_PYTHON.format(mended=False), None, Result.KEPT),
        (_PYTHON.format(mended=False), "sync", Result.BROKEN),
        (_PYTHON.format(mended=True), "sync", Result.KEPT),
        (_SHELL.format(mended="false"), "sync", Result.BROKEN),
        (_SHELL.format(mended="true"), "sync", Result.KEPT),
        (_UNDO.format(mended=False), "writeback", Result.BROKEN),
        (_UNDO.format(mended=True), "writeback", Result.KEPT),
    ],
    ids=["alone", "beside-a-neighbour", "mended", "shell", "shell-mended", "written-back", "written-back-mended"],
)
def test_a_program_that_names_a_file_before_its_bytes_are_durable_is_found_beside_a_neighbour(
    tmp_path: Path, program: str, neighbour: str | None, result: Result
) -> None:
    # The control of a promise that was kept says that the cuts could have shown a loss.
    states = 160 if neighbour == "writeback" else 40
    summary = measured_program(
        tmp_path, program, "powercut", "atomic", neighbour, controls=result is Result.KEPT, states=states
    )
    assert summary.controls or result is Result.BROKEN
    assert all(control.fired for control in summary.controls), summary.controls
    (row,) = (row for row in summary.rows if not row.is_sabotaged)
    assert result is row.judgement.result, row.judgement
    torn = [one for one in row.outcome.measured.verdicts if one.kind is VerdictKind.TORN]
    assert (result is Result.BROKEN) is bool(torn)
    assert all("it has a name and no bytes" in one.detail for one in torn)


def test_a_database_beside_a_neighbour_keeps_its_promise_and_its_control_does_not(
    recorder: Template, verifier: Template, user_mode: UserMode, tmp_path: Path
) -> None:
    scenarios = [replace(one, workload=SHORT) for one in matrix.select([PLAIN, CONTROL])]
    run = Run.create(tmp_path / "run", {})
    campaign.Campaign(run, TINY, Machines(recorder, verifier, user_mode), Silent()).measure(scenarios)
    assert {} == run.failures()
    # In the order of their ids.
    (control, plain), _ = run.results([CONTROL, PLAIN])
    promise = promise_of(plain.scenario)
    assert promise
    assert [] == [one for one in plain.verdicts if violates(promise, one) or one.kind.is_infrastructure]
    assert len({one.exposure for one in plain.verdicts}) >= TINY.exposure_min
    assert any(one.kind is VerdictKind.LOST_SUFFIX and one.lost for one in control.verdicts)
    # Within a transaction the database syncs once, and the neighbour about as often.
    assert plain.recording.flush_count > SHORT.transaction_count * 3 / 2
    assert control.recording.reproduced
