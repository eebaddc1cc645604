"""`rig export` of each engine with tables: a state that lost something and one that did not, shown by their scripts.

The scripts run without the rig, in an almost empty environment. A program is exported in tests/vm/test_explain_cli.py.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.campaign import campaign
from rig.contract.results import Verdict, VerdictKind
from rig.machines.guests import Guests, guests
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

TINY = Profile("tiny", 12, 12, 8, exposure_min=3, repeats="none", side_states_max=80)
# With `flush0` MariaDB writes its log once a second, and few transactions may all come just before that.
_LAZY = replace(TINY, transaction_count=24, states_max=24, instants=24)
_LIMIT_S = 300


@pytest.fixture(scope="module")
def source() -> Iterator[Guests]:
    with guests() as machines:
        yield machines


def verdicts_of(name: str, source: Guests, folder: Path) -> tuple[Run, list[Verdict]]:
    (scenario,) = matrix.select([name])
    profile = _LAZY if scenario.engine == "mariadb" else TINY
    scenario = replace(scenario, workload=replace(scenario.workload, transaction_count=profile.transaction_count))
    run = Run.create(folder, {"scenarios": [scenario.id]})
    campaign.Campaign(run, profile, source, campaign.Silent()).measure([scenario])
    return run, run.verdicts(scenario.id)[0]


def export(run: Run, verdict: Verdict, folder: Path) -> str:
    rig = str(Path(sys.executable).with_name("rig"))
    done = subprocess.run(
        [rig, "export", verdict.scenario, verdict.state, str(folder), "--run-dir", str(run.folder)],
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def reproduce(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "reproduce.sh"], cwd=folder, env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "leveldb-ext4-default_async_powercut",
        "lmdb-ext4-nosync_powercut",
        "mariadb-ext4-flush0_powercut",
        "postgresql-ext4-async_powercut",
        "rocksdb-ext4-nosync_powercut",
        # Its first transaction makes the database, so its control is from the end.
        "sqlite-ext4-delete_off.life_powercut",
    ],
)
def test_a_loss_and_no_loss_are_shown_on_a_plain_host(name: str, source: Guests, tmp_path: Path) -> None:
    run, verdicts = verdicts_of(name, source, tmp_path / "run")
    lost = max(verdicts, key=lambda verdict: verdict.lost)
    kept = max((each for each in verdicts if each.kind is VerdictKind.DURABLE), key=lambda verdict: verdict.acked)
    assert lost.lost, "no state lost anything"
    assert kept.acked, "no state with transactions kept them"

    printed = export(run, lost, tmp_path / "lost")
    done = reproduce(tmp_path / "lost")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "NOT AS ACKNOWLEDGED" in done.stdout
    assert any(line.startswith("< ") for line in done.stdout.splitlines()), done.stdout
    assert printed.startswith(done.stdout)

    assert "nothing is lost" in export(run, kept, tmp_path / "kept")
    done = reproduce(tmp_path / "kept")
    assert 1 == done.returncode, done.stdout + done.stderr
    assert "nothing is lost" in done.stdout

    # A host that cannot open any files says so, whatever is lost.
    with tarfile.open(tmp_path / "lost" / "control.tar.gz", "w:gz"):
        pass
    done = reproduce(tmp_path / "lost")
    assert 2 == done.returncode, done.stdout + done.stderr
    assert "THIS HOST CANNOT SHOW IT" in done.stdout
