"""An engine that dies, hangs, eats all memory or keeps files open on a damaged or failing file costs one state.

The engine is `tests/frail`, with native code of its own. Its templates are kept in a cache of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rig.campaign import session, verification
from rig.campaign.record import record
from rig.campaign.verdicts import live_verdicts
from rig.contract.errors import EngineError
from rig.contract.findings import Finding
from rig.contract.injections import Injection
from rig.contract.orders import Shim
from rig.contract.results import LiveFinding, VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.faults import CrashState, WriteLog, epochs
from rig.faults.states.damage import Damage, Unreadable, Zeros
from rig.faults.states.state import landable, make_state
from rig.filesystems.ext import DISK_MIB
from rig.guest.programs.injections import Stage, strikes
from rig.images.image import Image
from rig.machines.argv import Role
from rig.machines.machine import Machine
from rig.machines.template import Template, template
from rig.planning import matrix
from rig.recordings.archive import Recording
from tests.unit.guest import frailty
from tests.vm import caches
from tests.vm.samples import SHORT, findings, open_recording

_MAGIC = b"FRAL"
_SECTOR = 512


@pytest.fixture(scope="module")
def _frail(
    tmp_path_factory: pytest.TempPathFactory, image: Image, recorder: Template, verifier: Template
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("frail")
    caches.furnish_cache(folder / "cache", image, recorder, verifier)
    with frailty.install(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIG_CACHE", str(folder / "cache"))
        yield


@pytest.fixture(scope="module")
def recorder_of_frail(_frail: None, image: Image) -> Iterator[Template]:
    with template(Role.RECORDER, image) as made:
        yield made


@pytest.fixture(scope="module")
def verifier_of_frail(_frail: None, image: Image) -> Iterator[Template]:
    with template(Role.VERIFIER, image) as made:
        yield made


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second machine waits twice as long, not six times, until it believes that an engine is stuck."""
    monkeypatch.setattr(verification, "_PATIENCE", 2)


def scenario_of(conduct: str, fault: str = "powercut") -> Scenario:
    (found,) = matrix.select([f"frail-ext4-{conduct}_{fault}"])
    return replace(found, workload=SHORT)


@pytest.fixture(scope="module")
def recording(recorder_of_frail: Template, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(scenario_of("segfault"), recorder_of_frail, tmp_path_factory.mktemp("recording"))


@dataclass(frozen=True)
class _Counted(Template):
    """A template that counts its clones."""

    @contextmanager
    def clone(self, *, recording: Path | None = None, orders: bytes = b"") -> Iterator[Machine]:
        _clones.append(1)
        with super().clone(recording=recording, orders=orders) as machine:
            yield machine


_clones: list[int] = []


def whole_and(log: WriteLog, *damages: Damage) -> CrashState:
    """The disk at the end, with damages to it."""
    tail = epochs(log)[-1]
    return make_state(tail, len(tail.fuas), whole=landable(tail), damages=damages)


def last_record(log: WriteLog) -> int:
    """Return the first sector that only the last record of the engine's log has."""
    disk = log.replay(log.entry_count, DISK_MIB << 20).tobytes()
    return -(-disk.rindex(_MAGIC) // _SECTOR) * _SECTOR


def judge(conduct: str, verifier: Template, recording: Recording, damage: type[Zeros | Unreadable]) -> list[Finding]:
    """Judge the whole disk, the damaged one and the whole one again, in one machine."""
    _clones.clear()
    counted = _Counted(verifier.spec, verifier.folder, verifier.identity)
    with open_recording(recording) as (_, log):
        states = [whole_and(log), whole_and(log, damage(last_record(log), 4096)), whole_and(log)]
        found = findings(scenario_of(conduct), counted, log, states)
    # On a busy host, whether an engine is stuck or only slow takes a second machine.
    assert len(_clones) <= (2 if conduct in {"spin", "babble", "sleep", "eat"} else 1), "a machine was lost"
    assert [("prefix", 8)] * 2 == [(one.kind, one.recovered) for one in found[::2]]
    assert found[0].opened
    assert found[2].opened
    return found


@pytest.mark.parametrize(
    ("conduct", "kind", "words"),
    [
        ("segfault", "died", "died by SIGSEGV while opening; it said: frail: "),
        ("abort", "died", "died by SIGABRT while opening; it said: frail: "),
        ("illegal", "died", "died by SIGILL while opening; if it is built for a newer processor"),
        ("exit", "died", "ended with exit code 3 while opening; it said: frail: "),
        ("spin", "stuck", "stuck while opening: it computed for "),
        ("babble", "stuck", "stuck while opening: it computed for "),
        ("sleep", "stuck", "stuck while opening: it computed for "),
        (
            "eat",
            "out-of-memory",
            "the guest had no memory left while opening, and the kernel killed the engine; it said",
        ),
        ("keep", "kept-open", "the engine kept files open after it had closed the database; it said: frail: "),
        ("daemon", "kept-open", "the engine kept files open after it had closed the database; it said: frail: "),
    ],
)
def test_an_engine_that_fails_over_damage_is_told_by_name_at_the_cost_of_one_state(
    conduct: str, kind: str, words: str, verifier_of_frail: Template, recording: Recording
) -> None:
    found = judge(conduct, verifier_of_frail, recording, Zeros)[1]
    assert kind == found.kind, found
    assert found.detail.startswith(words), found.detail
    assert (7 if kind == "kept-open" else None) == found.recovered
    assert "damage at byte" in found.detail or conduct == "babble"


def test_an_engine_is_not_stuck_while_its_machine_waits_for_a_processor(
    verifier_of_frail: Template, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the machine had had a thousandth of the time that the guest counted.
    monkeypatch.setattr(session, "STUCK_SHARE", 1000)
    monkeypatch.setattr(verification, "_PATIENCE", 1)
    with open_recording(recording) as (_, log):
        states = [whole_and(log), whole_and(log, Zeros(last_record(log), 4096)), whole_and(log)]
        found = findings(scenario_of("spin"), verifier_of_frail, log, states)
    assert ["prefix", "hang", "prefix"] == [one.kind for one in found]
    assert "this host is too busy" in found[1].detail


def test_a_file_that_cannot_be_read_is_no_different(verifier_of_frail: Template, recording: Recording) -> None:
    found = judge("abort", verifier_of_frail, recording, Unreadable)[1]
    assert "died" == found.kind
    assert "frail: Input/output error at byte" in found.detail


def reopening() -> int:
    """Return a seed whose first strike begins with a transaction and has the program reopen the database."""
    return next(
        seed
        for seed in range(1, 100)
        for strike in strikes(Injection.WRITE, seed, 6)[:1]
        if strike.stage is Stage.BEGIN and strike.reopens
    )


def recorded_under_errors(conduct: str, recorder: Template, folder: Path) -> list[LiveFinding]:
    scenario = replace(scenario_of(conduct, "ioerror-write"), seed=reopening())
    workload = WorkloadSpec(transaction_count=6, think_ms=20, rest_ms=100)
    return list(record(replace(scenario, workload=workload), recorder, folder).facts.live)


@pytest.mark.parametrize(
    ("conduct", "kind", "words"),
    [
        ("segfault", "died", "the engine died by SIGSEGV; it said: frail: [Errno 5]"),
        ("spin", "stuck", "the engine got stuck: it computed for 30 s of 30 s; it said: frail: [Errno 5]"),
        ("sleep", "stuck", "the engine got stuck: it computed for 0 s of 1200 s; it said: frail: [Errno 5]"),
        ("eat", "out-of-memory", "the engine took too much memory: it took "),
    ],
)
def test_an_engine_that_fails_over_a_failing_disk_is_told_by_name_and_opened_again_by_another_process(
    conduct: str, kind: str, words: str, recorder_of_frail: Template, tmp_path: Path
) -> None:
    live = recorded_under_errors(conduct, recorder_of_frail, tmp_path)
    grieved = [one for one in live if one["kind"] == kind]
    assert grieved
    for one in grieved:
        assert one["state"].startswith(f"{kind}-{one['issued']}.")
        assert f"in transaction {one['issued']} {words}" in one["detail"]
    reopened = [one for one in live if one["state"].startswith("reopen-")]
    assert len(grieved) == len(reopened)
    assert {"prefix"} == {one["kind"] for one in reopened}
    assert all(f"after {words}" in one["detail"] for one in reopened)
    assert {VerdictKind.DURABLE, VerdictKind(kind)} == {one.kind for one in live_verdicts("frail", live)}


@pytest.mark.parametrize("conduct", ["keep", "daemon"])
def test_files_that_an_engine_keeps_after_an_error_are_told_and_hinder_nobody(
    conduct: str, recorder_of_frail: Template, tmp_path: Path
) -> None:
    live = recorded_under_errors(conduct, recorder_of_frail, tmp_path)
    reopened = [one for one in live if one["state"].startswith("reopen-")]
    assert {"kept-open"} == {one["kind"] for one in reopened}
    assert all(
        "the engine kept files open after it had closed the database; after OSError" in one["detail"]
        for one in reopened
    )
    assert {VerdictKind.KEPT_OPEN, VerdictKind.DURABLE} >= {one.kind for one in live_verdicts("frail", live)}


@pytest.mark.parametrize(
    ("conduct", "fault", "shim", "what"),
    [
        ("rash", "powercut", Shim.NONE, "the workload"),
        # In a program of its own.
        ("rash", "powercut", Shim.EATMYDATA, "the workload"),
        ("doze", "powercut", Shim.EATMYDATA, "the workload"),
        # Supervised.
        ("doze", "processkill", Shim.NONE, "the sample of transactions"),
    ],
)
def test_an_engine_that_fails_on_a_sound_disk_is_an_error_of_one_line_that_says_what_to_do(  # noqa: PLR0917
    conduct: str, fault: str, shim: Shim, what: str, recorder_of_frail: Template, tmp_path: Path
) -> None:
    with pytest.raises(EngineError) as caught:
        record(replace(scenario_of(conduct, fault), shim=shim), recorder_of_frail, tmp_path)
    failure = {"rash": "died by SIGSEGV", "doze": r"got stuck: it computed for \d s of 10\d\d\d s"}[conduct]
    assert re.fullmatch(
        f"{what} failed, and nothing was wrong with the disk: the engine {failure}; it said: frail: for no reason; "
        "run its transactions without the rig, or report it to its authors",
        str(caught.value),
    ), caught.value


def test_kills_end_before_the_many_lives_of_an_engine_have_filled_its_disk(
    recorder_of_frail: Template, tmp_path: Path
) -> None:
    scenario = replace(scenario_of("litter", "processkill"), workload=WorkloadSpec(24))
    live = record(scenario, recorder_of_frail, tmp_path).facts.live
    assert {"prefix"} == {one["kind"] for one in live}
    # Of 36, for the file system has room for 256 files.
    assert 15 < len(live) < 22
