"""PostgreSQL without a server: its parameters, its statements, and what its files and syncs are called."""

from __future__ import annotations

import pytest

from rig.analysis.dossiers import Keeps, dossier_of
from rig.contract.faultspecs import ERROR_FAULTS, FORGETTING_FAULTS
from rig.engines import engine_named
from rig.engines.postgresql import driver, options, statements, syncs
from rig.engines.postgresql.libpq import PostgresError
from rig.engines.postgresql.spec import SPEC
from rig.engines.syncs import Call, CallName, in_roles, kinds
from rig.workloads import Work
from rig.workloads.operations import ROW_VERBS, Operation, Table, Verb

TABLE = Table("entry", (("account", int), ("note", str)), index="account", refers=("account", "account"))
FOLDER = "/mnt/cluster"


def settings(word: str) -> dict[str, str]:
    return {**SPEC.tuning, options.SETTING: word}


@pytest.mark.parametrize("word", options.WORDS)
def test_a_word_is_read_back_from_the_parameters_that_it_stands_for(word: str) -> None:
    given = options.parameters(settings(word))
    assert word == options.word(given)
    assert options.SETTING not in given
    assert SPEC.tuning.items() <= given.items()


def test_parameters_that_no_word_stands_for_are_read_back_as_they_are() -> None:
    odd = options.word({**options.parameters(settings("nofsync")), "full_page_writes": "off"})
    assert odd not in options.WORDS
    assert "'full_page_writes': 'off'" in odd
    assert options.word({}) not in options.WORDS


def test_a_tuning_option_wins_over_what_a_server_is_started_with() -> None:
    assert "off" == options.parameters(settings("default"))["autovacuum"]
    assert "on" == options.parameters({**settings("default"), "autovacuum": "on"})["autovacuum"]


def test_the_settings_that_lose_nothing_are_those_that_promise_it() -> None:
    dossier = dossier_of(SPEC.name)
    for fault in (*FORGETTING_FAULTS, *ERROR_FAULTS):
        promises = {word: dossier.promise({options.SETTING: word}, fault) for word in options.WORDS}
        strict = {word for word, promise in promises.items() if promise and promise.keeps is Keeps.NOTHING_LOST}
        free = {word for word, promise in promises.items() if promise and promise.keeps is Keeps.ANYTHING}
        assert (set() if fault == "shorn" else set(SPEC.strict)) == strict
        assert set(SPEC.unprotected[options.SETTING]) <= free
    kills = {word: dossier.promise({options.SETTING: word}, "processkill") for word in options.WORDS}
    assert {"async"} == {word for word, promise in kills.items() if promise and promise.keeps is not Keeps.NOTHING_LOST}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("pg_wal/000000010000000000000012", "wal"),
        ("pg_wal/xlogtemp.312", "new-wal"),
        ("pg_wal", "wal-folder"),
        ("global/pg_control", "control"),
        ("global/1262", "table"),
        ("base/5/16385", "table"),
        ("base/5/16385_fsm", "table"),
        ("base/5/16385.1 (deleted)", "table"),
        ("base/5/pg_internal.init.312", "other"),
        ("pg_xact/0000", "state"),
        ("pg_multixact/offsets/0000", "state"),
        ("pg_xact", "other"),
        ("postmaster.pid", "other"),
        ("notes.txt", ""),
    ],
)
def test_a_file_has_the_role_of_its_place_in_the_cluster(name: str, role: str) -> None:
    assert role == syncs.role(f"{FOLDER}/{name}", "/mnt/")
    assert not syncs.role(f"/var/{name}", "/mnt")


@pytest.mark.parametrize(
    ("word", "kind"), [("default", "wal-commit"), ("nofullpages", "wal-commit"), ("async", "wal-flush")]
)
def test_a_sync_of_the_log_is_named_after_who_waits_for_it(word: str, kind: str) -> None:
    namer = syncs.Namer(settings(word))
    assert [kind, "table", "", ""] == [
        namer.name(Call(name, role))
        for name, role in (
            (CallName.SYNC, "wal"),
            (CallName.SYNC, "table"),
            (CallName.SYNC, "other"),
            (CallName.WRITE, "wal"),
        )
    ]
    assert kind in kinds(engine_named(SPEC.name), settings(word))


def test_only_syncs_of_the_log_are_in_the_sequence_of_a_transaction() -> None:
    calls = [Call(CallName.WRITE, "wal"), Call(CallName.SYNC, "wal"), Call(CallName.SYNC, "table")]
    assert ["", "wal", ""] == [syncs.word(call) for call in calls]
    engine = engine_named(SPEC.name)
    assert ["wal", "wal wal"] == [in_roles(engine, one) for one in syncs.sequences(settings("default"))]
    assert ["none"] == [in_roles(engine, one) for one in syncs.sequences(settings("nofsync"))]
    assert () == kinds(engine, settings("nofsync"))
    assert "wal-commit" not in kinds(engine, settings("opendatasync"))


def test_a_statement_has_a_parameter_for_each_value() -> None:
    insert, update, delete = (
        statements.of_row(Operation(verb, "entry", 7, row), ["account", "note"])
        for verb, row in ((Verb.INSERT, (1, "a")), (Verb.UPDATE, (1, "a")), (Verb.DELETE, ()))
    )
    assert ("INSERT INTO entry VALUES ($1, $2, $3)", (7, 1, "a")) == insert
    assert ("UPDATE entry SET account = $2, note = $3 WHERE id = $1", (7, 1, "a")) == update
    assert ("DELETE FROM entry WHERE id = $1", (7,)) == delete


def test_a_table_comes_with_its_reference_and_its_index() -> None:
    made, index = statements.SQL.of_other(Operation(Verb.MAKE_TABLE, "entry", made=TABLE))
    assert "id bigint PRIMARY KEY, account bigint NOT NULL, note text NOT NULL" in made
    assert "FOREIGN KEY (account) REFERENCES account(id)" in made
    assert "CREATE INDEX entry_account ON entry(account)" == index
    assert ("DROP INDEX entry_account",) == statements.SQL.of_other(Operation(Verb.DROP_INDEX, "entry", made=TABLE))


@pytest.mark.parametrize("workload", ["ledger", "life", "rough"])
def test_there_is_a_statement_for_every_operation_of_every_workload(workload: str) -> None:
    work = Work(workload, 1, 80, SPEC.skills)
    found = [one for number in range(1, 81) for one in work.transaction(number)]
    assert found
    for one in found:
        assert statements.of_row(one, ["any"])[0] if one.verb in ROW_VERBS else statements.SQL.of_other(one)


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (PostgresError("the server does not start"), True),
        (PostgresError("could not extend file", "53100"), True),
        (PostgresError("could not fsync file", "58030"), True),
        (PostgresError("invalid page in block 3", "XX001"), True),
        (PostgresError("terminating connection", "57P02"), True),
        (PostgresError("relation does not exist", "42P01"), False),
        (PostgresError("duplicate key", "23505"), False),
        (ValueError("ours"), False),
    ],
)
def test_an_error_is_a_fault_of_the_disk_or_a_mistake_of_ours(error: Exception, is_fault: bool) -> None:
    assert is_fault is driver.is_fault(error)
