"""The file patterns on a real directory: each finds what its transactions did, and nothing that they did not do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers import Keeps
from rig.analysis.dossiers.files import promise
from rig.analysis.judging.promises import violates
from rig.contract.findings import Finding, FindingKind
from rig.contract.results import VerdictKind
from rig.engines.files import driver
from rig.engines.files.promises import PATTERNS, SILENT, WORDS
from rig.engines.files.sectors import NOBODY, SECTOR_BYTES, author, sectors_of
from rig.engines.files.spec import SPEC
from rig.engines.own import Process, Task
from rig.planning import defaults, matrix
from tests.leaks import as_if_the_process_ended
from tests.unit.samples import verdict

COUNT = 20
BLOCK = 4096


def _start(_: Sequence[str]) -> Process:
    raise AssertionError("nothing is started")


def _task(directory: str | Path, pattern: str) -> Task:
    return Task({"pattern": pattern}, str(directory), 3, COUNT)


def _carry_out(directory: str | Path, pattern: str, count: int) -> Finding:
    task = _task(directory, pattern)
    with as_if_the_process_ended():
        session = driver.session(_start, task)
        for number in range(1, count + 1):
            session.commit(number)
        session.close()
        # A memory map closes its own descriptor.
        del session
    return driver.recovered(_start, task)


def _find(directory: Path, pattern: str) -> Finding:
    return driver.recovered(_start, _task(directory, pattern))


@pytest.mark.parametrize("pattern", WORDS)
@given(count=st.integers(0, COUNT))
def test_finds_every_transaction_that_was_carried_out(pattern: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert _carry_out(directory, pattern, count) == Finding(FindingKind.PREFIX, recovered=count)


def _shorter(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def _change(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


PART = 2 * BLOCK
RECORD = 3 * SECTOR_BYTES
# Pattern, transactions, what is done to the files, and the kind and the number found.
DAMAGE: list[tuple[str, int, Callable[[Path], None], tuple[FindingKind, int | None]]] = [
    ("append-fsync", 9, lambda d: _shorter(d / "log", 1), (FindingKind.PREFIX, 8)),
    ("append-fsync", 9, lambda d: _shorter(d / "log", RECORD), (FindingKind.PREFIX, 8)),
    ("append-fsync", 9, lambda d: _change(d / "log", 8 * RECORD, bytes(RECORD)), (FindingKind.PREFIX, 8)),
    ("append-fsync", 9, lambda d: _change(d / "log", 4 * RECORD, bytes(1)), (FindingKind.HOLE, None)),
    ("append-fsync", 9, lambda d: (d / "log").unlink(), (FindingKind.PREFIX, 0)),
    (
        "overwrite-fsync",
        9,
        lambda d: _change(d / "slots", 3 * PART, sectors_of(3, 0, 48, 16)),
        (FindingKind.HOLE, None),
    ),
    ("overwrite-fsync", 9, lambda d: _change(d / "slots", 0, sectors_of(3, 1, 0, 8)), (FindingKind.PREFIX, 8)),
    ("overwrite-fsync", 9, lambda d: _change(d / "slots", 0, sectors_of(3, 2, 0, 8)), (FindingKind.FOREIGN, None)),
    ("overwrite-fsync", 9, lambda d: _change(d / "slots", 0, b"x"), (FindingKind.FOREIGN, None)),
    ("overwrite-fsync", 9, lambda d: _shorter(d / "slots", PART), (FindingKind.CORRUPT, None)),
    ("mapped-msync", 8, lambda d: _change(d / "slots", 7 * PART, sectors_of(3, 0, 112, 16)), (FindingKind.PREFIX, 7)),
    ("replace-synced", 9, lambda d: _change(d / "current", 0, sectors_of(3, 8, 0, 18)), (FindingKind.PREFIX, 8)),
    ("replace-synced", 9, lambda d: _change(d / "current", 0, sectors_of(3, 8, 0, 8)), (FindingKind.TORN, None)),
    ("replace-synced", 9, lambda d: os.truncate(d / "current", 0), (FindingKind.TORN, None)),
    ("create-synced", 9, lambda d: (d / "file-9").unlink(), (FindingKind.PREFIX, 8)),
    ("create-synced", 9, lambda d: os.truncate(d / "file-9", 0), (FindingKind.PREFIX, 8)),
    ("create-synced", 9, lambda d: os.truncate(d / "file-8", 0), (FindingKind.HOLE, None)),
    ("link-synced", 9, lambda d: (d / "file-9").unlink(), (FindingKind.PREFIX, 8)),
    ("link-synced", 9, lambda d: (d / "file-1").unlink(), (FindingKind.HOLE, None)),
    ("link-synced", 9, lambda d: os.truncate(d / "origin", 0), (FindingKind.FOREIGN, None)),
    ("unlink-synced", 9, lambda d: (d / "file-9").touch(), (FindingKind.PREFIX, 8)),
    ("unlink-synced", 9, lambda d: (d / "file-2").touch(), (FindingKind.HOLE, None)),
    ("truncate-fsync", 9, lambda d: os.truncate(d / "parts", (COUNT - 8) * PART), (FindingKind.FOREIGN, None)),
    ("truncate-fsync", 9, lambda d: _shorter(d / "parts", 100), (FindingKind.FOREIGN, None)),
    ("fallocate-fsync", 9, lambda d: _shorter(d / "parts", PART), (FindingKind.PREFIX, 8)),
    ("fallocate-fsync", 9, lambda d: _shorter(d / "parts", 1), (FindingKind.PREFIX, 8)),
    ("fallocate-fsync", 9, lambda d: _change(d / "parts", 5, b"x"), (FindingKind.FOREIGN, None)),
    ("punch-fsync", 9, lambda d: _change(d / "parts", 8 * PART, sectors_of(3, 0, 128, 16)), (FindingKind.PREFIX, 8)),
    ("punch-fsync", 9, lambda d: _change(d / "parts", 8 * PART, sectors_of(3, 0, 128, 8)), (FindingKind.PREFIX, 8)),
    ("punch-fsync", 9, lambda d: _change(d / "parts", 0, sectors_of(3, 0, 0, 16)), (FindingKind.HOLE, None)),
    ("pair-fdatasync", 9, lambda d: _shorter(d / "second", RECORD), (FindingKind.PREFIX, 8)),
    ("pair-fdatasync", 9, lambda d: _change(d / "second", RECORD, bytes(RECORD)), (FindingKind.PREFIX, 1)),
    ("pair-fdatasync", 9, lambda d: _shorter(d / "first", RECORD), (FindingKind.HOLE, None)),
]


@pytest.mark.parametrize(("pattern", "count", "harm", "expected"), DAMAGE)
def test_finds_what_is_gone_and_what_is_damaged(
    tmp_path: Path, pattern: str, count: int, harm: Callable[[Path], None], expected: tuple[FindingKind, int | None]
) -> None:
    _carry_out(tmp_path, pattern, count)

    harm(tmp_path)

    found = _find(tmp_path, pattern)
    assert (found.kind, found.recovered) == expected, found.detail


@pytest.mark.parametrize("pattern", WORDS)
@given(data=st.data())
def test_says_something_of_any_content(pattern: str, data: st.DataObject) -> None:
    """Whatever a disk leaves of the files, there is a finding, and never more transactions than there were."""
    with tempfile.TemporaryDirectory() as directory:
        count = data.draw(st.integers(1, COUNT))
        _carry_out(directory, pattern, count)
        for path in sorted(Path(directory).iterdir()):
            content = path.read_bytes()
            at = data.draw(st.integers(0, len(content)))
            path.write_bytes(content[:at] + data.draw(st.binary(max_size=BLOCK)) + content[at + BLOCK :])

        found = _find(Path(directory), pattern)

    assert found.kind is not FindingKind.PREFIX or found.recovered in range(COUNT + 1)


@given(seed=st.integers(0, 99), number=st.integers(0, 999), place=st.integers(0, 999), other=st.binary(max_size=600))
def test_a_sector_tells_who_wrote_it(seed: int, number: int, place: int, other: bytes) -> None:
    sector = sectors_of(seed, number, place, 1)

    assert author(seed, place, sector) == number
    assert author(seed, place + 1, sector) == NOBODY
    assert author(seed, place, other) == NOBODY


def test_every_pattern_is_known_and_the_silent_ones_promise_nothing() -> None:
    for word, kept in PATTERNS.items():
        found = promise({"pattern": word}, "powercut")
        assert found
        assert (found.keeps is Keeps.ANYTHING) == (word in SILENT) == (not kept.source)
        assert SPEC.is_unprotected({"pattern": word}) == (word in SILENT)


def test_they_are_measured_only_if_they_are_named() -> None:
    named = {scenario.engine for scenario in matrix.all_scenarios()}
    default = {scenario.engine for scenario in defaults.default_scenarios(matrix.profile("nightly"), lambda *_: ())}

    assert "files" in named - default


@pytest.mark.parametrize("kind", [VerdictKind.FOREIGN, VerdictKind.TORN, VerdictKind.CORRUPT])
def test_damage_breaks_a_promise_only_once_a_call_has_returned(kind: VerdictKind) -> None:
    found = promise({"pattern": "overwrite-fsync"}, "powercut")
    assert found
    assert not violates(found, verdict(kind, acked=0))
    assert violates(found, verdict(kind, acked=1))
