"""An engine that dies, hangs, eats memory or keeps files open costs one state, and is named.

Real processes and real native code (`tests/frail`), on the host: the kernel's own end of memory needs a machine and is
in `tests/vm/test_frail.py`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.devices import DEVICES
from rig.contract.findings import Finding, FindingKind
from rig.contract.injections import Injection
from rig.contract.orders import Orders
from rig.engines import Database, load
from rig.guest.judge import CheckPhase, Judge
from rig.guest.site import Site
from rig.guest.watch.forks import manner
from rig.workloads.oracle import Oracle
from tests.unit.guest import frailty

# Needs a compiler.
pytestmark = pytest.mark.slow

COUNT = 5
COMPLAINT = "frail: damage at byte 0"


@pytest.fixture(scope="module")
def _frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with frailty.install(tmp_path_factory.mktemp("engine"), "state_limit_s=2"):
        yield


@pytest.fixture
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.kill()


@pytest.fixture
def site(tmp_path: Path, _frail: None) -> Callable[[str], Site]:
    """Give the site of a frail engine with some transactions."""

    def made(conduct: str) -> Site:
        orders = Orders(
            engine="frail", engine_module="frail", settings={"conduct": conduct}, filesystem="ext4", mount_options="",
            device=DEVICES["none"], workload="ledger", transaction_count=COUNT, think_ms=0, rest_ms=0, shim="none",
            injection=Injection.NONE, seed=1,
        )  # fmt: skip
        found = Site(orders, str(tmp_path))
        if not list(tmp_path.iterdir()):
            database = found.open_database()
            database.create(found.work.first_tables, found.work.initial)
            for number in range(1, COUNT + 1):
                database.commit(found.work.transaction(number))
            database.close()
        return found

    return made


def damage(site: Site) -> Callable[[], None]:
    """Damage the log; return a function that mends it."""
    path = Path(site.directory) / "frail.log"
    whole = path.read_bytes()
    path.write_bytes(b"\0" + whole[1:])

    def mend() -> None:
        path.write_bytes(whole)

    return mend


@pytest.mark.parametrize(
    ("conduct", "kind", "words"),
    [
        ("segfault", "died", f"died by SIGSEGV while opening; it said: {COMPLAINT}"),
        ("abort", "died", f"died by SIGABRT while opening; it said: {COMPLAINT}"),
        (
            "illegal",
            "died",
            "died by SIGILL while opening; if it is built for a newer processor, the spec of the engine",
        ),
        ("exit", "died", f"ended with exit code 3 while opening; it said: {COMPLAINT}"),
        ("deaf", "died", f"ended with exit code 4 while opening; it said: {COMPLAINT}"),
        ("spin", "stuck", "stuck while opening: it computed for "),
        ("babble", "stuck", "stuck while opening: it computed for "),
        ("sleep", "stuck", "stuck while opening: it computed for 0 s of 6 s; it said: "),
    ],
)
def test_an_engine_that_fails_is_told_by_name_and_the_next_state_is_judged(
    conduct: str, kind: str, words: str, site: Callable[[str], Site], judge: Judge
) -> None:
    here = site(conduct)
    judge.assign(here)
    whole = judge.judge()
    assert ("prefix", COUNT) == (whole.kind, whole.recovered)
    mend = damage(here)
    found = judge.judge()
    assert (kind, None) == (found.kind, found.recovered), found
    assert found.detail.startswith(words)
    assert COMPLAINT in found.detail or conduct == "babble"
    assert len(found.detail) < 1200
    mend()
    assert whole == judge.judge()
    assert judge.aftermath() is None


def test_files_that_are_kept_open_are_closed_by_killing_the_process(site: Callable[[str], Site], judge: Judge) -> None:
    here = site("keep")
    judge.assign(here)
    mend = damage(here)
    path = str(Path(here.directory) / "frail.log")
    assert ("hole", []) == (judge.judge().kind, holders(path)[1:]), "its content is that of an empty database"
    mend()
    (holder,) = holders(path)
    assert holder != os.getpid()
    assert judge.kill() == f"; it said: {COMPLAINT}"
    assert [] == holders(path)
    assert FindingKind.PREFIX is judge.judge().kind


def test_what_was_said_of_one_state_is_not_told_of_the_next(site: Callable[[str], Site], judge: Judge) -> None:
    here = site("keep")
    judge.assign(here)
    mend = damage(here)
    judge.judge()
    mend()
    assert FindingKind.PREFIX is judge.judge().kind
    assert not judge.kill()


def holders(path: str) -> list[int]:
    links = (link for link in Path("/proc").glob("[0-9]*/fd/*"))
    return sorted({int(link.parts[2]) for link in links if _target(link) == path})


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def test_a_process_that_dies_after_its_answer_is_told_of_the_state_before(
    site: Callable[[str], Site], judge: Judge
) -> None:
    judge.assign(site("segfault"))
    assert FindingKind.PREFIX is judge.judge().kind
    assert judge._worker
    os.kill(judge._worker._pid, signal.SIGSEGV)
    end_s = time.monotonic() + 20
    while not (found := judge.aftermath()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    assert "died by SIGSEGV while idle after closing" == found.detail
    assert FindingKind.PREFIX is judge.judge().kind


def test_words_without_end_are_cut_and_do_not_count_as_a_death(
    site: Callable[[str], Site], judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A character takes up to twelve bytes in JSON, and a message must fit into the buffer of a socket."""

    def refuse(_site: Site) -> Database:
        raise OSError("\U0001f600" * 100_000)

    here = site("sleep")
    monkeypatch.setattr(Site, "open_database", refuse)
    judge.assign(here)
    found = judge.judge()
    assert ("unopenable", True) == (found.kind, len(found.detail) > 1000)


def test_an_error_of_ours_before_anything_is_opened_blames_no_engine(site: Callable[[str], Site], judge: Judge) -> None:
    wrong = site("segfault")
    wrong = replace(wrong, orders=replace(wrong.orders, workload="nosuch"))
    with pytest.raises(RuntimeError, match="nosuch"):
        judge.assign(wrong)


def panicking(word: str) -> Callable[[object], None]:
    """Return a method that fails as a library in Rust does, or a program that ends itself."""

    def panic(*_: object) -> None:
        raise SystemExit(f"no {word}")

    return panic


def test_each_phase_is_told_and_an_error_that_is_no_exception_counts_as_a_death(
    site: Callable[[str], Site], judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site("segfault")
    driver = load("frail").driver()
    for name, phase in (("problems", "checking"), ("content", "reading"), ("close", "closing")):
        with monkeypatch.context() as patch:
            patch.setattr(driver.Frail, name, panicking(name))  # type: ignore[attr-defined]
            judge.assign(replace(here))
            found = judge.judge()
        assert found.detail.startswith(f"ended with exit code 1 while {phase}; it said: "), found
        assert f"SystemExit: no {name}" in found.detail
        judge.kill()


def test_an_engine_that_is_told_that_there_is_no_memory_is_out_of_memory() -> None:
    def open_nothing() -> Nothing:
        raise MemoryError

    class Nothing:
        def problems(self) -> list[str]:
            raise MemoryError("17 bytes")

        def content(self, tables: object) -> dict[str, dict[int, tuple[int, ...]]]:  # noqa: ARG002
            return {}

        def close(self) -> None:
            pass

    oracle = Oracle((), ({},), lambda _: ())
    assert Finding(FindingKind.OUT_OF_MEMORY, detail="MemoryError: ") == oracle.judge(open_nothing)
    assert Finding(FindingKind.OUT_OF_MEMORY, detail="MemoryError: 17 bytes") == oracle.judge(Nothing)


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert "died by signal 40 while opening" == manner(-40, CheckPhase.OPENING)
