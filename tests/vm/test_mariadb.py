"""The server in its own image: made, killed and cut; slow to start under emulation, so with few states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.explain.choices import Choices
from rig.analysis.explain.explanation import explain
from rig.analysis.explain.story import paragraph
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.protocol import compare
from rig.campaign import campaign, evidence, record
from rig.campaign.evidence import ScenarioEvidence
from rig.campaign.verdicts import live_verdicts
from rig.contract.results import VerdictKind
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.faults import CrashState, everything_unflushed_lost
from rig.machines.guests import Guests, guests
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run

# Seconds for the search for the smallest loss, and the most single writes that it tries. A server is slow.
_LIMIT_S, _SINGLES_MAX = 120, 24
PAGE_BYTES = 16384
TINY = Profile("tiny", 16, 8, 4, exposure_min=3, repeats="none", side_states_max=8)


@pytest.fixture(scope="module")
def source() -> Iterator[Guests]:
    with guests() as found:
        yield found


def scenario_of(name: str, transaction_count: int) -> Scenario:
    (scenario,) = matrix.select([f"mariadb-ext4-{name}"])
    # Several transactions within the second between two flushes of the log.
    return replace(scenario, workload=WorkloadSpec(transaction_count, think_ms=200))


@pytest.mark.representative
def test_the_server_keeps_what_it_acknowledged_and_loses_it_without_its_syncs(source: Guests, tmp_path: Path) -> None:
    names = ("default", "default+eatmydata", "flush2")
    scenarios = [scenario_of(f"{name}_powercut", TINY.transaction_count) for name in names]
    # The log is flushed in the first second of the rest, and nothing is lost after that.
    scenarios = [replace(one, workload=replace(one.workload, rest_ms=1000)) for one in scenarios]
    ids = [one.id for one in scenarios]
    run = Run.create(tmp_path, {"scenarios": ids})
    campaign.Campaign(run, TINY, source, campaign.Silent()).measure(scenarios)
    results, damaged = run.results(ids)
    assert ({}, []) == (run.failures(), damaged)
    summary = summarise(results, TINY.exposure_min)
    assert [] == [f"{control.name} {control.what}" for control in summary.controls if control.fired is False]
    judged = {row.outcome.scenario.id: row for row in summary.rows}
    for name in ("default", "flush2"):
        row = judged[f"mariadb-ext4-{name}_powercut"]
        assert Result.KEPT is row.judgement.result, row.judgement.reasons
        assert "" == compare(row.outcome.measured).difference


def test_a_killed_server_loses_only_what_its_log_had_in_memory(source: Guests, tmp_path: Path) -> None:
    found = {}
    for name in ("default", "flush0"):
        scenario = scenario_of(f"{name}_processkill", 3)
        made = record.record(scenario, source.of(scenario).recorder, tmp_path / name)
        found[name] = {one.kind for one in live_verdicts("", made.facts.live)}
    assert {VerdictKind.DURABLE} == found["default"]
    assert {VerdictKind.LOST_SUFFIX} <= found["flush0"] <= {VerdictKind.LOST_SUFFIX, VerdictKind.DURABLE}


def test_a_torn_first_page_of_a_table_is_explained_as_one_write_that_was_torn(source: Guests, tmp_path: Path) -> None:
    scenario = scenario_of("default_powercut", 40)
    machines = source.of(scenario)
    recording = record.record(scenario, machines.recorder, tmp_path)
    with evidence.of_recording(scenario, recording, machines) as of_run:
        verdicts = of_run.judge([(state, None) for state in torn_first_pages(of_run, "data/rig/entry.ibd")])
        damaged = [verdict for verdict in verdicts if verdict.kind.is_damage]
        assert damaged, f"MariaDB restored all {len(verdicts)} torn first pages"
        # At some of these cuts a second page has to be torn as well.
        told = (
            explain(of_run, evidence.state_of(of_run, verdict.state), verdict, _LIMIT_S, _SINGLES_MAX)
            for verdict in reversed(damaged)
        )
        why = next((each for each in told if each.torn), None)
    assert why, f"none of {len(damaged)} damaged states is one torn write"
    assert why.torn
    for writes in (*why.lost, *why.landed):
        (write,) = writes
        assert ("data/rig/entry.ibd", "page 0 (header of the tablespace)") == (write.path, write.role)
    assert ("write", "data/rig/entry.ibd", 0, PAGE_BYTES) == (
        why.torn.name, why.torn.path, why.torn.offset_bytes, why.torn.length_bytes,
    )  # fmt: skip
    assert "of one write, write(data/rig/entry.ibd, 16384 bytes at 0)" in paragraph(why)


def test_a_checkpoint_that_forgets_pages_is_what_damage_with_fsync_begins_with(source: Guests, tmp_path: Path) -> None:
    # MariaDB makes such a checkpoint when it has nothing else to do.
    scenario = replace(scenario_of("fsync_powercut", 28), workload=WorkloadSpec(28, think_ms=1500))
    machines = source.of(scenario)
    recording = record.record(scenario, machines.recorder, tmp_path)
    with evidence.of_recording(scenario, recording, machines) as of_run:
        log, begin = of_run.logs.first, of_run.timeline.setup.entry_index
        epochs = [epoch for epoch in of_run.logs.epochs if epoch.begin > begin and not epoch.doubtful]
        # The two places of a checkpoint. A cut just after one has been written has nothing else that is new.
        (places,) = extents_of(of_run, "data/ib_logfile0", 4096, 12288)
        written = [entry for entry in range(begin, log.entry_count) if log.payload_bytes[entry]]
        checkpoints = [entry for entry in written if int(log.offset_bytes[entry]) in places]
        ends = {next((epoch.end for epoch in epochs if epoch.begin > entry), log.entry_count) for entry in checkpoints}
        states = [everything_unflushed_lost(log, of_run.logs.epochs, end) for end in sorted(ends)]
        verdicts = of_run.judge([(state, None) for state in states])
        damaged = [each for each in verdicts if each.kind in {VerdictKind.TORN, VerdictKind.CORRUPT}]
        assert damaged, f"none of {len(states)} cuts after a checkpoint shows damage"
        why = explain(of_run, evidence.state_of(of_run, damaged[0].state), damaged[0], _LIMIT_S / 3, _SINGLES_MAX)
    begins = [(write.path, write.role) for write in why.landed[0]]
    assert any("data/ib_logfile0" == path and "checkpoint of the redo log" in role for path, role in begins), begins
    assert "It begins as soon as the write of 512 bytes" in paragraph(why)
    assert why.landed_by
    assert ("write", "data/ib_logfile0") == (why.landed_by.name, why.landed_by.path)
    # Whether a sync helps is chance: threads of the server work by the clock, so supervision may hide the damage.
    assert [""] == sorted({check.failure for check in why.checks}), why.checks


def torn_first_pages(of_run: ScenarioEvidence, path: str) -> Iterator[CrashState]:
    """Yield, for each time that the first page of a file is written, a state in which only its first part landed."""
    (page,) = extents_of(of_run, path, 0, PAGE_BYTES)
    log = of_run.logs.first
    for epoch in of_run.logs.epochs:
        if not epoch.doubtful:
            choices = Choices.at_border(of_run.logs, epoch, 0)
            yield from (choices.state([atom]) for atom in choices.atoms if log.offset_bytes[atom.entry] == page.start)


def extents_of(of_run: ScenarioEvidence, path: str, begin: int, end: int) -> list[range]:
    """Return where a part of a file is on the disk at the end of the recording."""
    log = of_run.logs.first
    (files,) = of_run.places([everything_unflushed_lost(log, of_run.logs.epochs, log.entry_count)])
    (file,) = [file for file in files or () if file.path == path]
    return [
        range(on_disk + max(begin - at, 0), on_disk + min(end - at, length))
        for at, on_disk, length in file.extents
        if at < end and at + length > begin
    ]
