"""Later lives: only their own writes may be lost, what was shown must stay, and what was lost must not come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.campaign.verdicts import live_verdicts, verdict
from rig.contract.errors import LegalityError, RecordingError, UsageError
from rig.contract.findings import Finding, FindingKind
from rig.contract.messages import decode
from rig.contract.orders import Orders, Shim
from rig.contract.results import LiveFinding, Verdict, VerdictKind
from rig.faults import Address, CrashState, Fault, Logs, WriteLog, epochs, parse_state
from rig.faults.legality.legality import Checker, Legality
from rig.faults.log.log import EntryFlag
from rig.faults.states.rendering import contents
from rig.faults.states.state import make_state
from rig.filesystems.ext import DISK_MIB
from rig.planning import matrix, recoverycuts
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut
from rig.planning.matrix import PROFILES
from rig.recordings.recoveries import OpenRecovery, Recoveries, Recovery, self_contained
from rig.recordings.timeline import Timeline, last_number
from tests.unit.faults.disks import DISK_SECTORS, SECTOR, Op, everything, run_of, some_ops
from tests.unit.faults.log.test_log import FLUSH, Entry, encode
from tests.unit.planning.test_cuts import ENTRIES, mark
from tests.unit.planning.test_recoverycuts import keep

(SECONDCUT,) = matrix.select(["sqlite-ext4-wal_full_secondcut"])
PROFILE = PROFILES["quick"]
DEVICE_BYTES = DISK_SECTORS * SECTOR
# The first life has acknowledged two transactions; one of them was lost, and it is made anew.
LIFE = [
    Entry(0, 56, 8, 6), Entry(FLUSH), mark("recovered-1-5000"), mark("begin-2-5100"), Entry(0, 32, 8, 7), Entry(FLUSH),
    mark("ack-2-5200"), mark("begin-3-5300"), Entry(0, 48, 8, 8), Entry(FLUSH), mark("ack-3-5400"), mark("end-5500"),
    Entry(0, 16, 8, 9), Entry(FLUSH), mark("dm-log-writes-end"),
]  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WriteLog]:
    (tmp_path / "log").write_bytes(encode(ENTRIES))
    with WriteLog.open(tmp_path / "log") as opened:
        yield opened


@pytest.fixture
def kept(log: WriteLog, tmp_path: Path) -> Recoveries:
    """Give a second life, from a state that lost transaction 2, and a third."""
    found = Recoveries(tmp_path / "recoveries", DISK_MIB)
    first = parse_state("e9.f1", log, epochs(log))
    rows = [replace(keep(found, first.id, first, log, LIFE), lives=(1,))]
    with found.open(first.id, (1,)) as opened:
        second = planned(opened)[-1]
        deeper = str(Address(first.id).then(second.id))
        third = [
            mark("recovered-3-1"),
            mark("begin-4-2"),
            Entry(0, 24, 8, 5),
            Entry(FLUSH),
            mark("ack-4-3"),
            mark("end-4"),
        ]
        rows.append(replace(keep(found, deeper, second, opened.log, third), lives=(1, 3)))
    found.write_index(rows)
    return found


def planned(opened: OpenRecovery) -> tuple[CrashState, ...]:
    return everything(Fault.POWERCUT, opened.log, opened.begin_entry).states


def judged(cut: Cut, recovered: int, life: Timeline) -> Verdict:
    return verdict(cut, Finding(FindingKind.PREFIX, recovered), life)


def test_a_later_life_is_cut_from_where_it_has_shown_its_content_and_judged_by_its_own_marks(
    log: WriteLog, kept: Recoveries
) -> None:
    with ExitStack() as stack:
        found, facts = recoverycuts.cuts(SECONDCUT, PROFILE, Logs(log), kept, stack)
        (second, cuts), (third, deeper) = found
        assert second.life
        assert third.life
        shown = second.life.setup.entry_index
        assert all(cut.entry == cut.state.instant > shown for cut in cuts)
        # Nothing; with transaction 2; with 3; with what came after the end.
        assert [1, 2, 3] == sorted({second.life.acked_count(cut.entry) for cut in cuts})
        assert {3, 4} >= {third.life.acked_count(cut.entry) for cut in deeper} > set()
        assert {2} == {len(Address.parse(cut.address).way) for cut in deeper}
        assert (2, len(cuts) + len(deeper)) == (facts.recovery_count, facts.state_count)
        acked_count = sum(second.life.acked_count(cut.entry) > 1 for cut in cuts)
        assert acked_count + sum(third.life.acked_count(cut.entry) > 3 for cut in deeper) == facts.inside_count
        for opened, own in found:
            assert [cut.state for cut in own] == [opened.logs.parse(Address.parse(cut.address).content) for cut in own]


def test_what_was_shown_must_stay_and_what_the_first_cut_took_stays_lost(log: WriteLog, kept: Recoveries) -> None:
    with ExitStack() as stack:
        ((second, cuts), _), _ = recoverycuts.cuts(SECONDCUT, PROFILE, Logs(log), kept, stack)
        life = second.life
        assert life
        early, late = min(cuts, key=lambda cut: cut.entry), max(cuts, key=lambda cut: cut.entry)
        assert (VerdictKind.DURABLE, 1) == (judged(early, 1, life).kind, judged(early, 1, life).acked)
        assert (VerdictKind.LOST_SUFFIX, 1) == (judged(early, 0, life).kind, judged(early, 0, life).lost)
        assert (VerdictKind.DURABLE, VerdictKind.LOST_SUFFIX) == tuple(
            judged(late, count, life).kind for count in (3, 2)
        )
        assert 300 == judged(late, 1, life).lost_virtual_ns
        # Only a user's program can show more than was begun: its transactions look the same in each life.
        back = judged(late, 4, life)
        assert (VerdictKind.FOREIGN, None) == (back.kind, back.recovered)
        assert "transaction 4 of an earlier life is back" in back.detail


def test_the_audit_finds_each_later_life_legal_and_one_that_lost_the_first_life_not(
    log: WriteLog, kept: Recoveries
) -> None:
    with ExitStack() as stack:
        found, _ = recoverycuts.cuts(SECONDCUT, PROFILE, Logs(log), kept, stack)
        count = sum(len(cuts) for _, cuts in found)
        assert count == Auditor(Logs(log), [DISK_MIB]).audit_recoveries(SECONDCUT, found, 10**6)
        second, cuts = found[0]
        head = make_state(epochs(second.log)[0], 0)
        for wrong, words in ((head, "before the recovery began"), (replace(cuts[-1].state, epoch=head.epoch), "")):
            spoilt = [(second, [replace(cuts[0], state=wrong)])]
            with pytest.raises(LegalityError, match=words or "the rig is wrong"):
                Auditor(Logs(log), [DISK_MIB]).audit_recoveries(SECONDCUT, spoilt, 1)


@settings(max_examples=60)
@given(ops=some_ops(8, 0, 3, writes_max=4), again=some_ops(8, 1, 3, writes_max=4), data=st.data())
def test_only_writes_of_a_later_life_may_be_lost_says_the_independent_checker(
    tmp_path_factory: pytest.TempPathFactory, ops: list[Op], again: list[Op], data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("life")
    run_of(place / "first", ops)
    run_of(place / "raw", again)
    with WriteLog.open(place / "first") as log:
        state = data.draw(st.sampled_from(everything(Fault.POWERCUT, log).states))
        whole = self_contained(state.id, state, log, (place / "raw").read_bytes(), DEVICE_BYTES)
    (place / "composed").write_bytes(whole)
    with WriteLog.open(place / "composed") as composed:
        checker, rule = Checker(composed, DEVICE_BYTES), Fault.POWERCUT.rule
        assert rule
        first = int(np.flatnonzero(composed.flags & EntryFlag.MARK)[1])
        states = sorted(everything(Fault.POWERCUT, composed, first).states, key=lambda one: (one.base_end, one.instant))
        begun = int(np.flatnonzero(composed.flags & EntryFlag.FLUSH)[0])
        base = composed.replay(begun, DEVICE_BYTES)
        written = {
            sector
            for entry in np.flatnonzero(composed.payload_bytes).tolist()
            if entry > begun
            for sector in range(
                int(composed.offset_bytes[entry]) // SECTOR,
                int(composed.offset_bytes[entry] + composed.payload_bytes[entry]) // SECTOR,
            )
        }
        untouched = [
            sector for sector in range(DISK_SECTORS) if sector not in written and base[sector * SECTOR :][:SECTOR].any()
        ]
        for one, content in zip(states, contents(composed, states, DEVICE_BYTES), strict=True):
            assert Legality.LEGAL is checker.check(content, one.instant, rule).legality
            if untouched:
                # What the first life has left on the disk is durable, whatever was flushed in that life.
                spoilt = content.copy()
                spoilt[untouched[0] * SECTOR :][:SECTOR] = 0
                assert Legality.LEGAL is not checker.check(spoilt, one.instant, rule).legality


def test_a_life_that_failed_is_a_finding_and_has_no_cuts(log: WriteLog, tmp_path: Path) -> None:
    first = parse_state("e9.f1", log, epochs(log))
    kept = Recoveries(tmp_path / "recoveries", DISK_MIB)
    keep(kept, first.id, first, log, LIFE[:9])
    with kept.open(first.id) as opened:
        finding = Finding(FindingKind.DIED, detail="the engine died by SIGSEGV")
        failed = recoverycuts.recovery_of(SECONDCUT, opened, finding, ())
        whole = recoverycuts.recovery_of(SECONDCUT, opened, Finding(FindingKind.PREFIX, 1), ((0, 512),))
        assert Recovery(first.id, ((0, 512),), (1,)) == whole
    assert failed
    kept.write_index([failed])
    assert [failed] == kept.index()
    (found,) = live_verdicts(SECONDCUT.id, recoverycuts.failures(kept))
    assert ("life-e9.f1", VerdictKind.DIED, 2) == (found.state, found.kind, found.acked)
    with ExitStack() as stack:
        cuts, facts = recoverycuts.cuts(SECONDCUT, PROFILE, Logs(log), kept, stack)
    assert ([], 0) == (cuts, facts.recovery_count)


def test_a_program_that_cannot_work_on_at_all_is_not_accused_of_it() -> None:
    finding: LiveFinding = {
        "state": "life-e9.f1", "acked": 1, "issued": 2, "kind": "died", "recovered": None,
        "detail": "it said: no --after",
    }  # fmt: skip
    useless, late = (Recovery("e9.f1", (), (1,), {**finding, "acked": acked}) for acked in (1, 2))
    for recoveries in ([useless, late], [useless, Recovery("e9.f1", (), (1,))]):
        recoverycuts.require_some(SECONDCUT, 4, recoveries)
    with pytest.raises(RecordingError, match=r"none of 4 recoveries .* in the first later life it said: no --after"):
        recoverycuts.require_some(SECONDCUT, 4, [useless])
    with pytest.raises(RecordingError, match=r"none of 4 recoveries of .* could be recorded$"):
        recoverycuts.require_some(SECONDCUT, 4, [])


def test_a_database_that_did_not_come_back_has_no_later_life(log: WriteLog, tmp_path: Path) -> None:
    first = parse_state("e9.f1", log, epochs(log))
    kept = Recoveries(tmp_path / "recoveries", DISK_MIB)
    keep(kept, first.id, first, log, LIFE[:2])
    with kept.open(first.id) as opened:
        assert recoverycuts.recovery_of(SECONDCUT, opened, Finding(FindingKind.CORRUPT), ()) is None
        assert last_number(opened.log.marks, "ack") is None


def test_later_lives_begin_where_transactions_are_left_and_are_drawn_the_same_again(log: WriteLog) -> None:
    six = replace(SECONDCUT, workload=replace(SECONDCUT.workload, transaction_count=7))
    chosen = recoverycuts.candidates(six, PROFILE, Logs(log))
    timeline = Timeline(log.marks)
    assert {0, 1} == {timeline.acked_count(state.instant) for state in chosen}
    assert len({Logs(log).digest(state) for state in chosen}) == len(chosen)
    assert [state.base_end for state in chosen] == sorted(state.base_end for state in chosen)
    assert list(chosen) == list(recoverycuts.candidates(six, PROFILE, Logs(log)))


def test_only_later_lives_are_under_a_shim_so_that_the_first_is_recorded_once() -> None:
    control, powercut = (
        matrix.select([f"sqlite-ext4-{name}"])[0] for name in ("wal_full+eatmydata_secondcut", "wal_full_powercut")
    )
    assert control.recording_key == SECONDCUT.recording_key == powercut.recording_key
    assert (Shim.NONE, Shim.EATMYDATA) == (control.orders.shim, control.reopening_orders.shim)
    later = replace(control, lives=(3, 9)).reopening_orders
    assert (3, 9) == later.lives == decode(Orders, json.loads(json.dumps(asdict(later)))).lives
    assert control.recording_key == replace(control, lives=(3, 9)).recording_key


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sqlite-nfs-wal_full_secondcut", "after a cut the rig mounts its server's disk alone"),
        ("files-ext4-append-fsync_secondcut", "recovers nothing that it could go on with"),
        ("sqlite-ext4-wal_full.writers_secondcut", "no scenario matches"),
    ],
)
def test_what_cannot_go_on_after_a_cut_is_not_measured_and_says_why(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        matrix.select([name])
