"""Life after recovery on real machines: what a second and a third life do, and a bug that shows only there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.promises import promise_of, violates
from rig.campaign import campaign
from rig.campaign.campaign import Silent
from rig.campaign.replay import replay
from rig.contract.results import VerdictKind
from rig.contract.scenario import WorkloadSpec
from rig.faults import Address
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix, recoverycuts
from rig.planning.matrix import Profile
from rig.store import Run
from tests.vm.conftest import MadeOnce

PLAIN, CONTROL = "sqlite-ext4-wal_full_secondcut", "sqlite-ext4-wal_full+eatmydata_secondcut"
SHORT = WorkloadSpec(transaction_count=16, think_ms=200, rest_ms=6000)
TINY = Profile(
    "tiny", SHORT.transaction_count, 60, 0, exposure_min=5, repeats="none", side_states_max=40
)  # fmt: skip
_LIMIT_S = 900
# A record of each transaction at a place of its own. A later life that forgets to sync loses what it acknowledges.
# A life with the boot id of one before the cut could trust memory that is gone.
_PROGRAM = """#!/usr/bin/python3 -IS
import os, sys
if sys.argv[1] == "run":
    after = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    file = os.open("log", os.O_RDWR | os.O_CREAT, 0o644)
    boot = open("/proc/sys/kernel/random/boot_id").read()
    with open("boots", "a+") as boots:
        boots.seek(0)
        assert boot not in boots.readlines(), "the power was cut, and the machine did not boot"
        boots.write(boot)
        boots.flush()
        os.fsync(boots.fileno())
    os.fsync(os.open(".", os.O_RDONLY))
    os.ftruncate(file, 600 * after)
    for number in range(after + 1, int(sys.argv[5]) + 1):
        os.pwrite(file, b"%0600d" % number, 600 * (number - 1))
        if {syncs}:
            os.fsync(file)
        print("ack", number, flush=True)
        assert input() == "ok"
else:
    data = open("log", "rb").read() if os.path.exists("log") else b""
    for number in range(1, len(data) // 600 + 1):
        whole = data[600 * (number - 1) :][:600] == b"%0600d" % number
        print(f"have {{number}}" if whole else f"torn {{number}}")
"""


@pytest.fixture(scope="session")
def measured(recorder: Template, verifier: Template, user_mode: UserMode, made_once: MadeOnce) -> Run:
    """Give a campaign of one setting and its control, with few lives."""

    def measure(folder: Path) -> None:
        scenarios = [replace(one, workload=SHORT) for one in matrix.select([PLAIN, CONTROL])]
        run = Run.create(folder / "run", {})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recoverycuts, "_FIRSTS_MIN", 3)
            campaign.Campaign(run, TINY, Machines(recorder, verifier, user_mode), Silent()).measure(scenarios)
        assert {} == run.failures()

    return Run.open(made_once("secondcut", measure) / "run")


@pytest.mark.representative
def test_a_database_that_works_on_and_is_cut_again_keeps_what_it_showed_and_acknowledged(measured: Run) -> None:
    (result,), damaged = measured.results([PLAIN])
    assert [] == damaged
    assert result.plan.state_count == len(result.verdicts) == len({one.state for one in result.verdicts})
    # Three second lives, and one third life.
    assert 4 == result.plan.recovery_count
    assert {1, 2} == {len(Address.parse(one.state).way) for one in result.verdicts}
    assert TINY.audit_count == result.plan.audited_count
    acked = {one.acked for one in result.verdicts}
    assert 6 < len(acked)
    # Cuts before a later life acknowledged anything, and after.
    assert 0 < result.plan.inside_count < result.plan.state_count
    promise = promise_of(result.scenario)
    assert promise
    assert [] == [one for one in result.verdicts if violates(promise, one) or one.kind.is_infrastructure]


@pytest.mark.representative
def test_a_control_without_syncs_in_its_later_lives_alone_loses_what_these_acknowledged(measured: Run) -> None:
    (result,), _ = measured.results([CONTROL])
    lost = [one for one in result.verdicts if one.kind is VerdictKind.LOST_SUFFIX]
    assert lost
    kept = measured.recoveries(measured.scenario(CONTROL)).index()
    assert kept
    shown = {one.state: one.lives[-1] for one in kept}
    # What was shown at the beginning of the life is still there, so only this life lost anything.
    assert all(one.recovered is not None and one.recovered >= shown[Address.parse(one.state).before] for one in lost)
    (plain,), _ = measured.results([PLAIN])
    assert plain.recording.key == result.recording.key, "the first life is not under the shim"


@pytest.mark.representative
def test_states_of_a_second_and_a_third_life_are_rebuilt_from_the_stored_lives(
    measured: Run, recorder: Template, verifier: Template, user_mode: UserMode
) -> None:
    machines = Machines(recorder, verifier, user_mode)
    for name in (PLAIN, CONTROL):
        verdicts, _ = measured.verdicts(name)
        # The last state of each depth. A third life without syncs may have written nothing that can be lost.
        by_depth = {len(Address.parse(one.state).way): one for one in verdicts}
        assert by_depth.keys() == {1, 2} or (name == CONTROL and by_depth.keys() == {1})
        for one in by_depth.values():
            again = replay(measured, name, one.state, machines)
            assert again.agrees
            assert f"{one.state} (content {one.content})" == again.facts["state"]
            assert f"just before log entry {one.entry}, {one.acked} transactions acknowledged" == again.facts["cut"]


@pytest.mark.parametrize(
    ("syncs", "options", "code"),
    [("len(sys.argv) < 8", ["--no-controls", "--no-explain"], 1), ("True", [], 0)],
    ids=["careless", "mended"],
)
def test_a_program_that_forgets_to_sync_after_a_recovery_breaks_only_in_its_second_life(
    cache: Path, tmp_path: Path, syncs: str, options: list[str], code: int
) -> None:
    (tmp_path / "program").write_text(_PROGRAM.format(syncs=syncs))

    def rig(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("rig"), *words],
            cwd=tmp_path, env={**os.environ, "RIG_CACHE": str(cache), "COLUMNS": "140"},
            capture_output=True, text=True, check=False, timeout=_LIMIT_S,
        )  # fmt: skip

    done = rig("run", "--program", "./program", "--fs", "ext4", "--fault", "secondcut", "--profile", "smoke", *options)
    assert code == done.returncode, done.stdout + done.stderr
    if code:
        assert "A promise was broken" in done.stdout
        explained = rig("explain", "--worst")
        assert not explained.returncode, explained.stderr
        told = " ".join(explained.stdout.split())
        # The later life was recorded once more, to see its calls and with a sync added.
        assert re.search(r"It was cut in life [23], which began with \d+ transactions\. It is enough that", told), told
        assert re.search(r"The call behind it is write\(data/log, 600 bytes at \d+\) of program", told), told
        assert "no sync of data/log follows before the commit returns" in told
        assert "With a sync of log added, 0 of" in told
    else:
        assert "Every promise was kept: 1 scenario" in done.stdout
        assert "control durable+eatmydata (secondcut) fired" in done.stdout
    # What a later life has shown at its beginning is still there: only what it acknowledged itself is gone.
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run.open(folder)
    verdicts, _ = run.verdicts("program-ext4-durable_secondcut")
    kept = run.recoveries(run.scenario("program-ext4-durable_secondcut")).index()
    assert kept
    shown = {one.state: one.lives[-1] for one in kept}
    assert bool(code) is any(one.lost for one in verdicts)
    assert all(one.recovered is not None for one in verdicts), "it always comes back"
    assert all((one.recovered or 0) >= shown[Address.parse(one.state).before] for one in verdicts)
    if lost := [one.state for one in verdicts if one.lost][-1:]:
        exported = rig("export", "program-ext4-durable_secondcut", *lost, "exported", "--run-program")
        assert not exported.returncode, exported.stderr
        assert "NOT AS ACKNOWLEDGED" in exported.stdout
