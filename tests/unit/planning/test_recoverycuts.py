"""The cuts of recorded recoveries: named by the whole way, judged at the first cut, refused from other recordings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract import geometry
from rig.contract.errors import RecordingError
from rig.faults import Address, ContentIndex, CrashState, Logs, WriteLog, epochs, parse_state
from rig.filesystems.ext import DISK_MIB
from rig.planning import recoverycuts
from rig.planning.matrix import PROFILES
from rig.recordings.recoveries import Recoveries, Recovery, self_contained
from tests.unit.faults.log.test_log import FLUSH, FUA, Entry, encode
from tests.unit.planning.test_cuts import ENTRIES, POWERCUT

SCENARIO = replace(POWERCUT, fault="recoverycut")
PROFILE = PROFILES["quick"]
# The zeros go where something stands.
RECOVERY = [Entry(FUA, 8, 8, 6), Entry(0, 32, 8, 7), Entry(FLUSH), Entry(0, 0, 8, 0), Entry(0, 56, 8, 9), Entry(FLUSH)]
FILES = ((32 * 512, 8 * 512),)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WriteLog]:
    (tmp_path / "log").write_bytes(encode(ENTRIES))
    with WriteLog.open(tmp_path / "log") as opened:
        yield opened


def keep(kept: Recoveries, address: str, state: CrashState, log: WriteLog, entries: list[Entry]) -> Recovery:
    """Keep a recovery from a state that wrote these entries."""
    data = self_contained(address, state, log, encode(entries), DISK_MIB << 20)
    path = log.path.with_name("composed")
    path.write_bytes(data)
    with WriteLog.open(path) as composed:
        disk = composed.replay(composed.entry_count, DISK_MIB << 20)
    kept.save(address, data, geometry.disk_digest(row.tobytes() for row in disk.reshape(-1, geometry.CHUNK_BYTES)))
    return Recovery(address, FILES)


def test_every_cut_of_a_recovery_is_judged_at_the_first_cut_and_named_by_the_way_there(
    log: WriteLog, tmp_path: Path
) -> None:
    kept = Recoveries(tmp_path / "recoveries", DISK_MIB)
    first = parse_state("e9.f1.w7", log, epochs(log))
    rows = [keep(kept, first.id, first, log, RECOVERY)]
    with kept.open(first.id) as opened:
        begin = opened.first_entry + 1
        second = parse_state(f"e{begin + 2}.f1", opened.log, epochs(opened.log))
        deeper = str(Address(first.id).then(second.id))
        rows.append(keep(kept, deeper, second, opened.log, [Entry(0, 16, 8, 3), Entry(FLUSH)]))
    kept.write_index(rows)
    with ExitStack() as stack:
        found, facts = recoverycuts.cuts(SCENARIO, PROFILE, Logs(log), kept, stack)
        all_cuts = [cut for _, cuts in found for cut in cuts]
        assert {first.instant} == {cut.entry for cut in all_cuts}
        assert {0} == {cut.weight_ns for cut in all_cuts}
        assert [{first.id}, {deeper}] == [{Address.parse(cut.address).before for cut in cuts} for _, cuts in found]
        assert len({cut.content for cut in all_cuts}) == len(all_cuts) == facts.state_count
        for opened, cuts in found:
            assert ContentIndex(opened.log).digest(opened.start()) not in {cut.content for cut in cuts}
        # After the FUA write; with the write to a file; with either or both of the last two.
        assert [5, 1] == [len(cuts) for _, cuts in found]
        assert (2, 3) == (facts.recovery_count, facts.inside_count)
        assert facts.epochs_exhaustive < facts.epoch_count


@pytest.mark.parametrize("rows", [["e9.f1.w8"], ["e9.f1.w7~e5.f0"], ["e9.f1.w77"]])
def test_a_recovery_of_another_state_or_without_the_one_it_follows_is_not_cut(
    log: WriteLog, tmp_path: Path, rows: list[str]
) -> None:
    kept = Recoveries(tmp_path / "recoveries", DISK_MIB)
    other = parse_state("e9.f1.w7", log, epochs(log))
    # The log of one under the name of the other.
    for text in rows:
        keep(kept, text, other, log, RECOVERY)
    kept.write_index([Recovery(text, FILES) for text in rows])
    with (
        ExitStack() as stack,
        pytest.raises(RecordingError, match=r"another content|lacks the recovery|no crash state"),
    ):
        recoverycuts.cuts(SCENARIO, PROFILE, Logs(log), kept, stack)


def test_without_an_index_the_recoveries_were_not_all_recorded(log: WriteLog, tmp_path: Path) -> None:
    with ExitStack() as stack, pytest.raises(RecordingError, match="not all recorded"):
        recoverycuts.cuts(SCENARIO, PROFILE, Logs(log), Recoveries(tmp_path, DISK_MIB), stack)


def test_every_profile_cuts_a_handful_of_recoveries_and_the_exhaustive_one_many() -> None:
    counts = [recoverycuts.first_count(profile) for profile in PROFILES.values()]
    assert [4, 8, 8, 50] == counts
    second, third = Recovery("e1.f0", ()), Recovery("e1.f0~e2.f0", ())
    assert [20, 10] == [recoverycuts.states_max(PROFILE, one) for one in (second, third)]
