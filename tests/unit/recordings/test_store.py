"""A run directory: what was stored is read back, damage is reported with its place, and the rest is kept."""

from __future__ import annotations

import errno
import json
import os
import string
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig import store
from rig.contract.devices import DEVICES, Device
from rig.contract.errors import HostError, RecordingError, StoreError
from rig.contract.results import PhaseFacts, PlanFacts, Verdict, VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.host.files import free_bytes
from rig.planning import matrix
from rig.store import Run, write_parquet
from tests.unit import samples
from tests.unit.host.littleroom import little_room, output

DEFINITION = {"profile": "quick", "scenarios": ["a"], "orders": {"a": {"seed": 1}}}
PLAN = PlanFacts(220, 40, 30, 10, 60, phases=(PhaseFacts("new data, journal x4", 38, 5, 20, 4, 5),))
(SCENARIO,) = matrix.select(["sqlite-ext4-wal_full_powercut"])
(OTHER,) = matrix.select(["sqlite-ext4-wal_off_powercut"])


def rows(count: int, first: int = 0) -> list[Verdict]:
    return [
        replace(samples.verdict(state=f"e1:i{n}", acked=n), scenario=SCENARIO.id) for n in range(first, first + count)
    ]


def with_scenario(run: Run, scenario: Scenario, verdicts: list[Verdict]) -> Path:
    """Store a scenario as a campaign does, and return the file of its verdicts."""
    folder = run.recording_folder(scenario)
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text(json.dumps(asdict(samples.measured_scenario(scenario.settings, []).recording)))
    (folder / "log-a.zst").touch()
    run.write_plan(scenario, PLAN)
    run.append(scenario.id, verdicts)
    return verdicts_of(run, scenario)


def verdicts_of(run: Run, scenario: Scenario) -> Path:
    return run.folder / "scenarios" / scenario.id / "verdicts.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", DEFINITION)


TEXTS = st.text(max_size=40)
COUNTS = st.integers(0, 2**63 - 1)
VERDICTS = st.builds(
    Verdict,
    scenario=st.just(SCENARIO.id),
    state=st.text(string.printable, min_size=1, max_size=40),
    content=TEXTS,
    entry=COUNTS,
    clock=TEXTS,
    holds=TEXTS,
    kind=st.sampled_from(VerdictKind),
    acked=COUNTS,
    recovered=st.none() | COUNTS,
    lost=COUNTS,
    lost_virtual_ns=COUNTS,
    instant_weight_ns=COUNTS,
    detail=TEXTS | st.sampled_from(["two\nlines", "a\r\nb", "\u2028", '"', "\\", "\x00"]),
)


@settings(max_examples=60)
@given(st.lists(st.lists(VERDICTS, max_size=4), max_size=4))
def test_every_verdict_is_read_back_as_it_was_stored(batches: list[list[Verdict]]) -> None:
    with TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", DEFINITION)
        run.write_plan(SCENARIO, PLAN)
        for batch in batches:
            run.append(SCENARIO.id, batch)
        everything = [verdict for batch in batches for verdict in batch]
        assert (everything, []) == Run.open(run.folder).verdicts(SCENARIO.id)
        result = replace(samples.measured_scenario(SCENARIO.settings, []), verdicts=tuple(everything))
        write_parquet([result], run.folder / "verdicts.parquet")
        table = pq.read_table(run.folder / "verdicts.parquet")
        assert [asdict(verdict) for verdict in everything] == table.drop(["engine_version"]).to_pylist()


def test_parquet_has_a_row_for_each_verdict_and_its_columns_also_when_there_are_none(tmp_path: Path) -> None:
    scenarios = samples.matrix()
    path = tmp_path / "verdicts.parquet"
    write_parquet(scenarios, path)
    lost, versions = _as_duckdb_reads(
        f"select count(*) from '{path}' where lost > 0 and kind = 'lost-suffix'",
        f"select distinct engine_version from '{path}'",
    )
    assert {scenario.recording.engine_version for scenario in scenarios} == {version for (version,) in versions}
    everything = [verdict for scenario in scenarios for verdict in scenario.verdicts]
    assert len(everything) == pq.read_metadata(path).num_rows
    assert lost == [[sum(verdict.kind is VerdictKind.LOST_SUFFIX for verdict in everything)]]
    columns = pq.read_schema(path)
    write_parquet([], path)
    assert columns == pq.read_schema(path)
    assert [*asdict(everything[0]), "engine_version"] == columns.names


def _as_duckdb_reads(*queries: str) -> list[list[list[Any]]]:
    """Return the rows of each query, read in a process of its own: DuckDB's module complains when its process ends."""
    program = "import duckdb, json, sys; print(json.dumps([duckdb.sql(query).fetchall() for query in sys.argv[1:]]))"
    done = subprocess.run([sys.executable, "-c", program, *queries], capture_output=True, text=True, check=True)
    found: list[list[list[Any]]] = json.loads(done.stdout)
    return found


def test_the_scenario_of_a_scenario_is_read_back_whole(run: Run) -> None:
    device = DEVICES["hdd7200"]
    scenario = replace(SCENARIO, workload=WorkloadSpec(7, 8, 9), device=device, seed=3, mount_options="discard")
    run.write_plan(scenario, PLAN)
    assert scenario == run.scenario(scenario.id)
    with_scenario(run, OTHER, rows(1))
    ((measured,), _) = run.results([OTHER.id])
    assert PLAN == measured.plan
    with pytest.raises(
        StoreError, match=rf"no scenario 'sqlite-none'; it has: {SCENARIO.id}, {OTHER.id}$".replace("+", r"\+")
    ):
        run.scenario("sqlite-none")


def test_a_device_that_had_another_name_is_reported_by_its_name_of_today_and_replayed_as_it_was(run: Run) -> None:
    stored = replace(SCENARIO, device=Device("hdd", 4, 4, 8, "as it was"))
    with_scenario(run, stored, rows(1))
    ((measured,), damaged) = run.results([stored.id])
    assert ("hdd7200", []) == (measured.scenario.device.name, damaged)
    assert stored == run.scenario(stored.id)


@pytest.mark.parametrize("cut_bytes", [1, 2, 30, 150])
def test_a_last_line_that_was_cut_short_is_dropped_and_the_next_one_starts_afresh(run: Run, cut_bytes: int) -> None:
    path = with_scenario(run, SCENARIO, rows(3))
    os.truncate(path, path.stat().st_size - cut_bytes)
    assert (rows(2), []) == run.verdicts(SCENARIO.id)
    run.append(SCENARIO.id, rows(2, first=2))
    assert (rows(4), []) == run.verdicts(SCENARIO.id)


def test_a_last_line_cut_short_is_dropped_however_long_it_is_and_if_it_is_the_only_one(run: Run) -> None:
    path = with_scenario(run, SCENARIO, rows(1))
    long = replace(rows(1, first=1)[0], detail="x" * 200_000)
    run.append(SCENARIO.id, [long])
    os.truncate(path, path.stat().st_size - 5)
    run.append(SCENARIO.id, rows(1, first=2))
    assert (rows(1) + rows(1, first=2), []) == run.verdicts(SCENARIO.id)
    os.truncate(path, 20)
    run.append(SCENARIO.id, [long])
    assert ([long], []) == run.verdicts(SCENARIO.id)


@pytest.mark.parametrize("damage", [b"\x00" * 9, b"\r", b"\xff", b"}", b'"kind": "fine", '])
def test_a_damaged_line_is_named_with_file_and_offset_and_all_others_are_kept(run: Run, damage: bytes) -> None:
    path = with_scenario(run, SCENARIO, rows(5))
    lines = path.read_bytes().splitlines(keepends=True)
    sound = rows(2) + rows(2, first=3)
    lines[2] = lines[2][:-17] + damage + lines[2][-17 + len(damage) :] if damage != b"\r" else lines[2][:40] + b"\r\n"
    path.write_bytes(b"".join(lines))
    found, errors = run.verdicts(SCENARIO.id)
    assert sound == found
    (error,) = errors
    assert f"{path}: the line at byte {len(lines[0] + lines[1])} is damaged: " in str(error)
    results, damaged = run.results()
    assert [tuple(sound)] == [result.verdicts for result in results]
    assert [str(error)] == [str(one) for one in damaged]
    # A damaged verdict is dropped when the run resumes, and its state judged again.
    assert [str(error)] == [str(one) for one in run.mend(SCENARIO.id)]
    run.append(SCENARIO.id, rows(1, first=2))
    assert ([*sound, *rows(1, first=2)], []) == run.verdicts(SCENARIO.id)
    assert [] == run.mend(SCENARIO.id)


@pytest.mark.parametrize("name", ["lost", "acked", "instant_weight_ns"])
@pytest.mark.parametrize("value", ["3", None, 1.5, True])
def test_a_count_that_is_none_is_damage_too(run: Run, name: str, value: object) -> None:
    path = with_scenario(run, SCENARIO, rows(2))
    first, second = path.read_text().splitlines(keepends=True)
    path.write_text(json.dumps({**json.loads(first), name: value}) + "\n" + second)
    found, (error,) = run.verdicts(SCENARIO.id)
    assert rows(1, first=1) == found
    assert f"{name}: {value!r} is no int" in str(error)


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense", '{"format": 0}', "\udcff\udcfe"])
def test_a_damaged_manifest_is_an_error_that_names_it(run: Run, text: str) -> None:
    path = run.folder / "manifest.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StoreError) as opened:
        Run.open(run.folder)
    with pytest.raises(StoreError) as created:
        Run.create(run.folder, DEFINITION)
    assert str(path) in str(opened.value) == str(created.value)


def test_a_run_of_an_older_format_says_what_to_do(run: Run) -> None:
    """Its verdicts name neither their entry nor their clock."""
    (run.folder / "manifest.json").write_text(json.dumps({"format": 1, **DEFINITION}))
    with pytest.raises(StoreError, match=r"another version of the rig: it has format 1, .*; read it with"):
        Run.open(run.folder)


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match=r"is not a run directory: it has no manifest\.json") as caught:
            Run.open(folder)
        assert str(caught.value).startswith(str(folder))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"scenario": {}, "plan": {}}', '{"scenario": 1'])
def test_a_damaged_plan_costs_its_own_scenario_only_and_is_named(run: Run, text: str) -> None:
    with_scenario(run, SCENARIO, rows(3))
    with_scenario(run, OTHER, rows(2))
    path = run.folder / "scenarios" / SCENARIO.id / "plan.json"
    path.write_text(text)
    with pytest.raises(StoreError) as caught:
        run.scenario(SCENARIO.id)
    assert str(path) in str(caught.value)
    results, damaged = run.results()
    assert [OTHER.id] == [result.scenario.id for result in results]
    assert [str(caught.value)] == [str(error) for error in damaged]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"key": "a"'])
def test_damaged_facts_cost_their_own_scenarios_only_and_are_named(run: Run, text: str) -> None:
    with_scenario(run, SCENARIO, rows(3))
    with_scenario(run, OTHER, rows(2))
    path = run.recording_folder(SCENARIO) / "facts.json"
    path.write_text(text)
    results, (error,) = run.results()
    assert [OTHER.id] == [result.scenario.id for result in results]
    assert isinstance(error, RecordingError)
    assert str(path) in str(error)


def test_a_recording_that_is_gone_is_named_and_costs_its_own_scenarios_only(run: Run) -> None:
    with_scenario(run, SCENARIO, rows(3))
    with_scenario(run, OTHER, rows(2))
    (run.recording_folder(SCENARIO) / "facts.json").unlink()
    results, (error,) = run.results()
    assert [OTHER.id] == [result.scenario.id for result in results]
    assert f"{SCENARIO.id}: its recording is gone" == str(error)
    assert ([], []) == run.results([SCENARIO.settings_name])


def test_a_folder_that_holds_another_run_is_refused_and_the_difference_named(run: Run) -> None:
    assert Run.create(run.folder, DEFINITION).definition == run.definition
    other = {**DEFINITION, "orders": {"a": {"seed": 2}}, "profile": "nightly"}
    with pytest.raises(StoreError, match=r"holds another run \(it differs in orders, profile\); name another folder"):
        Run.create(run.folder, other)
    assert "quick" == Run.open(run.folder).definition["profile"]


def test_a_run_that_was_asked_for_more_or_for_less_is_another_run(run: Run) -> None:
    for other in ({**DEFINITION, "focus": "compaction"}, {key: DEFINITION[key] for key in ("profile",)}):
        with pytest.raises(StoreError, match="holds another run"):
            Run.create(run.folder, other)


def test_verdicts_on_another_recording_are_not_taken_for_these(run: Run) -> None:
    with_scenario(run, SCENARIO, rows(3))
    with pytest.raises(StoreError, match="verdicts on another recording"):
        run.write_plan(replace(SCENARIO, tuning={"environment": '["SYNC=off"]'}), PLAN)


def test_what_was_asked_for_and_not_begun_is_not_measured(tmp_path: Path) -> None:
    ids = {"scenarios": [SCENARIO.id, OTHER.id]}
    run = Run.create(tmp_path / "run", {**DEFINITION, **ids})
    assert {SCENARIO.id, OTHER.id} == run.failures().keys()
    run.write_plan(SCENARIO, PLAN)
    assert {OTHER.id} == run.failures().keys()
    # A shard answers for its own scenarios.
    shard = Run.create(tmp_path / "shard", {**DEFINITION, **ids, store.OF_SHARD: [OTHER.id]})
    assert {OTHER.id} == shard.failures().keys()


def test_a_failure_is_kept_until_the_scenario_is_planned_again(run: Run) -> None:
    run.write_failure(SCENARIO, "the recording is void")
    assert "the recording is void" == run.failures()[SCENARIO.id]
    run.write_plan(SCENARIO, PLAN)
    assert SCENARIO.id not in run.failures()


def test_a_retry_is_noted_only_for_what_could_not_be_measured_and_is_not_void(run: Run) -> None:
    assert not run.note_retry(SCENARIO.id)
    for times in (1, 2):
        run.write_failure(SCENARIO, "the machine was\nlost")
        assert run.note_retry(SCENARIO.id)
        assert {SCENARIO.id: times} == run.retries()
    with_scenario(run, OTHER, rows(3))
    run.void(OTHER, "two kinds of machines disagree")
    assert not run.note_retry(OTHER.id)
    assert {SCENARIO.id: 2} == run.retries()


def test_verdicts_of_a_void_scenario_are_kept_aside_and_count_for_nothing_also_when_the_run_goes_on(run: Run) -> None:
    with_scenario(run, SCENARIO, rows(3))
    run.void(SCENARIO, "two kinds of machines disagree")
    assert ([], []) == run.results([SCENARIO.id])
    assert "two kinds of machines disagree" == run.failures()[SCENARIO.id]
    assert 3 == len((run.folder / "scenarios" / SCENARIO.id / "void.jsonl").read_text().splitlines())
    run.write_plan(SCENARIO, PLAN)
    assert ([], []) == run.verdicts(SCENARIO.id)


def test_a_wait_for_a_recording_in_use_can_be_stopped(run: Run) -> None:
    stopped = threading.Event()
    with run.lock(SCENARIO, stopped), run.lock(OTHER, stopped):
        threading.Timer(0.1, stopped.set).start()
        with pytest.raises(StoreError, match="in use by another process"), run.lock(SCENARIO, stopped):
            pytest.fail("two hold one lock")
    with run.lock(SCENARIO, threading.Event()):
        pass


def fill_the_disk(folder: Path, make_room: list[str]) -> None:
    """Store verdicts until no more fit, check what is stored, make room with a command, and continue."""
    (folder / "ballast").write_bytes(bytes(64 << 10))
    # Written by hand, because a run would refuse to begin in so little space.
    (folder / "manifest.json").write_text(json.dumps({"format": store._FORMAT}))
    run = Run.open(folder)
    run.write_plan(SCENARIO, PLAN)
    stored: list[Verdict] = []
    message = ""
    try:
        for first in range(0, 10_000, 50):
            run.append(SCENARIO.id, rows(50, first))
            stored.extend(rows(50, first))
    except StoreError as error:
        message = str(error)
    assert str(verdicts_of(run, SCENARIO)) in message
    assert 100 < len(stored) < 9_000
    found, damaged = run.verdicts(SCENARIO.id)
    assert (stored, []) == (found[: len(stored)], damaged)
    assert len(found) < len(stored) + 50
    assert rows(len(found)) == found
    subprocess.run(make_room, check=True)
    run.append(SCENARIO.id, rows(50, first=len(found)))
    assert (rows(len(found) + 50), []) == run.verdicts(SCENARIO.id)
    print(message)  # noqa: T201 - this runs in a process of its own


FILL = """
from pathlib import Path
from tests.unit.recordings.test_store import fill_the_disk
fill_the_disk(Path({folder!r}), {make_room!r})
"""


def test_a_full_disk_is_a_clear_error_and_what_was_stored_before_is_kept(tmp_path: Path) -> None:
    prefix, reason = little_room(tmp_path, 256 << 10)
    make_room = {
        errno.ENOSPC: ["rm", f"{tmp_path}/ballast"],
        errno.EFBIG: ["sh", "-c", "prlimit --pid=$PPID --fsize=unlimited:"],
    }
    program = FILL.format(folder=str(tmp_path), make_room=make_room[reason])
    (message,) = output([*prefix, sys.executable, "-c", program])
    assert os.strerror(reason) in message


def test_a_run_does_not_begin_where_there_is_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SPACE_BYTES", free_bytes(tmp_path) + (1 << 40))
    with pytest.raises(HostError, match=r"a run needs \d+ MiB in .* Nothing was written"):
        Run.create(tmp_path / "run", DEFINITION)
    assert not (tmp_path / "run").exists()
