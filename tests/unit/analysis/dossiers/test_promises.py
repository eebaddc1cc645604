"""The promise table says what the engine's documentation says, and nothing if that is silent."""

from __future__ import annotations

import pytest

from rig.analysis.dossiers import Keeps, Promise
from rig.analysis.dossiers.sqlite import JOURNAL_MODES, SYNCHRONOUS
from rig.analysis.judging.promises import promise_for, violates
from rig.contract.faultspecs import CLOCK_FAULTS, DISHONEST_FAULTS, ERROR_FAULTS, FORGETTING_FAULTS
from rig.contract.results import VerdictKind
from tests.unit.samples import sqlite, verdict

ZERO, LAST, SUFFIX, ANY = Keeps.NOTHING_LOST, Keeps.LAST, Keeps.SUFFIX, Keeps.ANYTHING
POWERCUT = {
    "delete": (ANY, LAST, LAST, ZERO),
    "truncate": (ANY, LAST, ZERO, ZERO),
    "persist": (ANY, ZERO, ZERO, ZERO),
    "wal": (ANY, SUFFIX, ZERO, ZERO),
    "memory": (ANY, ANY, ANY, ANY),
    "off": (ANY, ANY, ANY, ANY),
}


def promise(settings: dict[str, str], fault: str = "powercut", shim: str = "none") -> Promise:
    found = promise_for("sqlite", settings, fault, shim)
    assert found is not None
    return found


@pytest.mark.parametrize("fault", [fault for fault in FORGETTING_FAULTS if fault != "shorn"])
@pytest.mark.parametrize("journal_mode", JOURNAL_MODES)
def test_sqlite_promises_under_a_cut_are_those_of_its_documentation(journal_mode: str, fault: str) -> None:
    promised = [promise(sqlite(journal_mode, synchronous), fault) for synchronous in SYNCHRONOUS]
    assert POWERCUT[journal_mode] == tuple(one.keeps for one in promised)
    atomic = [one.atomic for one, level in zip(promised, SYNCHRONOUS, strict=True) if not _has_caveat(level, fault)]
    assert [
        one.keeps is not ANY for one, level in zip(promised, SYNCHRONOUS, strict=True) if not _has_caveat(level, fault)
    ] == atomic


def _has_caveat(synchronous: str, fault: str) -> bool:
    """At NORMAL the checksum of a rollback journal lets a torn page through, and the documentation says so."""
    return synchronous == "normal" and fault == "torn"


def test_a_rollback_journal_at_normal_promises_no_atomicity_under_torn_writes_and_wal_does() -> None:
    atomic = {mode: promise(sqlite(mode, "normal"), "torn").atomic for mode in ("delete", "truncate", "persist", "wal")}
    assert atomic == {"delete": False, "truncate": False, "persist": False, "wal": True}


def test_a_process_kill_loses_nothing_where_a_journal_is_on_disk() -> None:
    assert {ZERO} == {promise(sqlite("wal", level), "processkill").keeps for level in SYNCHRONOUS}
    assert promise(sqlite("memory", "full"), "processkill").keeps is ANY


@pytest.mark.parametrize("fault", ERROR_FAULTS)
def test_an_error_lets_no_more_go_than_a_power_cut_and_the_promise_says_that_it_is_inferred(fault: str) -> None:
    for mode in JOURNAL_MODES:
        assert POWERCUT[mode] == tuple(promise(sqlite(mode, level), fault).keeps for level in SYNCHRONOUS)
    kept = promise(sqlite("wal", "full"), fault)
    assert kept.atomic
    assert "Taken from the power cut" in kept.note
    assert "Taken from" not in promise(sqlite("wal", "off"), fault).note
    assert "Taken from" not in promise(sqlite("wal", "full")).note


@pytest.mark.parametrize("fault", DISHONEST_FAULTS)
def test_a_dishonest_disk_voids_every_promise(fault: str) -> None:
    assert {ANY} == {promise(sqlite(m, s), fault).keeps for m in JOURNAL_MODES for s in SYNCHRONOUS}
    assert promise(sqlite("wal", "full"), fault).note
    assert promise(sqlite("wal", "full"), fault).source


def test_garbage_beside_what_is_written_breaks_what_sqlite_takes_for_granted_so_nothing_is_promised() -> None:
    for journal_mode in JOURNAL_MODES:
        for synchronous in SYNCHRONOUS:
            one = promise(sqlite(journal_mode, synchronous), "shorn")
            assert (ANY, False, "psow.html [DOC]") == (one.keeps, one.atomic, one.source)
            assert "powersafe overwrite" in one.note


def test_every_promise_names_its_source() -> None:
    for journal_mode in JOURNAL_MODES:
        for synchronous in SYNCHRONOUS:
            for fault in (*FORGETTING_FAULTS, "processkill", "lyingflush"):
                assert promise(sqlite(journal_mode, synchronous), fault).source.endswith("[DOC]")


def test_the_documented_caveat_of_normal_is_a_note_and_no_excuse() -> None:
    assert "A*" in promise(sqlite("delete", "normal")).note
    assert promise(sqlite("delete", "normal")).atomic
    assert "A*" not in promise(sqlite("wal", "normal")).note


def test_a_shim_that_swallows_syncs_does_not_change_what_is_promised() -> None:
    assert promise(sqlite("wal", "full")) == promise(sqlite("wal", "full"), shim="eatmydata")


@pytest.mark.parametrize("fault", [*CLOCK_FAULTS, "powercut"])
def test_a_program_that_trusts_the_clock_does_not_change_what_is_promised(fault: str) -> None:
    assert promise(sqlite("wal", "full"), fault) == promise(sqlite("wal", "full"), fault, "lastwriter")


@pytest.mark.parametrize(
    ("engine", "settings", "fault", "shim"),
    [
        ("otherdb", sqlite("wal", "full"), "powercut", "none"),
        ("sqlite", sqlite("wal2", "full"), "powercut", "none"),
        ("sqlite", sqlite("wal", "2"), "powercut", "none"),
        ("sqlite", {}, "powercut", "none"),
        ("sqlite", sqlite("wal", "full"), "meteorite", "none"),
        ("sqlite", sqlite("wal", "full"), "powercut", "unheardof"),
    ],
)
def test_what_the_table_does_not_know_is_not_promised(
    engine: str, settings: dict[str, str], fault: str, shim: str
) -> None:
    assert promise_for(engine, settings, fault, shim) is None


@pytest.mark.parametrize(
    ("synchronous", "journal_mode", "kind", "lost", "is_broken"),
    [
        ("full", "wal", VerdictKind.DURABLE, 0, False),
        ("full", "wal", VerdictKind.LOST_SUFFIX, 1, True),
        ("full", "wal", VerdictKind.TORN, 0, True),
        ("full", "delete", VerdictKind.LOST_SUFFIX, 1, False),
        ("full", "delete", VerdictKind.LOST_SUFFIX, 2, True),
        ("full", "delete", VerdictKind.UNOPENABLE, 0, True),
        ("normal", "wal", VerdictKind.LOST_SUFFIX, 40, False),
        ("normal", "wal", VerdictKind.HOLE, 1, True),
        ("normal", "wal", VerdictKind.STALE, 0, True),
        ("off", "wal", VerdictKind.CORRUPT, 40, False),
        ("full", "wal", VerdictKind.FILESYSTEM_DAMAGE, 9, False),
        ("full", "wal", VerdictKind.KERNEL_PANIC, 9, False),
        ("full", "wal", VerdictKind.HANG, 9, False),
        ("full", "wal", VerdictKind.INCONCLUSIVE, 9, False),
    ],
)
def test_a_verdict_breaks_a_promise_exactly_when_it_exceeds_it(
    synchronous: str, journal_mode: str, kind: VerdictKind, lost: int, is_broken: bool
) -> None:
    assert is_broken is violates(promise(sqlite(journal_mode, synchronous)), verdict(kind, lost))


def test_a_strict_recovery_may_refuse_but_not_open_what_lacks_a_transaction() -> None:
    for engine, asked in (
        ("rocksdb", {"writes": "sync-absolute"}),
        ("leveldb", {"checks": "paranoid", "writes": "sync"}),
    ):
        promised = promise_for(engine, asked, "powercut", "none")
        assert promised
        assert "loses nothing, atomic, may refuse to open" == promised.text
        assert not violates(promised, verdict(VerdictKind.UNOPENABLE))
        assert all(
            violates(promised, verdict(kind)) for kind in (VerdictKind.HOLE, VerdictKind.CORRUPT, VerdictKind.STUCK)
        )


def test_a_promise_that_concedes_damage_says_so() -> None:
    promised = promise_for("sqlite", sqlite("persist", "normal"), "torn", "none")
    assert promised
    assert "loses nothing, may be damaged" == promised.text
