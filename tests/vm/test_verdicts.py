"""Verdicts notice a wrong disk and a wrong engine, and a lost machine is not a verdict.

Each sabotage is done on the host, to the log of a sound recording; real SQLite on real ext4 gives the verdict.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rig.campaign import session
from rig.campaign.verdicts import verdict
from rig.contract.findings import Finding
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState, EntryFlag, Logs, WriteLog, epochs, everything_unflushed_lost
from rig.faults.states.state import make_state
from rig.machines.machine import Machine
from rig.machines.pool import Clones
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import cuts, matrix
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from rig.workloads import ledger
from tests.vm.samples import (
    Entry,
    Recorder,
    entries_of,
    findings,
    kinds,
    open_recording,
    scenario_of,
    without_flush,
    write_log,
)

_PROFILE = replace(matrix.profile("quick"), states_max=30, instants=20)
_BLOCK = 4096
# The magic number in ext4's superblock.
_MAGIC = slice(1080, 1082)


@pytest.fixture(scope="module")
def wal_full(recorded: Recorder) -> Recording:
    return recorded(scenario_of("wal_full"))


@pytest.fixture(scope="module")
def delete_full(recorded: Recorder) -> Recording:
    return recorded(scenario_of("delete_full"))


def verdicts(scenario: Scenario, machines: Clones, path: Path) -> list[Verdict]:
    """Plan, verify and judge as a campaign does."""
    with WriteLog.open(path) as log:
        timeline = Timeline(log.marks)
        groups = cuts.by_content(cuts.cuts(scenario, _PROFILE, Logs(log), timeline).cuts)
        found = findings(scenario, machines, log, [group[0].state for group in groups])
        pairs = zip(groups, found, strict=True)
        return [verdict(cut, finding, timeline) for group, finding in pairs for cut in group]


def mark_of(entries: Sequence[Entry], text: bytes) -> int:
    (rank,) = (i for i, entry in enumerate(entries) if entry.text.startswith(text))
    return rank


def flushes_of(entries: Sequence[Entry], transaction: int) -> list[int]:
    """The FLUSHes between a transaction's begin and its ack."""
    begin, ack = (mark_of(entries, b"%s-%d-" % (word, transaction)) for word in (b"begin", b"ack"))
    return [i for i in range(begin, ack) if entries[i].flags & EntryFlag.FLUSH]


@pytest.mark.representative
def test_a_flush_that_was_never_issued_shows_as_a_lost_suffix_and_the_honest_recording_is_durable(
    user_mode: UserMode, wal_full: Recording, tmp_path: Path
) -> None:
    scenario = scenario_of("wal_full")
    with open_recording(wal_full) as (path, log):
        honest = verdicts(scenario, user_mode, path)
        entries = entries_of(log)
    assert {VerdictKind.DURABLE} == {verdict.kind for verdict in honest}
    assert 8 == max(verdict.acked for verdict in honest)
    # With a commit of ext4's journal at the same time, another FLUSH makes the transaction durable.
    number = next(number for number in range(3, 8) if len(flushes_of(entries, number)) == 1)
    sabotaged = write_log(tmp_path / "log", without_flush(entries, *flushes_of(entries, number)))
    # The flush also ordered writes of the file system, so without it this may be damaged too.
    fine = {VerdictKind.DURABLE, VerdictKind.FILESYSTEM_DAMAGE}
    lost = [verdict for verdict in verdicts(scenario, user_mode, sabotaged) if verdict.kind not in fine]
    assert {VerdictKind.LOST_SUFFIX} == {verdict.kind for verdict in lost}
    assert {(number, number - 1, 1)} == {(verdict.acked, verdict.recovered, verdict.lost) for verdict in lost}
    words = f"transactions {number} to {number}"
    assert all(verdict.lost_virtual_ns >= 0 and words in verdict.detail for verdict in lost)


@pytest.mark.representative
def test_a_write_ahead_log_that_lacks_a_write_loses_what_was_acknowledged(
    user_mode: UserMode, wal_full: Recording, tmp_path: Path
) -> None:
    scenario = scenario_of("wal_full")
    with open_recording(wal_full) as (_, log):
        entries = entries_of(log)
    begin, flush = mark_of(entries, b"begin-4-"), flushes_of(entries, 4)[0]
    batch = [i for i in range(begin, flush) if entries[i].is_batch]
    dropped = max(batch, key=lambda i: len(entries[i].payload))
    path = write_log(tmp_path / "log", [*entries[:dropped], *entries[dropped + 1 :]])
    with WriteLog.open(path) as log:
        cut = everything_unflushed_lost(log, epochs(log), mark_of(entries, b"begin-6-") - 1)
        (found,) = findings(scenario, user_mode, log, [cut])
        assert ("prefix", 3) == (found.kind, found.recovered)


@pytest.mark.representative
def test_a_changed_byte_of_a_row_is_foreign_and_one_of_a_page_header_is_corrupt(
    user_mode: UserMode, delete_full: Recording, tmp_path: Path
) -> None:
    scenario = scenario_of("delete_full")
    note = str(ledger.transaction(scenario.seed, 7)[2].row[-1]).encode()
    with open_recording(delete_full) as (_, log):
        entries = entries_of(log)

    def row(page: bytes) -> bytes:
        return page.replace(note, b"!" + note[1:])

    def header(page: bytes) -> bytes:
        return b"\x55" + page[1:] if page[:1] == b"\x0d" and note in page else page

    for change, kind, words in ((row, "foreign", "which no transaction wrote"), (header, "corrupt", "")):
        changed = [replace(entry, payload=by_page(entry.payload, change)) for entry in entries]
        assert entries != changed
        with WriteLog.open(write_log(tmp_path / "log", changed)) as log:
            last = everything_unflushed_lost(log, epochs(log), log.entry_count)
            (found,) = findings(scenario, user_mode, log, [last])
        assert kind == found.kind, found
        assert words in found.detail
        assert found.detail


def by_page(payload: bytes, change: Callable[[bytes], bytes]) -> bytes:
    return b"".join(change(payload[begin : begin + _BLOCK]) for begin in range(0, len(payload), _BLOCK))


@dataclass(frozen=True)
class _Sabotaged(Template):
    """A template that sends a signal to some of its clones as soon as they run."""

    signal: signal.Signals = signal.SIGKILL
    healthy: frozenset[int] = frozenset()

    @contextmanager
    def clone(self, *, recording: Path | None = None, orders: bytes = b"") -> Iterator[Machine]:
        with super().clone(recording=recording, orders=orders) as machine:
            _clones.append(machine)
            if len(_clones) not in self.healthy:
                os.kill(machine.pid, self.signal)
            yield machine


_clones: list[Machine] = []


@pytest.mark.parametrize(
    ("sent", "kind"), [(signal.SIGKILL, "inconclusive"), (signal.SIGSTOP, "hang")], ids=["killed", "stopped"]
)
def test_a_machine_lost_twice_costs_its_state_a_verdict_and_the_others_go_on(
    sent: signal.Signals,
    kind: str,
    verifier: Template,
    wal_full: Recording,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "STATE_LIMIT_S", 3)
    scenario = scenario_of("wal_full")
    _clones.clear()
    sabotaged = _Sabotaged(verifier.spec, verifier.folder, verifier.identity, sent, frozenset({1, 3}))

    def after(rank: int) -> None:
        if rank == 1:
            # This limit on the ready message matters only for the second clone, which is stopped before it is ready.
            monkeypatch.setattr(session, "READY_LIMIT_S", 3)
            os.kill(_clones[0].pid, sent)
        if len(_clones) == 2:
            # This is the lost state. Answers of the first clone that were in flight come before it.
            monkeypatch.undo()

    with open_recording(wal_full) as (_, log):
        states = spread_states(log, 8)
        honest = findings(scenario, verifier, log, states)
        found = findings(scenario, sabotaged, log, states, after)
    assert 3 == len(_clones)
    lost = [rank for rank, finding in enumerate(found) if finding.kind == kind]
    # Answers in flight when the signal came still count.
    assert 1 == len(lost)
    assert 2 <= lost[0] <= 5
    assert "virtual machine" in found[lost[0]].detail
    others = [rank for rank in range(len(states)) if rank != lost[0]]
    assert kinds(honest[rank] for rank in others) == kinds(found[rank] for rank in others)
    assert {"prefix"} == {finding.kind for finding in honest}


def spread_states(log: WriteLog, count: int) -> list[CrashState]:
    """States in which everything unflushed is lost, spread evenly over the workload."""
    first = Timeline(log.marks).setup.entry_index
    ends = [first + (log.entry_count - first) * rank // count for rank in range(1, count + 1)]
    return [everything_unflushed_lost(log, epochs(log), end) for end in ends]


@pytest.mark.representative
def test_a_kernel_panic_is_its_states_verdict_and_the_others_go_on(
    verifier: Template, wal_full: Recording, tmp_path: Path
) -> None:
    scenario = replace(scenario_of("wal_full"), mount_options="errors=panic")
    with open_recording(wal_full) as (_, log):
        honest = entries_of(log)
        # Right after mkfs: the journal is empty, so nothing repairs the damage.
        made = next(epoch for epoch in epochs(log) if log.replay(epoch.begin, 1 << 26)[_MAGIC].tobytes() == b"\x53\xef")
        disk = log.replay(made.begin, 1 << 26)
    (inode_table,) = struct.unpack_from("<I", disk.tobytes(), _BLOCK + 8)
    bad = Entry(inode_table * _BLOCK // 512, 0, b"\xff" * _BLOCK)
    assert made.flush
    path = write_log(tmp_path / "log", [*honest[: made.flush], bad, *honest[made.flush :]])
    with WriteLog.open(path) as log:
        epoch = epochs(log)[made.number]
        assert epoch.batch[-1] == made.flush
        panics = make_state(epoch, len(epoch.fuas), whole=epoch.batch[-1:])
        before, after = make_state(epoch, 0), spread_states(log, 3)[:1]
        found: list[Finding] = findings(scenario, verifier, log, [before, panics, *after])
    assert "kernel-panic" == found[1].kind, found[1]
    assert found[1].detail.startswith("Kernel panic - not syncing: EXT4-fs (device dm-")
    assert "kernel-panic" not in {found[0].kind, found[2].kind}
