"""The matrix: every id that users can type, the default job, and messages that name the choices."""

from __future__ import annotations

import itertools
import re
from fnmatch import translate
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rig.analysis.dossiers import control_settings
from rig.contract import faultspecs
from rig.contract.devices import DEVICES, device_named
from rig.contract.errors import UsageError
from rig.contract.orders import Shim
from rig.contract.scenario import Scenario, name_of
from rig.engines import engine_named
from rig.faults import Fault
from rig.filesystems import default_filesystems
from rig.guest.programs.kills import KILLS_PER_TRANSACTION
from rig.planning import defaults, matrix

# The scenarios of one file system: the others have the same, see `test_filesystems`.
SCENARIOS = matrix.select(["sqlite-ext4-*"])
IDS = [scenario.id for scenario in SCENARIOS]
DEFAULT = defaults.default_scenarios(matrix.profile("quick"), control_settings)


def test_ids_are_unique_sorted_and_plain_ascii() -> None:
    assert sorted(set(IDS)) == IDS
    assert all(name.isascii() and not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-_+.") for name in IDS)


def test_every_fault_of_a_scenario_is_a_fault_model_that_exists() -> None:
    assert {spec.model for spec in faultspecs.SPECS.values()} - {""} == set(Fault)
    # Only a file system with a server knows the one that is left out.
    assert set(faultspecs.FAULTS) - {"servercrash"} == {scenario.fault for scenario in SCENARIOS}


def test_the_default_job_is_the_sixteen_settings_the_lives_of_those_that_promise_and_controls_with_teeth() -> None:
    modes, levels = ("delete", "truncate", "persist", "wal"), ("off", "normal", "full", "extra")
    settings = [f"{mode}_{level}" for mode, level in itertools.product(modes, levels)] + ["wal_full+eatmydata"]
    expected = {f"sqlite-ext4-{name}_{fault}" for name, fault in itertools.product(settings, ("powercut", "torn"))}
    # A setting documented as equal to another has no life of its own.
    lives = set(settings) - {f"{mode}_off" for mode in modes} - {f"{mode}_extra" for mode in modes[1:]}
    lives -= {"wal_full+eatmydata"}
    expected |= {f"sqlite-ext4-{name}.life_powercut" for name in lives} | {
        "sqlite-ext4-wal_full.life+eatmydata_powercut"
    }
    default = [scenario.id for scenario in DEFAULT]
    assert sorted(expected) == default
    assert [Shim.EATMYDATA] * 3 == [scenario.shim for scenario in DEFAULT if "+eatmydata" in scenario.id]


def test_scenarios_that_differ_in_the_fault_alone_share_a_recording() -> None:
    by_key: dict[str, set[str]] = {}
    for scenario in SCENARIOS:
        orders = scenario.orders
        # A shim of later lives alone is not part of the recording.
        name = name_of(scenario.settings, scenario.workload_name, orders.shim, scenario.tuned)
        by_key.setdefault(scenario.recording_key, set()).add(f"{name} {orders}")
    assert all(1 == len(names) for names in by_key.values())
    # One for each setting and shim, and another for each if the fault needs a mount option or an injection.
    kinds = {
        (scenario.settings_name, scenario.mount_options, faultspecs.SPECS[scenario.fault].injection)
        for scenario in SCENARIOS
    }
    assert len(by_key) == len(kinds)
    mounted = {"discard", "twodisk", "ioerror-write", "ioerror-fsync", "ioerror-fsyncs"}
    assert mounted == {scenario.fault for scenario in SCENARIOS if scenario.mount_options}


def test_there_is_a_mutant_for_every_sync_of_every_setting_and_none_in_the_default_job() -> None:
    mutants = [scenario for scenario in SCENARIOS if scenario.dropped_sync]
    names = {scenario.settings_name for scenario in mutants}
    assert (
        {f"sqlite-ext4-{name}_{fault}" for name in names for fault in ("powercut", "torn")}
        == {scenario.id for scenario in mutants}
        <= set(IDS)
    )
    assert {"wal_normal+drop-wal-checkpoint", "delete_extra+drop-directory2", "persist_full+drop-journal3"} <= names
    # NORMAL does not sync commits of a WAL, nor TRUNCATE a truncated journal; the setup made the name of the WAL.
    assert not names & {"wal_normal+drop-wal-commit", "truncate_normal+drop-journal2", "wal_full+drop-wal-directory"}
    assert not any("_off+" in name for name in names)
    assert 100 == len(mutants)
    assert not any("+drop-" in scenario.id for scenario in DEFAULT)


def test_another_workload_is_named_as_a_variant_of_the_settings_and_needs_no_injection() -> None:
    lives = [scenario for scenario in SCENARIOS if scenario.workload_name == "life"]
    assert all(".life" in scenario.id and not faultspecs.SPECS[scenario.fault].injection for scenario in lives)
    assert {"wal_full.life", "wal_full.life+eatmydata", "delete_off.life"} < {one.settings_name for one in lives}
    assert not any(engine_named(one.engine).spec.is_volatile(one.settings) for one in lives)
    assert {"10"} == {scenario.tuning["cache_size"] for scenario in lives if "wal_" not in scenario.id}
    # Smaller pages, more of them in the cache.
    assert {("1024", "40")} == {
        (scenario.tuning["page_size"], scenario.tuning["cache_size"]) for scenario in lives if "wal_" in scenario.id
    }
    ledgers = [one for one in SCENARIOS if one.workload_name == "ledger"]
    assert not any("." in one.id for one in ledgers)
    assert not any("cache_size" in one.tuning for one in ledgers)
    # What pytest's -k selects by the name of a scenario, and what a pattern without the workload selects.
    assert ["sqlite-ext4-wal_full_powercut"] == [name for name in IDS if "wal_full_powercut" in name]
    assert all(one in ledgers for one in matrix.select(["sqlite-ext4-wal_full_*"]))


def test_a_configured_scenario_keeps_its_workload() -> None:
    (life,) = matrix.configure(matrix.select(["sqlite-ext4-wal_full.life_torn"]), matrix.profile("nightly"))
    assert ("life", 120) == (life.workload.name, life.workload.transaction_count)
    assert "life" == life.orders.workload


def test_a_dishonest_disk_needs_no_shim_to_break_a_promise() -> None:
    shimmed = {scenario.fault for scenario in SCENARIOS if scenario.shim is Shim.EATMYDATA}
    # A database that is killed meanwhile is watched by the supervisor, which may swallow syncs itself.
    assert set(faultspecs.FORGETTING_FAULTS) == shimmed | {"killcut"}
    assert not {*faultspecs.DISHONEST_FAULTS, "processkill"} & shimmed


def test_a_program_that_trusts_the_clock_is_a_control_of_the_clock_arm_alone() -> None:
    own = [scenario for scenario in SCENARIOS if scenario.shim == "lastwriter"]
    assert [f"sqlite-ext4-wal_full+lastwriter_{fault}" for fault in faultspecs.CLOCK_FAULTS] == [
        scenario.id for scenario in own
    ]
    assert not any(scenario in DEFAULT for scenario in own)
    assert all(scenario in defaults.default_scenarios(matrix.profile("nightly"), control_settings) for scenario in own)
    # One pattern selects it together with its scenarios.
    assert {*(scenario.id for scenario in own)} < {scenario.id for scenario in matrix.select(["sqlite-ext4-*_clock*"])}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("mysql-ext4-wal_full_powercut", "unknown engine 'mysql' .* there are: .*sqlite"),
        ("sqlite-ntfs-wal_full_powercut", "unknown file system 'ntfs' .* there are: nfs, .* and [0-9]+ more"),
        (
            "sqlite-ext4-wal_fulll_powercut",
            "unknown settings 'wal_fulll' .*; did you mean wal_full[?] there are: wal_full, .* and [0-9]+ more",
        ),
        ("sqlite-ext4-wal_full_meteor", "unknown fault 'meteor' .* there are: torn, .* and [0-9]+ more: `rig plan"),
        ("sqlite-ext4-wal_full_powercutt", "unknown fault 'powercutt' .* did you mean powercut[?]"),
        ("sqlite-ext4-*_meteor", "unknown fault 'meteor'"),
        # The engine's own settings are named, though another engine has these.
        ("lmdb-ext4-wal_full_powercut", "unknown settings 'wal_full' .* there are: nosync, default, "),
        ("sqlite-ext4-off_off+eatmydata_torn", "unknown settings 'off_off.eatmydata'"),
        ("wal_normal", "no scenario matches 'wal_normal'; did you mean '[*]wal_normal[*]'"),
        ("", "no scenario matches ''"),
    ],
)
def test_a_pattern_that_matches_nothing_names_the_choices(pattern: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        matrix.select(["sqlite-ext4-wal_full_torn", pattern])


@cache
def every_scenario() -> list[Scenario]:
    return matrix.all_scenarios()


@example(pattern="sqlit?-ext4-wal_full_torn")
@example(pattern="sqlite-ext[34]-wal_full_torn")
@example(pattern="sqlite-ext4-wal_full_torn")
@example(pattern="sqli*_torn")
@given(pattern=st.one_of(st.text(max_size=20), st.text("sqlite-ext4*?[]_wal", max_size=25)))
def test_any_pattern_selects_what_it_matches_or_is_a_usage_error(pattern: str) -> None:
    has_dot, is_match = "." in pattern.split("-", 2)[-1], re.compile(translate(pattern)).match
    expected = [one for one in every_scenario() if is_match(one.id) and (has_dot or not one.tuned)]
    if expected:
        assert expected == matrix.select([pattern])
    else:
        with pytest.raises(UsageError):
            matrix.select([pattern])


def test_select_keeps_the_order_of_ids_and_names_no_scenario_twice() -> None:
    chosen = matrix.select(
        ["*ext4-wal_normal_to*", "*ext4-wal_normal_po*", "sqlite-ext4-wal_normal_powercut", "*ext4-delete_off_torn"]
    )
    assert [
        "sqlite-ext4-delete_off_torn", "sqlite-ext4-wal_normal_powercut", "sqlite-ext4-wal_normal_torn"
    ] == [scenario.id for scenario in chosen]  # fmt: skip
    assert sorted(IDS) == IDS
    assert [one for one in matrix.all_scenarios() if not one.tuned] == matrix.select(["*"])
    assert [] == matrix.select([])


def test_an_unknown_profile_names_the_choices() -> None:
    with pytest.raises(UsageError, match="unknown profile 'fast'; there are: smoke, quick, nightly, exhaustive"):
        matrix.profile("fast")
    with pytest.raises(UsageError, match="unknown device 'tape'; there are: none, hdd7200, hdd5400, ssd-sata"):
        device_named("tape")
    assert [DEVICES["hdd7200"], "nightly"] == [device_named("hdd7200"), matrix.profile("nightly").name]


def test_profiles_look_closer_from_one_to_the_next() -> None:
    smoke, quick, nightly, exhaustive = matrix.PROFILES.values()
    assert smoke.states_max < quick.states_max < nightly.states_max < exhaustive.states_max
    assert smoke.instants < quick.instants < nightly.instants < exhaustive.instants
    assert all(profile.exposure_min <= profile.states_max for profile in matrix.PROFILES.values())


def test_fewer_states_are_planned_at_first_but_a_zero_needs_as_many_contents() -> None:
    usual, small = matrix.profile("quick"), matrix.profile("quick", 24)
    found = {one.id.removeprefix("sqlite-ext4-"): one for one in SCENARIOS if one.id.startswith("sqlite-ext4-wal_full")}
    cut, shaken, killed = (found[f"wal_full_{fault}"] for fault in ("powercut", "recoverycut", "processkill"))
    assert [24, 24, 24] == [small.states_max_of(cut), small.states_max_of(shaken), small.instants_of(cut)]
    assert [16, 68] == [one.transactions_of(killed) for one in (small, usual)]
    for one in (cut, shaken):
        assert usual.transactions_of(one) == small.transactions_of(one)
        assert usual.exposure_of(one) == small.exposure_of(one)


def test_more_states_are_planned_if_more_are_asked_for() -> None:
    """The answer of a run names a number of states that would try more; that must not be a silent nothing."""
    torn = next(one for one in SCENARIOS if one.id == "sqlite-ext4-persist_normal_torn")
    shaken = next(one for one in SCENARIOS if one.id == "sqlite-ext4-wal_full_recoverycut")
    assert [440, 440] == [matrix.profile("quick", 440).states_max_of(one) for one in (torn, shaken)]
    nightly = matrix.profile("nightly", 640)
    assert [640, 160] == [nightly.states_max_of(one) for one in (torn, shaken)]
    assert 80 == matrix.profile("nightly", 200).states_max_of(shaken)


def test_configured_scenarios_keep_their_id_and_take_what_the_command_line_says() -> None:
    scenarios = matrix.configure(SCENARIOS, matrix.profile("nightly"), DEVICES["hdd7200"], seed=7)
    assert IDS == [scenario.id for scenario in scenarios]
    assert {(DEVICES["hdd7200"], 7)} == {(c.device, c.seed) for c in scenarios}
    # A creation is short, and several writers make four transactions at a moment.
    counts = {
        (c.workload_name, c.shim, c.workload.transaction_count)
        for c in scenarios
        if c.fault == "powercut" and "+" not in c.id
    }
    assert {("creation", "none", 12), ("writers", "none", 240)} <= counts
    assert {("none", 120)} == {(shim, count) for name, shim, count in counts if name not in {"creation", "writers"}}


def test_tuning_and_pause_make_another_recording_of_the_same_id() -> None:
    quick = matrix.profile("quick")
    chosen = matrix.select(["sqlite-ext4-wal_normal_powercut"])
    (usual,) = matrix.configure(chosen, quick)
    (tuned,) = matrix.configure(chosen, quick, tuning={"wal_autocheckpoint": "1000"})
    (faster,) = matrix.configure(chosen, quick, think_ms=100)
    assert "1000" == tuned.orders.settings["wal_autocheckpoint"]
    assert 100 == faster.orders.think_ms
    assert 1 == len({one.id for one in (usual, tuned, faster)})
    assert 3 == len({one.recording_key for one in (usual, tuned, faster)})


def test_a_tuning_reaches_only_engines_that_know_it_and_one_must() -> None:
    chosen = matrix.select(["sqlite-ext4-wal_normal_powercut", "lmdb-ext4-default_powercut"])
    found = matrix.configure(chosen, matrix.profile("quick"), tuning={"map_size": "4194304"})
    assert {"lmdb": "4194304", "sqlite": None} == {one.engine: one.tuning.get("map_size") for one in found}
    with pytest.raises(UsageError, match="unknown tuning 'wal_checkpoint'; did you mean wal_autocheckpoint"):
        matrix.configure(chosen, matrix.profile("quick"), tuning={"wal_checkpoint": "9"})


def test_what_tells_nothing_of_a_promise_takes_little_of_the_night() -> None:
    nightly = matrix.profile("nightly")
    scenarios = {
        scenario.id.removeprefix("sqlite-ext4-"): scenario
        for scenario in defaults.default_scenarios(nightly, control_settings)
    }
    drop, plain = scenarios["wal_full+drop-wal-commit_powercut"], scenarios["wal_full_powercut"]
    assert nightly.instants == nightly.instants_of(plain) > nightly.instants_of(drop) == 0
    assert nightly.reproduces(plain)
    assert not nightly.reproduces(drop)
    assert not nightly.reproduces(scenarios["wal_full_ioerror-write"])
    kills = nightly.transactions_of(scenarios["wal_full_processkill"]) * KILLS_PER_TRANSACTION // 2
    assert nightly.exposure_min <= kills
    assert nightly.transactions_of(scenarios["memory_off_processkill"]) < nightly.transactions_of(plain)
    assert {"delete_off", "wal_off", "wal_full"} < {
        name.removesuffix("_livecut-drop") for name in scenarios if name.endswith("_livecut-drop")
    }
    assert "wal_normal_livecut-drop" not in scenarios
    assert {"powercut", "torn", "oscrash", "processkill"} == {
        scenario.fault for scenario in scenarios.values() if scenario.settings_name == "wal_extra"
    }


def test_a_fault_that_an_engine_cannot_meet_is_refused_with_the_reason() -> None:
    reason = "lmdb cannot be measured under discard: it never gives space back"
    for ask in (
        lambda: matrix.select(["lmdb-ext4-default_discard"]),
        lambda: matrix.require_measurable(engine_named("lmdb"), default_filesystems()[0], "discard"),
    ):
        with pytest.raises(UsageError, match=reason):
            ask()
    assert matrix.select(["leveldb-ext4-default_sync_discard"])


@pytest.mark.parametrize(
    ("asked", "fault", "transactions", "wanted"),
    [
        (200, "powercut", 120, 200),
        (200, "torn", 12, 144),
        (60, "powercut", 12, 60),
        (200, "powercut", 1, 60),
        (200, "powercut", 0, 60),
        (200, "shorn", 12, 40),
        (5, "powercut", 0, 5),
    ],
)
def test_a_short_workload_owes_fewer_file_contents_but_never_hardly_any(
    asked: int, fault: str, transactions: int, wanted: int
) -> None:
    assert wanted == faultspecs.exposure_wanted(asked, fault, transactions, is_mutant=False)


def test_several_writers_make_twice_as_many_transactions_unless_the_user_says_how_many() -> None:
    (scenario,) = matrix.select(["sqlite-ext4-wal_full.writers_powercut"])
    assert 80 == matrix.profile("quick").transactions_of(scenario)
    assert 50 == matrix.profile("quick", transactions=50).transactions_of(scenario)
