"""Added syncs: what was written is synced before the next call on another file, and before the acknowledgement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rig.engines.syncs import Call, CallName
from rig.guest.watch.addedsyncs import SyncAdder
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition

COMMIT, COMMITTED = WorkloadPosition(WorkloadPhase.COMMIT, 3), WorkloadPosition(WorkloadPhase.COMMITTED, 3)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were really synced, by name; every sync is carried out."""
    names: list[str] = []
    carry_out = os.fsync

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        carry_out(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


class Workload:
    """Calls on files of a folder, as the supervisor tells them."""

    def __init__(self, folder: Path, *wanted: str) -> None:
        self.folder, self.watch = folder, SyncAdder(str(folder), frozenset(wanted))
        for name in ("log", "table"):
            (folder / name).touch()

    def call(
        self, name: CallName, path: str, *, role: str = "", place: WorkloadPosition = COMMIT, offset: int = 0
    ) -> None:
        call = Call(name, role, offset, str(self.folder / path), 512)
        assert self.watch.on_call(place, call, "") is Action.CARRY_OUT


def test_a_file_is_synced_once_before_the_next_call_on_another(tmp_path: Path, synced: list[str]) -> None:
    workload = Workload(tmp_path, "log")
    workload.call(CallName.WRITE, "log")
    workload.call(CallName.WRITE, "log")
    assert [] == synced
    workload.call(CallName.WRITE, "table")
    assert ["log"] == synced
    assert workload.watch.on_move(COMMITTED) is Action.CARRY_OUT
    assert (["log"], 1) == (synced, workload.watch.count)


def test_a_file_is_synced_before_the_commit_is_acknowledged(tmp_path: Path, synced: list[str]) -> None:
    workload = Workload(tmp_path, "wal")
    workload.call(CallName.WRITE, "log", role="wal")
    workload.watch.on_move(COMMITTED)
    assert ["log"] == synced


@pytest.mark.parametrize("name", [CallName.CREATE, CallName.UNLINK, CallName.RENAME])
def test_the_directory_is_synced_after_a_name_in_it_changed(tmp_path: Path, synced: list[str], name: CallName) -> None:
    workload = Workload(tmp_path, "directory")
    workload.call(CallName.WRITE, "log")
    workload.call(name, "log")
    workload.watch.on_move(COMMITTED)
    assert [tmp_path.name] == synced


def test_a_file_that_was_removed_since_needs_no_sync(tmp_path: Path, synced: list[str]) -> None:
    workload = Workload(tmp_path, "log")
    workload.call(CallName.WRITE, "log")
    (tmp_path / "log").unlink()
    workload.watch.on_move(COMMITTED)
    assert ([], 0) == (synced, workload.watch.count)


def test_nothing_is_added_for_other_files_or_before_the_first_transaction(tmp_path: Path, synced: list[str]) -> None:
    workload = Workload(tmp_path, "log")
    workload.call(CallName.WRITE, "table")
    workload.call(CallName.WRITE, "log", place=WorkloadPosition(WorkloadPhase.SETUP))
    workload.call(CallName.WRITE, "../log")
    workload.watch.on_move(COMMITTED)
    assert [] == synced


def test_a_file_that_is_synced_between_its_writes_is_synced_before_a_write_to_another_place(
    tmp_path: Path, synced: list[str]
) -> None:
    workload = Workload(tmp_path, "~journal")
    for offset in (512, 1024, 1536):
        workload.call(CallName.WRITE, "log", role="journal", offset=offset)
    assert [] == synced, "each of them begins where the last one ended"
    workload.call(CallName.WRITE, "log", role="journal", offset=0)
    assert ["log"] == synced
    workload.watch.on_move(COMMITTED)
    assert ["log"] * 2 == synced


def test_a_sync_of_the_whole_file_system_names_no_file(tmp_path: Path, synced: list[str]) -> None:
    workload = Workload(tmp_path, "log")
    workload.call(CallName.WRITE, "log")
    assert workload.watch.on_call(COMMIT, Call(CallName.SYNC, "", -1, ""), "") is Action.CARRY_OUT
    assert ["log"] == synced


def test_everything_is_synced_in_the_order_in_which_it_was_written(tmp_path: Path, synced: list[str]) -> None:
    workload = Workload(tmp_path, "*")
    workload.call(CallName.WRITE, "log", role="journal", offset=512)
    workload.call(CallName.WRITE, "log", role="journal", offset=0)
    workload.call(CallName.WRITE, "table")
    workload.call(CallName.UNLINK, "log")
    workload.call(CallName.WRITE, "../log")
    workload.watch.on_move(COMMITTED)
    assert ["log", "log", "table", tmp_path.name] == synced
