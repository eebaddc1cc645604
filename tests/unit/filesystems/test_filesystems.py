"""File systems: their words in ids, and what a file system that keeps too little means for promises and controls."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rig.analysis.dossiers import Keeps, control_settings
from rig.analysis.judging.outcome import Result, Row, Summary, summarise
from rig.analysis.judging.promises import promise_for, promise_of
from rig.analysis.show.report import report_html
from rig.analysis.show.table import headline, table_text
from rig.contract.errors import RecordingError, UsageError
from rig.contract.faultspecs import CACHE_LOSING_FAULTS, CRASH_FAULTS, SPECS
from rig.contract.findings import Finding, FindingKind
from rig.contract.geometry import CHUNK_BYTES
from rig.contract.messages import decode
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from rig.filesystems import (
    Mirrored,
    TwoDisks,
    default_filesystems,
    disks_mib,
    filesystem_named,
    filesystems,
    holding,
    syncs_on_close,
    unsafe,
)
from rig.filesystems.nfs import exported_with
from rig.front.pytest_plugin import Measured
from rig.front.selection import select, with_controls
from rig.planning import matrix
from rig.recordings import soundness
from tests.unit.samples import changed, controls_that_fire, durable, measured_scenario, sqlite, verdict

NO_BARRIERS = ("ext3.nobarrier", "ext4.nobarrier", "f2fs.nobarrier")
SOUND = (
    "btrfs", "btrfs.nocow", "btrfs.nodatacow", "btrfs.raid1", "btrfs.zstd", "ext3", "ext4", "ext4.commit1",
    "ext4.commit30", "ext4.fastcommit", "ext4.journal", "ext4.nodelalloc", "ext4.raid1", "ext4.writeback", "f2fs",
    "f2fs.strict", "nfs", "xfs",
)  # fmt: skip
LOSS = verdict(VerdictKind.LOST_SUFFIX, 1, "lost")


def on(word: str, scenario: MeasuredScenario) -> MeasuredScenario:
    """Return a scenario as if it had been measured on another file system."""
    return changed(scenario, filesystem=word)


def wal_full(word: str, verdicts: Sequence[Verdict] = (), fault: str = "powercut") -> MeasuredScenario:
    return on(word, measured_scenario(sqlite("wal", "full"), [*durable(120), *verdicts], fault))


def row_of(summary: Summary, name: str = "wal_full") -> Row:
    (row,) = (row for row in summary.rows if row.outcome.settings_name == name)
    return row


def test_every_word_fits_into_an_id_and_names_its_disk() -> None:
    for one in filesystems():
        assert re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)?", one.word)
        assert 0 == (one.disk_mib_min << 20) % CHUNK_BYTES
        assert set(one.unsafe) | set(one.options_by_fault) <= set(SPECS)


def test_a_variant_is_part_of_the_word_and_is_measured_by_name_only() -> None:
    (default,) = default_filesystems()
    for profile in matrix.PROFILES.values():
        assert {default.word} == {scenario.filesystem for scenario in select((), profile)}
    words = {scenario.filesystem for scenario in matrix.select(["sqlite-ext3*-wal_full_powercut"])}
    assert {"ext3", "ext3.nobarrier"} == words


def test_a_fault_that_a_file_system_cannot_have_is_a_usage_error_that_says_so() -> None:
    with pytest.raises(UsageError, match="ext2 cannot be measured under twodisk: it cannot lie on two disks"):
        matrix.select(["sqlite-ext2-wal_full_twodisk"])
    assert matrix.select(["sqlite-ext3-wal_full_twodisk"])


@pytest.mark.parametrize("word", ["btrfs.raid1", "ext4.raid1"])
def test_a_mirror_is_measured_on_two_disks_alone_and_another_fault_is_a_usage_error_that_says_so(word: str) -> None:
    assert matrix.select([f"sqlite-{word}-wal_full_twodisk"])
    for fault in sorted(set(SPECS) - {"twodisk"}):
        with pytest.raises(UsageError, match=f"{word} cannot be measured under {fault}: "):
            matrix.select([f"sqlite-{word}-wal_full_{fault}"])


def test_two_disks_have_the_size_of_the_whole_between_them() -> None:
    for one in filesystems():
        is_mirror = isinstance(one, Mirrored)
        if isinstance(one, TwoDisks):
            sizes_mib = disks_mib(one, on_two=True)
            assert one.disk_mib_min == sum(sizes_mib)
            assert all(size > 0 == (size << 20) % CHUNK_BYTES for size in sizes_mib)
            assert is_mirror is (sizes_mib[0] == sizes_mib[1])
        else:
            with pytest.raises(UsageError, match=f"{one.word} cannot lie on two disks"):
                disks_mib(one, on_two=True)
    assert (64,) == disks_mib(filesystem_named("ext4"), on_two=False)


@pytest.mark.parametrize("fault", ["ioerror-write", "diskfull-log", "livecut-drop"])
def test_a_fault_after_which_the_server_would_have_to_be_mended_is_a_usage_error_that_says_so(fault: str) -> None:
    with pytest.raises(UsageError, match=f"nfs cannot be measured under {fault}: the rig mends no server"):
        matrix.select([f"sqlite-nfs-wal_full_{fault}"])
    assert matrix.select([f"sqlite-ext4-wal_full_{fault}"])


def test_only_a_server_can_crash_without_its_client() -> None:
    assert matrix.select(["sqlite-nfs-wal_full_servercrash"])
    with pytest.raises(UsageError, match="ext4 cannot be measured under servercrash: it has no server"):
        matrix.select(["sqlite-ext4-wal_full_servercrash"])


def test_through_a_server_nothing_is_cut_by_where_a_file_is_on_its_disk() -> None:
    with pytest.raises(UsageError, match="nfs cannot be measured under recoverycut: it does not tell where on"):
        matrix.select(["sqlite-nfs-wal_full_recoverycut"])


def test_where_a_file_is_durable_when_it_is_closed_settings_that_close_it_need_not_lose() -> None:
    assert ["nfs"] == [one.word for one in filesystems() if syncs_on_close(one.word)]
    for word, losing in (("ext4", ("delete_off", "wal_off")), ("nfs", ("wal_off",))):
        assert losing == control_settings("sqlite", "powercut", word)
    full = wal_full("nfs")
    damage = replace(LOSS, kind=VerdictKind.CORRUPT, recovered=None)
    for verdicts, result in (([LOSS], Result.KEPT), ([damage], Result.INCONCLUSIVE)):
        control = on("nfs", measured_scenario(sqlite("wal", "off"), verdicts))
        assert result is row_of(summarise([control, full], 60)).judgement.result
    off = on("ext4", measured_scenario(sqlite("wal", "off"), [LOSS]))
    assert Result.INCONCLUSIVE is row_of(summarise([off, wal_full("ext4")], 60)).judgement.result
    assert ("append-none",) == control_settings("files", "powercut", "nfs")


def test_the_options_of_an_export_are_read_from_its_cache() -> None:
    content = "#path domain(flags)\n/mnt\trig(rw,no_root_squash,sync,wdelay,no_subtree_check,fsid=0)\n"
    assert ["rw", "no_root_squash", "sync", "wdelay", "no_subtree_check", "fsid=0"] == exported_with(content)
    assert [] == exported_with("#path domain(flags)\n")


def test_without_barriers_nothing_is_safe_that_needs_the_cache_of_the_disk_and_without_a_journal_nothing_at_all() -> (
    None
):
    for fault in SPECS:
        for word in SOUND:
            assert unsafe(word, fault) == ""
        for word in NO_BARRIERS:
            assert (fault in CACHE_LOSING_FAULTS) is bool(unsafe(word, fault))
        for word in ("ext2", "nfs.async"):
            assert (fault in CRASH_FAULTS) is bool(unsafe(word, fault))
    spared = {"oscrash", "livecut-drop", "processkill"}
    assert spared == set(SPECS) - set(CACHE_LOSING_FAULTS)
    assert {"processkill"} == set(SPECS) - set(CRASH_FAULTS)
    assert unsafe("a file system of another rig", "powercut") == ""


def test_a_file_system_that_keeps_too_little_takes_the_promise_away_and_no_other_does() -> None:
    documented = promise_for("sqlite", sqlite("wal", "full"), "powercut", "none")
    for word in SOUND:
        assert documented == promise_of(wal_full(word).scenario)
    for word in ("ext2", "nfs.async", *NO_BARRIERS):
        found = promise_of(wal_full(word).scenario)
        assert found
        assert Keeps.ANYTHING is found.keeps
        assert unsafe(word, "powercut") in found.note
    assert documented == promise_of(wal_full("ext4.nobarrier", fault="oscrash").scenario)


@pytest.mark.parametrize("word", ["ext2", "nfs.async", *NO_BARRIERS])
def test_what_is_lost_on_it_is_shown_breaks_nothing_and_is_the_control(word: str) -> None:
    summary = summarise([wal_full(word, [LOSS])], 60)
    row = row_of(summary)
    assert (Result.NOT_JUDGED, "not judged") == (row.judgement.result, row.result_text)
    assert (Result.INCONCLUSIVE, 3) == (summary.result, summary.exit_code)
    assert 1 == row.outcome.lost_max
    seen = "0 of 121 file contents came back damaged, 0 of them silently wrong, and 1 of 121 states lost acknowledged"
    words = f"not judged, because {unsafe(word, 'powercut')}: {seen} transactions"
    assert words in row.judgement.reasons
    assert words in table_text(summary)
    assert "kept" not in headline(summary)
    # A durability test on it has proven nothing.
    with pytest.raises(pytest.fail.Exception, match="not judged, expected kept"):
        Measured(row, summary, {}).check()
    (control,) = summary.controls
    assert control.fired
    assert "1 states lost transactions" in control.what
    assert unsafe(word, "powercut") in report_html(summary, {})


@pytest.mark.parametrize(
    "harm",
    [
        LOSS,
        verdict(VerdictKind.CORRUPT, 0, "corrupt"),
        verdict(VerdictKind.FILESYSTEM_DAMAGE, 0, "damaged"),
        replace(verdict(state="repaired"), repaired=True),
    ],
    ids=lambda one: one.state,
)
def test_any_harm_fires_the_control(harm: Verdict) -> None:
    assert [True] == [control.fired for control in summarise([wal_full("ext2", [harm])], 60).controls]


def test_a_rig_that_sees_no_harm_without_barriers_is_blind() -> None:
    summary = summarise([wal_full("ext4.nobarrier")], 60)
    assert [False] == [control.fired for control in summary.controls]
    assert Result.INCONCLUSIVE is summary.result


def test_without_the_settings_that_must_take_harm_the_others_prove_nothing() -> None:
    other = on("ext4.nobarrier", measured_scenario(sqlite("delete", "off"), durable(120)))
    summary = summarise([other], 60)
    assert [(None, "wal_full")] == [(control.fired, control.name) for control in summary.controls]
    assert Result.INCONCLUSIVE is summary.result


def pattern(filesystem: str, name: str, verdicts: list[Verdict], shim: str = "none") -> MeasuredScenario:
    made = measured_scenario(sqlite("wal", "full"), [*durable(120), *verdicts])
    return changed(made, engine="files", filesystem=filesystem, shim=shim, settings={"pattern": name})


def test_a_file_system_whose_directories_are_safe_without_barriers_is_seen_to_lose_elsewhere() -> None:
    """A sync of a directory writes a checkpoint on f2fs, and that flushes the disk whatever fsync_mode is."""
    for harm, fired in (([LOSS], True), ([], False)):
        both = [pattern("f2fs.nobarrier", "append-fsync", harm), pattern("f2fs.nobarrier", "create-synced", [])]
        (control,) = summarise(both, 60).controls
        assert (fired, "append-fsync or create-synced") == (control.fired, control.name)


def test_a_program_that_closes_its_files_needs_no_syncs_on_a_network_file_system() -> None:
    for word, names in (
        ("nfs", {"append-fsync+eatmydata"}),
        ("ext4", {"append-fsync+eatmydata", "create-synced+eatmydata"}),
    ):
        swallowed = [pattern(word, name, [LOSS], "eatmydata") for name in ("append-fsync", "create-synced")]
        controls = summarise(swallowed, 60).controls
        assert names == {control.name for control in controls if control.name.endswith("eatmydata")}


def test_where_files_keep_their_order_settings_without_syncs_need_not_be_damaged() -> None:
    losing = [on("ext4", measured_scenario(sqlite(mode, "off"), [LOSS])) for mode in ("delete", "wal")]
    for word, is_kept in (("btrfs", False), ("btrfs.flushoncommit", True), ("ext4", False), ("ext4.journal", True)):
        summary = summarise([*(on(word, one) for one in losing), wal_full(word)], 60)
        assert is_kept is (row_of(summary).judgement.result is Result.KEPT)


def test_under_other_faults_it_needs_no_control() -> None:
    summary = summarise([wal_full("ext4.nobarrier", [LOSS], "discard")], 60)
    assert () == summary.controls
    assert [Result.NOT_JUDGED] == [row.judgement.result for row in summary.rows]


def test_where_the_disk_keeps_its_cache_the_promise_is_what_it_is_elsewhere() -> None:
    others = [on("ext4.nobarrier", one) for one in controls_that_fire("oscrash")]
    kept, broken = (summarise([*others, wal_full("ext4.nobarrier", lost, "oscrash")], 60) for lost in ([], [LOSS]))
    assert Result.KEPT is row_of(kept).judgement.result
    assert "kept" == row_of(kept).result_text
    assert Result.BROKEN is row_of(broken).judgement.result


def test_its_controls_are_the_strict_settings_and_no_program_sabotages_what_nobody_promises() -> None:
    added = with_controls(matrix.select(["sqlite-ext4.nobarrier-delete_off_powercut"]))
    assert ["delete_off", "wal_full"] == [scenario.settings_name for scenario in added]
    plain = with_controls(matrix.select(["sqlite-ext4.writeback-wal_full_powercut"]))
    assert ["delete_off", "wal_full+eatmydata", "wal_full", "wal_off"] == [one.settings_name for one in plain]
    shims = {one.shim for one in matrix.all_scenarios() if unsafe(one.filesystem, one.fault)}
    assert {"none"} == shims


def test_fewer_states_are_enough_where_nothing_is_promised() -> None:
    profile = matrix.profile("quick")
    (bare,) = matrix.select(["sqlite-ext4.nobarrier-wal_full_powercut"])
    (sound,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
    assert 0 == profile.exposure_of(bare) < profile.exposure_of(sound)
    assert profile.states_max_of(bare) < profile.states_max_of(sound)


def test_the_table_says_on_which_file_system_a_row_is() -> None:
    text = table_text(summarise([wal_full("ext2", [LOSS]), wal_full("ext4.nobarrier", [LOSS])], 60))
    titles = [line for line in text.splitlines() if " | device ssd-sata" in line]
    assert [
        "sqlite | ext2 | device ssd-sata | powercut",
        "sqlite | ext4.nobarrier | device ssd-sata | powercut",
    ] == titles


def test_a_repair_reaches_the_verdict_and_the_report() -> None:
    finding = Finding(FindingKind.PREFIX, 3, repaired=True)
    assert finding == decode(Finding, asdict(finding))
    row = row_of(summarise([wal_full("ext2", [replace(verdict(state="one"), repaired=True)])], 60))
    assert "1 states in which the file system was repaired" in row.judgement.reasons


def test_how_it_was_made_and_mounted_is_in_the_report() -> None:
    one = wal_full("ext4")
    read_back = {"format": "Block size: 4096", "mount": "rw,data=ordered"}
    page = report_html(summarise([replace(one, recording=replace(one.recording, filesystem=read_back))], 60), {})
    assert "Block size: 4096" in page
    assert "rw,data=ordered" in page


@pytest.mark.parametrize("word", [one.word for one in filesystems()])
def test_a_mount_without_the_words_of_the_file_system_voids_a_recording(word: str) -> None:
    expected = ",".join(filesystem_named(word).reads_back)
    soundness.require_mounted("it is void", word, f"rw,{expected},commit=5")
    for missing in filesystem_named(word).reads_back:
        others = ",".join(set(filesystem_named(word).reads_back) - {missing})
        with pytest.raises(RecordingError, match=f"it is void: it should be mounted with {missing}, and the kernel"):
            soundness.require_mounted("it is void", word, f"rw,{others},no{missing}")


@pytest.mark.parametrize("found", ["", "-", "-,C"])
def test_files_without_the_attribute_that_makes_the_variant_void_a_recording(found: str) -> None:
    soundness.require_attributes("it is void", "btrfs.nocow", "C")
    soundness.require_attributes("it is void", "btrfs.nodatacow", found)
    with pytest.raises(RecordingError, match=f"it is void: all files should have the attribute C, and .*'{found}'"):
        soundness.require_attributes("it is void", "btrfs.nocow", found)


@pytest.mark.parametrize("word", ["ext2", "ext3", "ext4"])
def test_a_file_system_with_a_fixed_number_of_files_has_room_for_those_of_an_engine(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The guest's agent is root, whose PATH has the tools of file systems; the PATH of these tests' user may not.
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin")
    plain = filesystem_named(word)
    assert plain is holding(plain, 0)
    counts = []
    for wanted in (0, 10, 1000):
        disk = tmp_path / f"{word}-{wanted}"
        with open(disk, "wb") as file:
            file.truncate(plain.disk_mib_min << 20)
        made = holding(plain, wanted)
        made.make(str(disk))
        (count,) = re.findall(r"Inode count: (\d+)", made.made_as(str(disk)))
        counts.append(int(count))
    assert counts[0] == counts[1] == 256
    assert counts[2] >= 1000


def test_a_file_system_that_makes_room_as_it_goes_is_left_as_it_is() -> None:
    for word in ("xfs", "btrfs"):
        assert filesystem_named(word) is holding(filesystem_named(word), 1000)
