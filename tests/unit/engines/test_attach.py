"""One transaction over two attached databases: what is promised, what the oracle sees, and what SQLite syncs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers import Keeps
from rig.analysis.dossiers.sqlite import expectation, promise
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.promises import violates
from rig.contract.findings import FindingKind
from rig.contract.results import VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.engines import engine_named
from rig.engines.sqlite import driver as sqlite
from rig.engines.sqlite import situations
from rig.engines.sqlite.spec import SPEC
from rig.engines.sqlite.syncs import KINDS, Namer, role, sequences, word
from rig.engines.syncs import Call, CallName, in_roles, kinds
from rig.guest.judge import Judge
from rig.guest.site import Site
from rig.planning import matrix
from rig.workloads import Work, ledger
from rig.workloads.operations import Content
from tests.unit import samples

SEED, COUNT = 3, 8
WORK = Work("ledger", SEED, COUNT)
PARTS = (frozenset({"account"}), frozenset({"entry"}))
COUNTS = st.integers(0, COUNT)
MODES = [("delete", "delete"), ("wal", "wal"), ("delete", "wal"), ("wal", "delete"), ("persist", "delete")]


def scenario(mode: str, attached: str) -> Scenario:
    (found,) = matrix.select([f"sqlite-ext4-{mode}_full.attach{attached}_powercut"])
    return replace(found, workload=WorkloadSpec(transaction_count=COUNT), seed=SEED)


def mix(one: int, other: int) -> Content:
    return {"account": WORK.models[one]["account"], "entry": WORK.models[other]["entry"]}


@given(COUNTS, COUNTS)
def test_two_prefixes_are_whole_if_they_are_the_same_and_else_split_at_the_shorter(one: int, other: int) -> None:
    finding = WORK.oracle().judge_content(mix(one, other), PARTS)
    expected = FindingKind.PREFIX if one == other else FindingKind.SPLIT
    assert (expected, min(one, other)) == (finding.kind, finding.recovered)
    if one != other:
        assert f"account after {one}; entry after {other}" in finding.detail
        # In one database this is what it always was.
        assert WORK.oracle().judge_content(mix(one, other)).kind in {"torn", "hole", "stale"}


@given(COUNTS, COUNTS, st.sampled_from(["account", "entry"]), st.data())
def test_a_database_that_is_no_prefix_is_never_split(one: int, other: int, table: str, data: st.DataObject) -> None:
    content = {name: dict(rows) for name, rows in mix(one, other).items()}
    if not content[table]:
        return
    del content[table][data.draw(st.sampled_from(sorted(content[table])))]
    models = [model[table] for model in WORK.models]
    finding = WORK.oracle().judge_content(content, PARTS)
    assert (content[table] in models) == (finding.kind in {FindingKind.SPLIT, FindingKind.PREFIX})


@pytest.fixture
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.kill()


@pytest.mark.parametrize(("mode", "attached"), MODES)
def test_the_rig_sees_that_one_of_two_databases_is_older(
    tmp_path: Path, judge: Judge, mode: str, attached: str
) -> None:
    asked = scenario(mode, attached)
    (folder := tmp_path / "data").mkdir()
    site = Site(asked.orders, str(folder))
    database = site.open_database()
    database.create(site.work.first_tables, site.work.initial)
    older: dict[str, Path] = {}
    for number in range(1, COUNT + 1):
        database.commit(WORK.transaction(number))
        if number == COUNT - 1:
            found = (path for path in folder.iterdir() if path.name.startswith("other") and path.name[-3:] != "shm")
            older = {path.name: Path(shutil.copy(path, tmp_path)) for path in found}
    assert asked.orders.settings.items() <= database.settings().items()
    database.close()
    judge.assign(site)
    whole = judge.judge()
    assert (FindingKind.PREFIX, COUNT) == (whole.kind, whole.recovered)
    for name in ("other.db", "other.db-wal", "other.db-shm"):
        (folder / name).unlink(missing_ok=True)
    for path in older.values():
        shutil.copy(path, folder)
    finding = judge.judge()
    assert (FindingKind.SPLIT, COUNT - 1) == (finding.kind, finding.recovered)
    assert f"account after {COUNT}; entry after {COUNT - 1}" in finding.detail


def test_both_databases_get_the_settings(tmp_path: Path) -> None:
    asked = {**scenario("delete", "wal").orders.settings, "synchronous": "normal", "page_size": "8192"}
    database = sqlite.open_database(str(tmp_path), asked)
    assert asked.items() <= database.settings().items()
    database.close()


def test_settings_that_differ_between_the_two_databases_do_not_read_back_as_asked(tmp_path: Path) -> None:
    database = sqlite.open_database(str(tmp_path), scenario("wal", "delete").orders.settings)
    assert ("wal", "delete", "full") == tuple(
        database.settings()[name] for name in ("journal_mode", "attach", "synchronous")
    )
    database._connection.execute("PRAGMA other.synchronous=normal")
    assert "full/normal" == database.settings()["synchronous"]
    database.close()


@pytest.mark.parametrize(
    ("mode", "attached", "keeps", "across"),
    [
        ("delete", "delete", Keeps.LAST, True),
        ("persist", "delete", Keeps.LAST, True),
        ("wal", "wal", Keeps.NOTHING_LOST, False),
        ("wal", "delete", Keeps.LAST, False),
        ("delete", "wal", Keeps.LAST, False),
    ],
)
def test_two_databases_promise_what_both_do_and_are_one_only_with_rollback_journals(
    mode: str, attached: str, keeps: Keeps, across: bool
) -> None:
    found = promise(scenario(mode, attached).orders.settings, "powercut")
    assert found
    assert (keeps, True, across) == (found.keeps, found.atomic, found.across)
    assert "lang_attach.html" in found.source
    assert found.text.endswith("atomic" if across else "atomic in each database")
    split = samples.verdict(VerdictKind.SPLIT)
    assert across is violates(found, split)
    # What is gone from one of them is lost, however whole the other is.
    allowed = 1 if keeps is Keeps.LAST else 0
    assert violates(found, replace(split, lost=allowed + 1))
    assert across is violates(found, replace(split, lost=allowed))
    assert violates(found, samples.verdict(VerdictKind.TORN))


def test_what_a_split_lost_counts_as_lost_and_the_split_as_damage() -> None:
    split = replace(samples.verdict(VerdictKind.SPLIT, acked=5), lost=1, recovered=4)
    found = outcome(samples.measured_scenario(samples.sqlite("wal", "full"), [*samples.durable(3), split]))
    assert (1, 1, 4) == (found.lost_max, found.damage.count, found.exposure_count)


def test_a_promise_of_one_database_knows_no_other() -> None:
    found = promise(samples.sqlite("wal", "full"), "powercut")
    assert found
    assert (True, "loses nothing, atomic") == (found.across, found.text)
    assert promise({**samples.sqlite("wal", "full"), "attach": "paper"}, "powercut") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test.db-mj1A2B3C9FF", "super"),
        ("other.db", "other-database"),
        ("other.db-journal", "other-journal"),
        ("other.db-wal", "other-wal"),
        ("another.db", "database"),
        ("test.db-mj", ""),
    ],
)
def test_files_of_a_second_database_have_roles_of_their_own(name: str, expected: str) -> None:
    assert [expected] * 2 == [role(f"/mnt/{name}{end}", "/mnt") for end in ("", " (deleted)")]


@pytest.mark.parametrize(("mode", "attached"), MODES)
def test_every_known_sequence_gets_its_names_back(mode: str, attached: str) -> None:
    engine = engine_named("sqlite")
    for level in ("normal", "full", "extra"):
        settings = {"journal_mode": mode, "synchronous": level, "attach": attached}
        namer = Namer(settings)
        for sequence in sequences(settings):
            namer.begin()
            calls = [call for name in sequence.split() for call in calls_of(name)]
            expected = [name for name in sequence.split() if name in KINDS]
            assert expected == [found for call in calls if (found := namer.name(call))]
            assert in_roles(engine, sequence) == (" ".join(filter(None, map(word, calls))) or "none")


def calls_of(name: str) -> list[Call]:
    """Return the calls for one word of a sequence."""
    if name not in KINDS:
        owner, _, drop = name.rpartition("-")
        file = {"": "journal", "other": "other-journal", "super": "super"}[owner]
        return [Call(CallName.UNLINK if drop == "unlink" else CallName.TRUNCATE, file)]
    writes = {"wal-header": [0], "wal-commit": [32]}.get(name.removeprefix("other-"), [])
    # At NORMAL a checkpoint syncs frames that no commit has synced; at FULL there may be none.
    return [
        *(Call(CallName.WRITE, KINDS[name].role, offset) for offset in writes),
        Call(CallName.SYNC, KINDS[name].role),
    ]


def test_only_two_rollback_journals_have_a_super_journal() -> None:
    engine = engine_named("sqlite")
    for mode, attached in MODES:
        found = kinds(engine, {"journal_mode": mode, "synchronous": "full", "attach": attached})
        assert ("super" in found) == ("wal" not in {mode, attached})
    assert all(expectation("ext4", {**SPEC.tuning, **one.orders.settings}, one.dropped_sync) for one in mutants())


def mutants() -> list[Scenario]:
    found = [one for one in matrix.select(["sqlite-ext4-*.attach*+drop-*_powercut"]) if one.dropped_sync]
    assert {"super", "super-end", "other-wal-commit", "other-journal2"} < {one.dropped_sync for one in found}
    # What each database does alone has its mutants already.
    assert not {"journal1", "wal-commit"} & {one.dropped_sync for one in found}
    return found


def test_a_journal_whose_super_journal_is_gone_is_met_and_not_played_back(tmp_path: Path) -> None:
    settings = scenario("delete", "delete").orders.settings
    (folder := tmp_path / "data").mkdir()
    database = sqlite.open_database(str(folder), settings)
    database.create(ledger.TABLES, ledger.initial(SEED))
    database.commit(WORK.transaction(1))
    database.close()
    name = b"test.db-mj1"
    tail = bytes(4) + name + len(name).to_bytes(4, "big") + bytes(4) + bytes.fromhex("d9d505f920a163d7")
    (folder / "other.db-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504) + tail)
    assert [situations.SUPER] == sqlite.met(str(folder))
    # Its removal was the commit.
    again = sqlite.open_database(str(folder), settings)
    assert WORK.models[1] == again.content(ledger.TABLES)
    again.close()
