"""MariaDB without a server: its variables, its statements, and what its files and syncs are called."""

from __future__ import annotations

import pytest

from rig.analysis.dossiers import Keeps, dossier_of
from rig.contract.faultspecs import ERROR_FAULTS, FORGETTING_FAULTS
from rig.engines import engine_named
from rig.engines.mariadb import driver, options, statements, syncs
from rig.engines.mariadb.client import MariaError
from rig.engines.mariadb.spec import SPEC
from rig.engines.server import ServerDown
from rig.engines.syncs import Call, CallName, in_roles, kinds
from rig.workloads import Work
from rig.workloads.operations import ROW_VERBS, Operation, Table, Verb

LONG = Table("long", (("stamp", int), ("body", str)), index="stamp", refers=("stamp", "item"))
FOLDER = "/mnt/data"


def settings(word: str) -> dict[str, str]:
    return {**SPEC.tuning, options.SETTING: word}


@pytest.mark.parametrize("word", options.WORDS)
def test_a_word_is_read_back_from_the_variables_that_it_stands_for(word: str) -> None:
    given = options.variables(settings(word))
    assert word == options.word(given)
    assert options.SETTING not in given
    assert SPEC.tuning.items() <= given.items()


def test_variables_that_no_word_stands_for_are_read_back_as_they_are() -> None:
    odd = options.word({**options.variables(settings("flush2")), "innodb_doublewrite": "OFF"})
    assert odd not in options.WORDS
    assert "'innodb_doublewrite': 'OFF'" in odd
    assert options.word({}) not in options.WORDS


def test_a_tuning_option_wins_over_what_a_server_is_started_with() -> None:
    assert "2M" == options.variables(settings("default"))["innodb_log_buffer_size"]
    assert "4M" == options.variables({**settings("default"), "innodb_log_buffer_size": "4M"})["innodb_log_buffer_size"]


def test_the_binary_log_has_a_name_for_the_server_and_is_left_out_by_default() -> None:
    with_binlog, without = (options.arguments(options.variables(settings(word))) for word in ("binlog1", "default"))
    assert {"--log-bin=binlog", "--sync-binlog=1"} <= set(with_binlog)
    assert {"--skip-log-bin", "--innodb-flush-log-at-trx-commit=1"} <= set(without)
    assert not [one for one in without if one.startswith("--log-bin")]


def test_the_settings_that_lose_nothing_are_those_that_promise_it() -> None:
    dossier = dossier_of(SPEC.name)
    for fault in (*FORGETTING_FAULTS, *ERROR_FAULTS):
        promises = {word: dossier.promise({options.SETTING: word}, fault) for word in options.WORDS}
        strict = {word for word, promise in promises.items() if promise and promise.keeps is Keeps.NOTHING_LOST}
        free = {word for word, promise in promises.items() if promise and promise.keeps is Keeps.ANYTHING}
        assert (set() if fault == "shorn" else set(SPEC.strict)) == strict
        assert set(SPEC.unprotected[options.SETTING]) <= free
    kills = {word: dossier.promise({options.SETTING: word}, "processkill") for word in options.WORDS}
    assert {"flush0"} == {word for word, one in kills.items() if one and one.keeps is not Keeps.NOTHING_LOST}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("ib_logfile0", "redo"),
        ("ib_logfile101", "new-redo"),
        ("ibdata1", "system"),
        ("rig/entry.ibd", "table"),
        ("rig/#sql-alter-1f-3.ibd (deleted)", "table"),
        ("rig/entry.frm", "other"),
        ("mysql/gtid_slave_pos.ibd", "other"),
        ("binlog.000012", "binlog"),
        ("binlog.index", "binlog-names"),
        ("aria_log.00000001", "aria"),
        ("ddl_recovery.log", "other"),
        ("tc.log", "other"),
        ("notes.txt", ""),
    ],
)
def test_a_file_has_the_role_of_its_place_in_the_data_directory(name: str, role: str) -> None:
    assert role == syncs.role(f"{FOLDER}/{name}", "/mnt/")
    assert not syncs.role(f"/var/{name}", "/mnt")


@pytest.mark.parametrize(
    ("word", "kind"), [("default", "redo-commit"), ("binlog1", "redo-commit"), ("flush2", "redo-flush")]
)
def test_a_sync_of_the_log_is_named_after_who_waits_for_it(word: str, kind: str) -> None:
    namer = syncs.Namer(settings(word))
    assert [kind, "table", "system", "", ""] == [
        namer.name(Call(name, role))
        for name, role in (
            (CallName.SYNC, "redo"),
            (CallName.SYNC, "table"),
            (CallName.SYNC, "system"),
            (CallName.SYNC, "other"),
            (CallName.WRITE, "redo"),
        )
    ]
    assert kind in kinds(engine_named(SPEC.name), settings(word))


def test_a_binary_log_is_synced_between_what_is_prepared_and_what_is_committed() -> None:
    calls = [Call(CallName.SYNC, "redo"), Call(CallName.SYNC, "binlog"), Call(CallName.SYNC, "table")]
    assert ["redo", "binlog", ""] == [syncs.word(call) for call in calls]
    engine = engine_named(SPEC.name)
    first = {word: in_roles(engine, syncs.sequences(settings(word))[0]) for word in options.WORDS}
    expected = {
        **dict.fromkeys(("default", "fsync", "nodoublewrite", "binlog0"), "redo"),
        **dict.fromkeys(("flush0", "flush2", "odsync"), "none"),
        "flush3": "redo redo",
        "binlog1": "redo binlog",
    }
    assert expected == first


def test_what_is_durable_when_it_is_written_has_no_sync_to_leave_out() -> None:
    engine = engine_named(SPEC.name)
    assert ("system",) == kinds(engine, settings("odsync"))
    assert ("redo-commit", "binlog-commit", "system", "table") == kinds(engine, settings("binlog1"))


def test_a_statement_holds_its_values_and_no_value_ends_its_text() -> None:
    insert, update, delete = (
        statements.of_row(Operation(verb, "long", 7, row), ["stamp", "body"])
        for verb, row in ((Verb.INSERT, (1, "it's")), (Verb.UPDATE, (1, "back\\")), (Verb.DELETE, ()))
    )
    assert "INSERT INTO `long` VALUES (7, 1, 'it''s')" == insert
    assert "UPDATE `long` SET stamp = 1, body = 'back\\\\' WHERE id = 7" == update
    assert "DELETE FROM `long` WHERE id = 7" == delete


def test_nested_savepoints_have_names_of_their_own() -> None:
    savepoints = statements.Savepoints()
    verbs = (Verb.SAVEPOINT, Verb.SAVEPOINT, Verb.ROLL_BACK_TO, Verb.RELEASE, Verb.ROLL_BACK_TO, Verb.ROLL_BACK)
    assert [
        "SAVEPOINT s1", "SAVEPOINT s2", "ROLLBACK TO SAVEPOINT s2", "RELEASE SAVEPOINT s2", "ROLLBACK TO SAVEPOINT s1",
        "ROLLBACK",
    ] == [savepoints.statement(verb) for verb in verbs]  # fmt: skip


def test_the_name_of_a_table_may_be_a_word_of_its_sql() -> None:
    made, index = statements.SQL.of_table(LONG)
    assert "CREATE TABLE `long` (id bigint PRIMARY KEY, stamp bigint NOT NULL, body mediumtext NOT NULL" in made
    assert "FOREIGN KEY (stamp) REFERENCES `item`(id)" in made
    assert "CREATE INDEX long_stamp ON `long`(stamp)" == index


@pytest.mark.parametrize("workload", ["ledger", "life", "rough"])
def test_there_is_a_statement_for_every_operation_of_every_workload(workload: str) -> None:
    work = Work(workload, 1, 80, SPEC.skills)
    columns = {table.name: [name for name, _ in table.columns] for table in work.first_tables}
    for number in range(1 + work.creates, 81):
        savepoints = statements.Savepoints()
        found = work.transaction(number)
        assert found
        for one in found:
            is_row = one.verb in ROW_VERBS
            assert statements.of_row(one, columns[one.table]) if is_row else savepoints.statement(one.verb)


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (ServerDown("the server does not start"), True),
        (MariaError("Lost connection to server during query", 2013), True),
        (MariaError("the server is gone"), True),
        (MariaError("The table 'entry' is full", 1114), True),
        (MariaError("Error writing file", 3), True),
        (MariaError("Got error 168", 1030), True),
        (MariaError("Index is corrupted", 1712), True),
        (MariaError("Duplicate entry", 1062), False),
        (MariaError("You have an error in your SQL syntax", 1064), False),
        (ValueError("ours"), False),
    ],
)
def test_an_error_is_a_fault_of_the_disk_or_a_mistake_of_ours(error: Exception, is_fault: bool) -> None:
    assert is_fault is driver.is_fault(error)
