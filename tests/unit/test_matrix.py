"""The matrix: every id that users can type, the default job, and messages that name the choices."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract import arms
from rig.contract.errors import UsageError
from rig.contract.scenario import DeviceProfile, Shim
from rig.faults import Fault
from rig.guest.programs.kills import KILLS_PER_TRANSACTION
from rig.planning import matrix

CELLS = matrix.all_cells()
IDS = [cell.id for cell in CELLS]


def test_ids_are_unique_sorted_and_plain_ascii() -> None:
    assert sorted(set(IDS)) == IDS
    assert all(name.isascii() and not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-_+") for name in IDS)


def test_every_fault_of_a_cell_is_a_fault_model_that_exists() -> None:
    assert {spec.model for spec in arms.SPECS.values()} - {""} == set(Fault)
    assert set(arms.FAULTS) == {cell.fault for cell in CELLS}


def test_the_default_job_is_the_sixteen_settings_and_the_control_with_teeth() -> None:
    modes, levels = ("delete", "truncate", "persist", "wal"), ("off", "normal", "full", "extra")
    settings = [f"{mode}_{level}" for mode, level in itertools.product(modes, levels)] + ["wal_full+eatmydata"]
    expected = {f"sqlite-ext4-{name}_{fault}" for name, fault in itertools.product(settings, ("powercut", "torn"))}
    default = [cell.id for cell in matrix.default_cells()]
    assert sorted(expected) == default
    assert [Shim.EATMYDATA] * 2 == [cell.shim for cell in matrix.default_cells() if "+eatmydata" in cell.id]


def test_cells_that_differ_in_the_fault_alone_share_a_recording() -> None:
    by_key: dict[str, set[str]] = {}
    for cell in CELLS:
        by_key.setdefault(cell.recording_key, set()).add(f"{cell.settings_name} {cell.orders}")
    assert all(1 == len(names) for names in by_key.values())
    # One for each setting and shim, and another for each where the fault asks for a mount option or for an injection.
    kinds = {(cell.settings_name, cell.mount_options, arms.SPECS[cell.fault].injection) for cell in CELLS}
    assert len(by_key) == len(kinds)
    mounted = {"discard", "twodisk", "ioerror-write", "ioerror-fsync", "ioerror-fsyncs"}
    assert mounted == {cell.fault for cell in CELLS if cell.mount_options}


def test_there_is_a_mutant_for_every_sync_of_every_setting_and_none_in_the_default_job() -> None:
    mutants = matrix.mutation_cells()
    names = {cell.settings_name for cell in mutants}
    assert (
        {f"sqlite-ext4-{name}_{fault}" for name in names for fault in ("powercut", "torn")}
        == {cell.id for cell in mutants}
        <= set(IDS)
    )
    assert {"wal_normal+drop-wal-checkpoint", "delete_extra+drop-directory2", "persist_full+drop-journal3"} <= names
    # NORMAL syncs no commit of a WAL, and TRUNCATE no journal after it was cut; the name of a WAL is from the setup.
    assert not names & {"wal_normal+drop-wal-commit", "truncate_normal+drop-journal2", "wal_full+drop-wal-directory"}
    assert not any("_off+" in name for name in names)
    assert 100 == len(mutants)
    assert not any("+drop-" in cell.id for cell in matrix.default_cells())


def test_a_dishonest_disk_needs_no_shim_to_break_a_promise() -> None:
    shimmed = {cell.fault for cell in CELLS if cell.shim is Shim.EATMYDATA}
    assert set(arms.FORGETTING_FAULTS) == shimmed
    assert not {*arms.DISHONEST_FAULTS, "processkill"} & shimmed


def test_a_program_that_trusts_the_clock_is_a_control_of_the_clock_arm_alone() -> None:
    own = [cell for cell in CELLS if cell.shim is Shim.LASTWRITER]
    assert [f"sqlite-ext4-wal_full+lastwriter_{fault}" for fault in arms.CLOCK_FAULTS] == [cell.id for cell in own]
    assert not any(cell in matrix.default_cells() for cell in own)
    assert all(cell in matrix.default_cells(matrix.profile("nightly")) for cell in own)
    # One pattern takes it along with the cells that it speaks for.
    assert {*(cell.id for cell in own)} < {cell.id for cell in matrix.select(["sqlite-ext4-*_clock*"])}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("mysql-ext4-wal_full_powercut", "unknown engine 'mysql' .* there are: sqlite"),
        ("sqlite-ntfs-wal_full_powercut", "unknown file system 'ntfs' .* there are: ext4"),
        (
            "sqlite-ext4-wal_fulll_powercut",
            r"unknown settings 'wal_fulll' .* did you mean wal_full\? there are: wal_full, .* and \d+ more",
        ),
        ("sqlite-ext4-wal_full_meteor", "unknown fault 'meteor' .* there are: .*misdirected, "),
        ("sqlite-ext4-*_meteor", "unknown fault 'meteor'"),
        ("sqlite-ext4-off_off+eatmydata_torn", "unknown settings 'off_off.eatmydata'"),
        ("wal_normal", r"no cell matches 'wal_normal'; did you mean '\*wal_normal\*'\?"),
        ("", "no cell matches ''"),
    ],
)
def test_a_pattern_that_matches_nothing_names_the_choices(pattern: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        matrix.select(["sqlite-ext4-wal_full_torn", pattern])


@given(pattern=st.one_of(st.text(max_size=20), st.text("sqlite-ext4*?[]_wal", max_size=25)))
def test_any_pattern_selects_what_it_matches_or_is_a_usage_error(pattern: str) -> None:
    expected = [cell for cell in CELLS if fnmatchcase(cell.id, pattern)]
    if expected:
        assert expected == matrix.select([pattern])
    else:
        with pytest.raises(UsageError):
            matrix.select([pattern])


def test_select_keeps_the_order_of_ids_and_names_no_cell_twice() -> None:
    chosen = matrix.select(
        ["*-wal_normal_to*", "*-wal_normal_po*", "sqlite-ext4-wal_normal_powercut", "*-delete_off_torn"]
    )
    assert [
        "sqlite-ext4-delete_off_torn", "sqlite-ext4-wal_normal_powercut", "sqlite-ext4-wal_normal_torn"
    ] == [cell.id for cell in chosen]  # fmt: skip
    assert IDS == [cell.id for cell in matrix.select(["*"])]
    assert [] == matrix.select([])


def test_an_unknown_profile_names_the_choices() -> None:
    with pytest.raises(UsageError, match="unknown profile 'fast'; there are: quick, nightly, exhaustive"):
        matrix.profile("fast")
    with pytest.raises(UsageError, match="unknown device profile 'tape'; there are: none, ssd, hdd"):
        matrix.device_profile("tape")
    assert [DeviceProfile.HDD, "nightly"] == [matrix.device_profile("hdd"), matrix.profile("nightly").name]


def test_profiles_look_closer_from_one_to_the_next() -> None:
    quick, nightly, exhaustive = (matrix.PROFILES[name] for name in ("quick", "nightly", "exhaustive"))
    assert quick.states_max < nightly.states_max < exhaustive.states_max
    assert quick.instants < nightly.instants < exhaustive.instants
    assert all(profile.exposure_min <= profile.states_max for profile in matrix.PROFILES.values())


def test_configured_cells_keep_their_id_and_take_what_the_command_line_says() -> None:
    cells = matrix.configured(CELLS, matrix.profile("nightly"), DeviceProfile.HDD, seed=7)
    assert IDS == [cell.id for cell in cells]
    assert {(DeviceProfile.HDD, 7)} == {(c.profile, c.seed) for c in cells}
    assert {("none", 120)} == {
        (c.shim, c.workload.transaction_count) for c in cells if c.fault == "powercut" and "+" not in c.id
    }


def test_what_tells_nothing_of_a_promise_takes_little_of_the_night() -> None:
    nightly = matrix.profile("nightly")
    cells = {cell.id.removeprefix("sqlite-ext4-"): cell for cell in matrix.default_cells(nightly)}
    drop, plain = cells["wal_full+drop-wal-commit_powercut"], cells["wal_full_powercut"]
    assert nightly.instants == nightly.instants_of(plain) > nightly.instants_of(drop) == 0
    assert nightly.reproduces(plain)
    assert not nightly.reproduces(drop)
    assert not nightly.reproduces(cells["wal_full_ioerror-write"])
    kills = nightly.transactions_of(cells["wal_full_processkill"]) * KILLS_PER_TRANSACTION - 1
    assert nightly.exposure_min <= kills
    assert nightly.transactions_of(cells["memory_off_processkill"]) < nightly.transactions_of(plain)
    assert {"delete_off", "wal_off", "wal_full"} < {
        name.removesuffix("_livecut-drop") for name in cells if name.endswith("_livecut-drop")
    }
    assert "wal_normal_livecut-drop" not in cells
    assert {"powercut", "torn", "oscrash", "processkill"} == {
        cell.fault for cell in cells.values() if cell.settings_name == "wal_extra"
    }
