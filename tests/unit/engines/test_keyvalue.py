"""Rows as keys and values: what a workload writes is read back, and an index that does not fit is a problem."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import pytest

from rig.analysis.dossiers import Keeps, dossier_of
from rig.contract.faultspecs import ERROR_FAULTS
from rig.engines import EnduringDriver, engine_named
from rig.engines.keyvalue import Changes, KeyValueDatabase
from rig.engines.syncs import Call, CallName, kinds, syncs_of
from rig.workloads.operations import Operation, Skill, Verb
from rig.workloads.workload import Work


class InMemory(KeyValueDatabase):
    """The smallest engine: a dictionary."""

    def __init__(self, held: dict[tuple[str, bytes], bytes]) -> None:
        super().__init__()
        self.held = held

    def value(self, space: str, key: bytes) -> bytes | None:
        return self.held.get((space, key))

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        for (own, key), value in sorted(self.held.items()):
            if own == space:
                yield key, value

    def write(self, changes: Changes, *, is_undone: bool = False) -> None:
        for place, value in changes.items() if not is_undone else ():
            if value is None:
                del self.held[place]
            else:
                self.held[place] = value

    def own_problems(self) -> list[str]:
        return []


def fill(work: Work, count: int) -> InMemory:
    database = InMemory({})
    database.create(work.first_tables, work.initial)
    for number in range(1, count + 1):
        # As if every transaction had been committed by a process of its own.
        database = InMemory(database.held)
        database.commit(work.transaction(number))
    return database


@pytest.mark.parametrize("workload", ["ledger", "life"])
def test_the_content_is_that_of_the_model_after_every_transaction(workload: str) -> None:
    work = Work(workload, 1, 40, frozenset({Skill.ROLLBACK}))
    database = InMemory({})
    database.create(work.first_tables, work.initial)
    for number in range(1 + work.creates, 41):
        database.commit(work.transaction(number))
        assert work.models[number] == database.content(work.tables)
        assert [] == database.problems()


def test_a_row_is_looked_up_by_its_key() -> None:
    work = Work("ledger", 1, 4)
    database = fill(work, 4)
    for table, rows in work.models[4].items():
        assert rows == {key: database.row(table, key) for key in rows}
    assert database.row("entry", 10**6) is None


def test_a_transaction_that_ends_with_a_rollback_changes_nothing() -> None:
    work = Work("ledger", 1, 4)
    database = fill(work, 3)
    before = dict(database.held)
    database.commit((*work.transaction(4), Operation(Verb.ROLL_BACK)))
    assert before == database.held


def test_an_index_that_does_not_fit_its_table_is_a_problem() -> None:
    database = fill(Work("ledger", 1, 30), 30)
    entry = next(place for place in database.held if place[0] == "entry.index")
    del database.held[entry]
    row = next(place for place in database.held if place[0] == "account")
    del database.held[row]
    found = database.problems()
    assert 2 == len(found)
    assert "account: entry in the index without its row" in found[0]
    assert "entry: row without its entry in the index" in found[1]


@pytest.mark.parametrize(
    ("engine", "calls", "expected"),
    [
        ("lmdb", ["data.mdb", "data.mdb", "lock.mdb"], ["data-sync", "meta-sync", ""]),
        ("leveldb", ["000003.log", "000005.ldb", "", "MANIFEST-000002", "LOG"],
         ["log-commit", "table", "table-directory", "manifest", ""]),
        ("rocksdb", ["000004.log", "000009.sst", "", "MANIFEST-000005", "OPTIONS-000007", "CURRENT", "IDENTITY", "LOG"],
         ["log-closed", "table", "directory", "manifest", "", "", "", ""]),
    ],
)  # fmt: skip
def test_the_syncs_of_a_transaction_have_names(engine: str, calls: list[str], expected: list[str]) -> None:
    syncs = syncs_of(engine_named(engine))
    assert syncs
    namer = syncs.Namer(next(iter(engine_named(engine).spec.all_settings())))
    for _ in range(2):
        namer.begin()
        roles = [syncs.role(f"/db/{name}".rstrip("/") if name else "/db", "/db") for name in calls]
        assert expected == [namer.name(Call(CallName.SYNC, role)) for role in roles]
    assert "" == syncs.role("/elsewhere/data.mdb", "/db")


@pytest.mark.parametrize("engine", ["leveldb", "lmdb", "rocksdb"])
def test_every_setting_has_a_promise_and_every_sync_an_expectation(engine: str) -> None:
    spec, dossier = engine_named(engine).spec, dossier_of(engine)
    for settings in spec.all_settings():
        for fault in ("powercut", "torn", "oscrash", "processkill", "bitrot", "clockback"):
            promise = dossier.promise(settings, fault)
            assert promise, (settings, fault)
            assert "[DOC]" in promise.source
            if fault == "powercut":
                is_anything = promise.keeps is Keeps.ANYTHING
                assert is_anything or not spec.is_unprotected(settings)
        for kind in kinds(engine_named(engine), settings):
            assert dossier.expectation("ext4", settings, kind), (settings, kind)
    strict = [dossier.promise(spec.settings_named(name), "powercut") for name in spec.strict]
    assert {Keeps.NOTHING_LOST} == {promise.keeps for promise in strict if promise}


def test_syncs_that_threads_make_are_kinds_that_no_sequence_has() -> None:
    engine = engine_named("rocksdb")
    found = kinds(engine, engine.spec.settings_named("sync"))
    assert ("log-commit", "directory", "table", "manifest") == found
    syncs = syncs_of(engine)
    assert syncs
    words = [syncs.word(Call(CallName.SYNC, syncs.KINDS[kind].role)) for kind in found]
    assert ["log", "", "", ""] == words


@pytest.mark.parametrize(
    ("engine", "module", "name", "words", "is_fault"),
    [
        ("lmdb", "lmdb", "Error", "mdb_txn_commit: Input/output error", True),
        ("lmdb", "lmdb", "DiskError", "mdb_put: No space left on device", True),
        ("lmdb", "lmdb", "PanicError", "MDB_PANIC: Update of meta page failed or environment had fatal error", True),
        ("lmdb", "lmdb", "InvalidError", "MDB_INVALID: File is not an LMDB file", True),
        ("lmdb", "lmdb", "MapFullError", "MDB_MAP_FULL: Environment mapsize limit reached", False),
        ("lmdb", "lmdb", "NotFoundError", "MDB_NOTFOUND: No matching key/data pair found", False),
        ("lmdb", "lmdb.cpython", "DiskError", "mdb_put: No space left on device", True),
        ("lmdb", "other", "Error", "Input/output error", False),
        ("leveldb", "plyvel._plyvel", "IOError", "IO error: db/000005.log: No space left on device", True),
        ("leveldb", "plyvel._plyvel", "CorruptionError", "Corruption: bad block contents", True),
        ("leveldb", "plyvel._plyvel", "Error", "Invalid argument: db: does not exist", False),
        ("leveldb", "builtins", "OSError", "ours", False),
        ("rocksdb", "builtins", "Exception", "IO error: No space left on device: While appending to file", True),
        ("rocksdb", "builtins", "Exception", "Corruption: block checksum mismatch", True),
        ("rocksdb", "builtins", "Exception", "Invalid argument: Column family not found", False),
        ("rocksdb", "builtins", "ValueError", "IO error: ours", False),
    ],
)
def test_an_error_is_a_fault_of_the_disk_or_a_mistake_of_ours(
    *, engine: str, module: str, name: str, words: str, is_fault: bool
) -> None:
    """Not every host has the bindings, so the classes of their errors are made here; a VM test meets real ones."""
    driver = engine_named(engine).driver()
    assert isinstance(driver, EnduringDriver)
    kind = getattr(builtins, name) if module == "builtins" else type(name, (Exception,), {"__module__": module})
    assert is_fault is driver.is_fault(kind(words))


@pytest.mark.parametrize("fault", ERROR_FAULTS)
@pytest.mark.parametrize("engine", ["lmdb", "leveldb", "rocksdb"])
def test_after_an_error_an_engine_is_held_to_its_promise_about_power_cuts(engine: str, fault: str) -> None:
    dossier = dossier_of(engine)
    for settings in engine_named(engine).spec.all_settings():
        cut, error = (dossier.promise(settings, one) for one in ("powercut", fault))
        assert cut
        assert error
        assert (cut.keeps, cut.atomic, cut.bound, cut.source) == (error.keeps, error.atomic, error.bound, error.source)
        assert "power cut" in error.note
