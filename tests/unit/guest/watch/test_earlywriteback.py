"""Early writeback: what was written is on the disk before the next call, and a watch below decides on the call."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rig.engines.syncs import Call, CallName
from rig.guest.site import Site
from rig.guest.watch import earlywriteback
from rig.guest.watch.earlywriteback import EarlyWriteback
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition

COMMIT, COMMITTED = WorkloadPosition(WorkloadPhase.COMMIT, 3), WorkloadPosition(WorkloadPhase.COMMITTED, 3)


class Below:
    """Pretends syncs, as a control does, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def on_move(self, place: WorkloadPosition) -> Action:
        self.asked.append(place.phase)
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:  # noqa: ARG002 - the protocol
        self.asked.append(call.name)
        return Action.PRETEND if call.name is CallName.SYNC else Action.CARRY_OUT


class Workload:
    """Calls on files of a folder, as the supervisor tells them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.below = folder, Below()
        self.watch = EarlyWriteback(str(folder), self.below)
        # In the transactions 0 and 3 everything is early.
        monkeypatch.setattr(earlywriteback, "_SHARES", (1,))
        # The files that were really written back, by name.
        self.written: list[str] = []
        carry_out = earlywriteback.write_back

        def write_back(descriptor: int) -> None:
            self.written.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
            carry_out(descriptor)

        monkeypatch.setattr(earlywriteback, "write_back", write_back)
        for name in ("log", "table"):
            (folder / name).write_bytes(b"x")

    def call(self, name: CallName, path: str, place: WorkloadPosition = COMMIT) -> Action:
        return self.watch.on_call(place, Call(name, "", -1, str(self.folder / path), thread=os.getpid()), "")


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    return Workload(tmp_path, monkeypatch)


def test_a_file_is_written_back_before_the_next_call_in_every_phase(workload: Workload) -> None:
    workload.call(CallName.WRITE, "log", WorkloadPosition(WorkloadPhase.SETUP))
    assert [] == workload.written
    workload.call(CallName.WRITE, "log")
    assert ["log"] == workload.written
    workload.call(CallName.TRUNCATE, "table")
    assert workload.call(CallName.SYNC, "log") is Action.PRETEND
    assert ["log", "log", "table"] == workload.written
    workload.call(CallName.SYNC, "log")
    workload.watch.on_move(COMMITTED)
    assert (["log", "log", "table"], 3) == (workload.written, workload.watch.count)
    assert ["write", "write", "truncate", "sync", "sync", "committed"] == workload.below.asked


def test_a_file_is_written_back_before_the_commit_is_acknowledged(workload: Workload) -> None:
    workload.call(CallName.WRITE, "log")
    workload.watch.on_move(COMMITTED)
    assert ["log"] == workload.written


def test_a_file_in_memory_is_written_back_before_syncs_and_acknowledgements(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = {str(workload.folder / "table"), "/usr/share/locale"}
    monkeypatch.setattr(earlywriteback, "files_in_memory", lambda pid: mapped if pid == os.getpid() else set())
    workload.call(CallName.UNLINK, "log")
    assert [] == workload.written
    workload.call(CallName.SYNC, "log")
    workload.watch.on_move(COMMITTED)
    assert ["table", "table"] == workload.written


def test_what_is_no_file_below_the_directory_is_left_alone(workload: Workload) -> None:
    os.mkfifo(workload.folder / "pipe")
    for path in ("pipe", "gone", "../elsewhere"):
        workload.call(CallName.WRITE, os.path.normpath(path))
    workload.watch.on_move(COMMITTED)
    assert ([], 0) == (workload.written, workload.watch.count)


def test_a_file_that_cannot_be_written_back_is_an_error() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="sync_file_range: Illegal seek"):
            earlywriteback.write_back(writing)
    finally:
        os.close(reading)
        os.close(writing)


def test_some_pages_are_late_in_some_transactions_and_the_same_ones_in_each_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def syncs_that_came_first() -> list[bool]:
        workload = Workload(tmp_path, monkeypatch)
        monkeypatch.setattr(earlywriteback, "_SHARES", (0.5, 1))
        late = []
        for number in range(1, 65):
            place = WorkloadPosition(WorkloadPhase.COMMIT, number)
            workload.call(CallName.WRITE, "log", place)
            before = workload.watch.count
            workload.call(CallName.SYNC, "log", place)
            late.append(workload.watch.count == before)
        return late

    late = syncs_that_came_first()
    # A quarter of them, on average: half of half of the transactions.
    assert 4 < sum(late) < 32
    assert late == syncs_that_came_first()


@pytest.mark.parametrize("word", ["", "neighbour", "writeback"])
def test_only_orders_that_say_so_have_it(word: str) -> None:
    site = cast("Site", SimpleNamespace(directory="/mnt", orders=SimpleNamespace(neighbour=word, seed=1)))
    below = Below()
    watch = earlywriteback.beneath(site, below)
    assert (watch is not below) is (word == "writeback")
