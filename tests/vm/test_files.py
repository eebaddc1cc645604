"""File patterns in a machine: what is synced is kept, what is not is lost, on an honest file system and on others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.campaign import campaign
from rig.contract.results import VerdictKind
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.store import Run
from tests.vm.samples import SHORT
from tests.vm.test_campaign import TINY

KEPT = ("files-ext4-append-fdatasync", "files-ext4-create-synced", "files-ext4-mapped-msync", "files-ext2-append-fsync")
LOST = ("files-ext4-append-none", "files-ext4-replace-none", "files-ext3.nobarrier-append-fsync")
IDS = tuple(f"{name}_powercut" for name in (*KEPT, *LOST))


@pytest.fixture(scope="module")
def run(recorder: Template, verifier: Template, user_mode: UserMode, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run of a few patterns, each of eight transactions."""
    found = Run.create(tmp_path_factory.mktemp("files") / "run", {"scenarios": list(IDS)})
    scenarios = [
        replace(one, workload=replace(SHORT, name=one.workload_name, transaction_count=12, think_ms=1000))
        for one in matrix.select(IDS)
    ]
    campaign.Campaign(found, TINY, Machines(recorder, verifier, user_mode), campaign.Silent()).measure(scenarios)
    assert {} == found.failures()
    return found


@pytest.mark.parametrize("name", KEPT)
def test_what_is_synced_is_kept(name: str, run: Run) -> None:
    assert {VerdictKind.DURABLE} == kinds(run, name)


@pytest.mark.parametrize("name", LOST)
def test_what_nothing_made_durable_is_lost(name: str, run: Run) -> None:
    assert {VerdictKind.DURABLE, VerdictKind.LOST_SUFFIX} <= kinds(run, name)


def kinds(run: Run, name: str) -> set[VerdictKind]:
    """Return the kinds of verdict on the files; that a file system is damaged is none."""
    verdicts, damaged = run.verdicts(f"{name}_powercut")
    assert [] == damaged
    return {verdict.kind for verdict in verdicts} - {VerdictKind.FILESYSTEM_DAMAGE}


def test_how_a_file_system_was_made_and_mounted_is_read_back(run: Run) -> None:
    results, errors = run.results()
    read_back = {one.scenario.filesystem: one.recording.filesystem for one in results}

    assert [] == errors
    assert "nobarrier" in read_back["ext3.nobarrier"]["mount"]
    assert "has_journal" in read_back["ext4"]["format"]
    assert "has_journal" not in read_back["ext2"]["format"]
