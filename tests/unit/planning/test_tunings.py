"""Tunings with a word in ids: what they are, where they are offered, and that the rest of the matrix stays as it is."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from hashlib import blake2b

import pytest

from rig.analysis.dossiers import control_settings
from rig.analysis.judging.controls import check_controls, doubts, group_of, is_control
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import summarise
from rig.analysis.show.table import table_text
from rig.contract.errors import UsageError
from rig.contract.orders import Shim
from rig.contract.results import VerdictKind
from rig.contract.scenario import COMPANY_FAULTS, NEIGHBOURS, WRITEBACK, name_of
from rig.engines import Tuning, engine_named
from rig.engines.sqlite.spec import SPEC
from rig.front.selection import with_controls
from rig.planning import defaults, matrix, tunings
from tests.unit import samples

TUNED = [one for one in matrix.select(["sqlite-ext4-*.*"]) if one.tuned]
NIGHTLY = defaults.default_scenarios(matrix.profile("nightly"), control_settings)


def test_a_tuning_is_named_after_the_settings_and_before_workload_and_shim() -> None:
    assert "wal_full.page512.life+eatmydata" == name_of({"a": "wal", "b": "full"}, "life", "eatmydata", "page512")
    (found,) = matrix.select(["sqlite-ext4-wal_full.page512_powercut"])
    assert ("512", "60") == tuple(found.orders.settings[name] for name in ("page_size", "wal_autocheckpoint"))
    assert {"journal_mode": "wal", "synchronous": "full"} == found.settings


def test_every_word_is_offered_with_settings_that_promise_something_and_no_injection() -> None:
    assert {*SPEC.tunings, *NEIGHBOURS} == {one.tuned for one in TUNED}
    assert set(tunings.FAULTS) == {one.fault for one in TUNED}
    assert not any(SPEC.is_unprotected(one.settings) or one.workload_name != "ledger" for one in TUNED)
    tuned = [one for one in TUNED if one.tuned not in NEIGHBOURS]
    assert all({**SPEC.tuning, **SPEC.tunings[one.tuned].values} == one.tuning for one in tuned)
    # A file system that keeps nothing has no promise to break.
    assert not [
        one
        for one in matrix.all_scenarios()
        if one.tuned and one.filesystem == "ext4.nobarrier" and one.fault == "torn"
    ]


def test_a_neighbour_is_offered_beside_settings_that_promise_something_and_changes_nothing_else() -> None:
    beside = [one for one in TUNED if one.tuned in NEIGHBOURS]
    for word in NEIGHBOURS:
        assert set(COMPANY_FAULTS[word]) == {one.fault for one in beside if one.tuned == word}
    assert {"wal_full.neighbour", "wal_full.writeback", "wal_full.neighbour+eatmydata"} <= {
        one.settings_name for one in beside
    }
    assert {"none", "eatmydata"} == {one.shim for one in beside}
    for one in beside:
        alone = replace(one, tuned="")
        assert replace(one.orders, neighbour="") == alone.orders
        assert one.recording_key != alone.recording_key
        assert group_of(one) != group_of(alone)
    at_night = {(one.tuned, one.fault) for one in NIGHTLY if one.tuned in NEIGHBOURS}
    assert {(WRITEBACK, "powercut")} == at_night
    programs = matrix.scenarios_of([engine_named("program")])
    names = {one.id for one in programs if one.tuned}
    assert {"program-ext4-atomic.neighbour_torn", "program-xfs-durable.neighbour+eatmydata_powercut"} <= names
    assert not any("-nfs-" in name or "creation" in name for name in names)


def test_a_recording_with_one_client_and_no_neighbour_has_the_key_that_it_had_before_there_were_any() -> None:
    (found,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
    unusual = {"lives", "failed", "neighbour", "client_count"}
    message = {name: value for name, value in asdict(found.orders).items() if name not in unusual}
    digest = blake2b(json.dumps(message, sort_keys=True).encode(), digest_size=8).hexdigest()
    assert digest == found.recording_key
    assert digest != tunings.with_clients(found, 2).recording_key != tunings.with_clients(found, 3).recording_key


def test_a_pattern_without_the_dot_means_what_it_did_before() -> None:
    patterns = ["*", "sqlite-ext4-wal_*_powercut", "sqlite-ext4.*-wal_full_torn"]
    assert not any(one.tuned for one in matrix.select(patterns))
    assert {"page512"} == {one.tuned for one in matrix.select(["sqlite-ext4-*.page512_torn"])}


def test_by_default_a_chosen_few_are_measured_at_night_and_none_else() -> None:
    assert not any(one.tuned for one in defaults.default_scenarios(matrix.profile("quick"), control_settings))
    found = {one.settings_name for one in NIGHTLY if one.tuned}
    some = {"wal_full.page512", "wal_full.page512+eatmydata", "delete_full.page512", "wal_normal.autocheckpoint1"}
    some |= {"persist_normal.writeback", "wal_full.writeback", "wal_full.writeback+eatmydata"}
    assert some < found
    assert not found & {"delete_normal.page512", "wal_full.page1024", "wal_full.page1024+eatmydata"}
    assert {"powercut", "torn"} == {one.fault for one in NIGHTLY if one.tuned}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("delete_full.autocheckpoint1_powercut", "with autocheckpoint1 at delete_full: only a WAL has checkpoints"),
        ("delete_full.sizelimit_torn", "with sizelimit at delete_full: .* the journal is deleted"),
        ("wal_extra.page512_powercut", "wal_extra is the same as wal_full, so page512 is measured only with that"),
        ("wal_off.page512+eatmydata_torn", "wal_off promises nothing, so it is not measured with page512"),
        ("wal_full.neighbour_recoverycut", "with neighbour is measured only under oscrash, .*, not under recoverycut"),
        ("wal_off.neighbour_torn", "wal_off promises nothing, so it is not measured with neighbour"),
        ("wal_full.page512_bitrot", "with page512 is measured only under oscrash, .*, not under bitrot"),
        ("wal_full.page513_torn", "unknown settings 'wal_full.page513' .* did you mean wal_full.page512[?]"),
        ("wal_full.page512_meteor", "unknown fault 'meteor'"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        matrix.select([f"sqlite-ext4-{name}"])


def test_a_reason_belongs_to_one_choice_of_one_setting() -> None:
    tuning = Tuning({"a": "1"}, {"mode": {"x": "it is x"}})
    assert ("it is x", "", "") == tuple(tuning.why_not(one) for one in ({"mode": "x"}, {"mode": "y"}, {"other": "x"}))


def test_a_tuning_has_its_own_group_with_the_control_of_swallowed_syncs() -> None:
    measured = with_controls(matrix.select(["sqlite-ext4-persist_full.page512_torn"]))
    assert ["persist_full.page512", "wal_full.page512+eatmydata"] == [one.settings_name for one in measured]
    assert 1 == len({group_of(one) for one in measured})
    tuned, plain = matrix.select(["sqlite-ext4-persist_full.page512_torn", "sqlite-ext4-persist_full_torn"])
    assert group_of(plain) != group_of(tuned)
    assert "sqlite on ext4, torn, with page512" == str(group_of(tuned))
    assert [True, False] == [is_control(one) for one in reversed(measured)]


def test_without_its_own_control_a_tuning_is_not_green_and_is_shown_by_its_name() -> None:
    plain = samples.measured_scenario(samples.sqlite("wal", "full"), samples.durable(120))
    tuned = samples.changed(plain, tuned="page512")
    losing = [samples.verdict(VerdictKind.LOST_SUFFIX, 3, "lost")]
    swallowed = samples.measured_scenario(samples.sqlite("wal", "full"), losing, shim=Shim.EATMYDATA)
    swallowed = samples.changed(swallowed, tuned="page512")
    alone = check_controls([outcome(tuned)])
    assert doubts(group_of(tuned.scenario), alone)
    both = check_controls([outcome(one) for one in (tuned, swallowed)])
    assert () == doubts(group_of(tuned.scenario), both)
    assert doubts(group_of(plain.scenario), both)
    assert "wal_full.page512" in table_text(summarise([tuned, swallowed], 1), 200)


def test_any_tuning_of_a_word_can_be_set_by_hand_too() -> None:
    (found,) = matrix.configure(
        matrix.select(["sqlite-ext4-wal_full_torn"]), matrix.profile("quick"), tuning={"mmap_size": "0"}
    )
    assert "0" == found.orders.settings["mmap_size"]
