"""Names of sync calls: the writes before each of SQLite's syncs tell what the sync is for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.engines import Engine, engine_named
from rig.engines.sqlite import syncs as sqlite_syncs
from rig.engines.sqlite.syncs import KINDS, SEQUENCES, Namer
from rig.engines.syncs import Call, CallName, SyncPhase, in_roles, kinds, pattern_of, syncs_of

FOLDER = "/mnt"
ROLES = ("database", "journal", "wal", "shm", "directory", "")
CALLS = st.builds(Call, st.sampled_from(CallName), st.sampled_from(ROLES), st.integers(-1, 10**6))
SETTINGS = st.sampled_from(sorted(SEQUENCES))
# Every sampled transaction of every setting, as real SQLite runs them under the supervisor on this machine.
SAMPLED = """
import json, pathlib, sys, tempfile
from dataclasses import replace
from rig.guest.watch.sample import sample
from rig.planning import matrix
orders = matrix.select(["sqlite-ext4-wal_full_powercut"])[0].orders
found = {}
for settings in json.loads(sys.argv[1]):
    with tempfile.TemporaryDirectory() as scratch:
        one = sample(replace(orders, settings=settings), pathlib.Path(scratch, "sample"))
    found[json.dumps(settings)] = one.syncs
print(json.dumps(found))
"""
SQLITE = engine_named("sqlite")


def settings_of(pair: tuple[str, str]) -> dict[str, str]:
    return dict(zip(("journal_mode", "synchronous"), pair, strict=True))


def calls_of(word: str, data: st.DataObject, pair: tuple[str, str]) -> list[Call]:
    """Return the engine's calls for one word of a sequence, with any number of writes."""
    if word not in KINDS:
        name = CallName.UNLINK if word == "unlink" else CallName.TRUNCATE
        return [Call(name, "journal", 0 if word == "ftruncate" else -1)]
    noise = data.draw(st.lists(st.sampled_from([Call(CallName.WRITE, "database", 0), Call(CallName.WRITE, "", 0)])))
    frames = [Call(CallName.WRITE, "wal", offset) for offset in data.draw(st.lists(st.integers(32, 10**6), min_size=1))]
    writes = {
        "wal-header": [Call(CallName.WRITE, "wal", 0)],
        "wal-commit": frames,
        # At FULL a commit has already synced them.
        "wal-checkpoint": frames if pair[1] == "normal" else [],
    }
    return [*noise, *writes.get(word, []), Call(CallName.SYNC, KINDS[word].role)]


@given(SETTINGS, st.data())
def test_the_calls_of_any_row_of_transactions_get_their_names_back(pair: tuple[str, str], data: st.DataObject) -> None:
    namer = Namer(settings_of(pair))
    for sequence in data.draw(st.lists(st.sampled_from(SEQUENCES[pair]), max_size=6)):
        namer.begin()
        calls = [call for word in sequence.split() for call in calls_of(word, data, pair)]
        named = [kind for call in calls if (kind := namer.name(call))]
        assert [word for word in sequence.split() if word in KINDS] == named
        words = [sqlite_syncs.word(call) for call in calls]
        assert in_roles(SQLITE, sequence) == (" ".join(filter(None, words)) or "none")


@given(SETTINGS, st.lists(CALLS, max_size=30))
def test_whatever_is_called_only_syncs_of_the_database_have_names_and_strangers_change_none(
    pair: tuple[str, str], calls: list[Call]
) -> None:
    namer, other = Namer(settings_of(pair)), Namer(settings_of(pair))
    names = [namer.name(call) for call in calls]
    for call, name in zip(calls, names, strict=True):
        known = name in KINDS or name.removeprefix("journal").isdecimal() or name.removeprefix("database").isdecimal()
        is_named = call.name is CallName.SYNC and call.role in {
            "database",
            "directory",
            "wal" if pair[0] == "wal" else "journal",
        }
        assert (is_named, is_named) == (bool(name), known and bool(name))
    own = [call for call in calls if call.role]
    assert [name for call, name in zip(calls, names, strict=True) if call.role] == [other.name(call) for call in own]


@given(st.sampled_from(("test.db", "a-wal.db", "journal.db")), st.sampled_from(("", "-journal", "-wal", "-shm")))
def test_a_file_has_its_role_by_its_name_in_the_folder_of_the_database(name: str, suffix: str) -> None:
    expected = suffix.removeprefix("-") or "database"
    assert expected == sqlite_syncs.role(f"{FOLDER}/{name}{suffix}", FOLDER)
    # readlink's text for an unlinked file that is still open.
    assert expected == sqlite_syncs.role(f"{FOLDER}/{name}{suffix} (deleted)", FOLDER)
    assert sqlite_syncs.role(f"/elsewhere/{name}{suffix}", FOLDER) == ""
    assert sqlite_syncs.role(f"{FOLDER}/{name}{suffix}.bak", FOLDER) == ""
    assert ["directory"] * 2 == [sqlite_syncs.role(path, FOLDER) for path in (FOLDER, f"{FOLDER}/")]
    assert sqlite_syncs.role(f"{FOLDER}2", FOLDER) == ""


def test_every_kind_of_every_sequence_is_one_that_is_explained() -> None:
    words = {word for sequences in SEQUENCES.values() for sequence in sequences for word in sequence.split()}
    assert words - {"unlink", "ftruncate"} <= set(KINDS)
    assert set(SyncPhase) == {kind.phase for kind in KINDS.values()}
    assert 24 == len(SEQUENCES)
    assert ("journal1", "directory1", "journal2", "database1") == kinds(SQLITE, settings_of(("delete", "full")))
    assert () == kinds(SQLITE, settings_of(("wal", "off")))


def test_an_engine_without_a_module_of_syncs_has_none() -> None:
    bare = Engine("rig.workloads", SQLITE.spec)
    assert (None, ()) == (syncs_of(bare), kinds(bare, {}))


TUNED = [
    {"journal_mode": mode, "synchronous": level, name: value}
    for name, value in (
        ("attach", "delete"), ("attach", "wal"), ("locking_mode", "exclusive"), ("journal_size_limit", "8192"),
    )
    for mode in ("delete", "truncate", "persist", "wal")
    for level in ("normal", "full")
]  # fmt: skip


@pytest.mark.parametrize("asked", [list(map(settings_of, sorted(SEQUENCES))), TUNED], ids=["plain", "tuned"])
def test_real_sqlite_makes_the_documented_syncs_at_every_setting(asked: list[dict[str, str]]) -> None:
    process = subprocess.run(
        [sys.executable, "-c", SAMPLED, json.dumps([{"page_size": "4096", **one} for one in asked])],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert 0 == process.returncode, process.stderr
    for name, measured in json.loads(process.stdout).items():
        documented = [in_roles(SQLITE, sequence) for sequence in sqlite_syncs.sequences(json.loads(name))]
        assert set(measured) <= set(documented), name
        assert documented[0] in measured, name
        assert 12 == sum(measured.values())


def test_the_pattern_of_a_path_leaves_out_what_may_differ_between_two_runs() -> None:
    paths = ("log.000012", "c/03/8b/6e3b8b39b44ee136.val", "db-wal", "v2/db1/ab", "data.fs.2026", "ab/db/cd/fe")
    assert ["log.N", "c/N/N/N.val", "db-wal", "vN/dbN/ab", "data.fs.N", "N/db/N/fe"] == list(map(pattern_of, paths))
