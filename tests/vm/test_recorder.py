"""Recordings: the same scenario gives the same log bit for bit, and whatever voids a recording is noticed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig.campaign import record
from rig.contract.devices import DEVICES
from rig.contract.errors import RecordingError, VmError
from rig.contract.scenario import Scenario
from rig.faults import Logs, WriteLog
from rig.filesystems.ext import DISK_MIB
from rig.machines.template import Template
from rig.recordings import archive, soundness
from rig.recordings.archive import Recording
from tests.vm.samples import SHORT, Entry, Recorder, entries_of, scenario_of, two_agree, write_log


@pytest.fixture(scope="module")
def wal_full(recorded: Recorder) -> Recording:
    return recorded(scenario_of("wal_full"))


@pytest.fixture(scope="module")
def second_run(recorder: Template) -> tuple[dict[str, Any], list[bytes]]:
    return record.run(scenario_of("wal_full"), recorder)


@pytest.mark.representative
def test_the_same_scenario_gives_the_same_log_bit_for_bit(
    wal_full: Recording, second_run: tuple[dict[str, Any], list[bytes]], recorder: Template
) -> None:
    told, parts = second_run
    with wal_full.unpack() as file, file.path.open("rb") as unpacked:
        recorded = [os.pread(unpacked.fileno(), len(parts[0]), 0)]
        recorded += [os.pread(unpacked.fileno(), length, begin) for begin, length in file.traces]
    assert parts == recorded or two_agree(recorded, lambda: record.run(scenario_of("wal_full"), recorder)[1])
    assert told["root_reads"] == 0
    assert wal_full == archive.load(wal_full.folder)
    facts = wal_full.facts
    assert (scenario_of("wal_full").recording_key, recorder.identity, 1) == (facts.key, facts.template, facts.seed)
    assert told["requests"]["flushes"] >= facts.flush_count > 0


def test_another_seed_gives_another_log(wal_full: Recording, recorded: Recorder) -> None:
    other = recorded(scenario_of("wal_full", seed=2))
    assert wal_full.facts.digest != other.facts.digest
    assert wal_full.facts.settings == other.facts.settings


def test_a_scenario_recorded_twice_notes_that_it_was_reproduced(recorder: Template, tmp_path: Path) -> None:
    brief = replace(scenario_of("wal_off"), workload=replace(SHORT, transaction_count=2))
    assert record.record(brief, recorder, tmp_path, reproduce=True).facts.reproduced is True
    assert {"log-a.zst", "trace-a.zst", "facts.json"} == {path.name for path in tmp_path.iterdir()}
    assert json.loads((tmp_path / "facts.json").read_text())["reproduced"] is True


@pytest.mark.representative
def test_each_setting_flushes_as_often_as_its_documentation_says(recorded: Recorder) -> None:
    names = ("delete_extra", "delete_full", "wal_full", "wal_normal", "wal_off")
    facts = {name: recorded(scenario_of(name)).facts for name in names}
    flushes = {name: each.flush_count / each.transaction_count for name, each in facts.items()}
    assert flushes["delete_extra"] == flushes["delete_full"] + 1
    assert flushes["delete_full"] > flushes["wal_full"] >= 1 > flushes["wal_normal"] >= 0
    assert flushes["wal_off"] == 0
    for name, each in facts.items():
        asked = {**scenario_of(name).settings, **scenario_of(name).tuning}
        assert asked.items() <= each.settings.items()
        assert each.engine_version.startswith("3.")
        assert each.transaction_count == SHORT.transaction_count


def test_a_slower_device_takes_more_virtual_time_and_changes_no_write(wal_full: Recording, recorded: Recorder) -> None:
    slow = recorded(replace(scenario_of("wal_full"), device=DEVICES["hdd7200"])).facts
    assert slow.busy_virtual_ns > 2 * wal_full.facts.busy_virtual_ns
    # A WAL/FULL transaction waits for at least one flush, which takes 1 ms on the ssd-sata.
    assert wal_full.facts.busy_virtual_ns > SHORT.transaction_count * 1e6
    assert wal_full.facts.flush_count == slow.flush_count


def test_what_the_engine_cannot_do_fails_with_its_words_and_what_it_ignores_is_read_back(
    recorder: Template, tmp_path: Path
) -> None:
    scenario = scenario_of("wal_full")
    wrong = replace(scenario, settings={**scenario.settings, "journal_mode": "no such mode"})
    with pytest.raises(VmError, match=r"(?s)Traceback.*the workload failed: Traceback.*OperationalError"):
        record.record(wrong, recorder, tmp_path)
    ignored = replace(scenario, settings={**scenario.settings, "journal_mode": "nosuch"})
    with pytest.raises(RecordingError, match="journal_mode was set to nosuch and reads back delete"):
        record.record(ignored, recorder, tmp_path)
    assert [] == list(tmp_path.iterdir())


def _flip(entries: list[Entry]) -> list[Entry]:
    rank = max(i for i, entry in enumerate(entries) if entry.payload)
    payload = bytearray(entries[rank].payload)
    payload[100] ^= 1
    return [*entries[:rank], replace(entries[rank], payload=bytes(payload)), *entries[rank + 1 :]]


def _without_a_flush(entries: list[Entry]) -> list[Entry]:
    rank = max(i for i, entry in enumerate(entries) if entry.flags & 1)
    return entries[:rank] + entries[rank + 1 :]


def _without_the_last_ack(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.text.startswith(b"ack-8-")]


@pytest.mark.parametrize(
    ("sabotage", "told_too", "words"),
    [
        (list, {}, None),
        (_flip, {}, "does not give the device"),
        (_without_a_flush, {}, "flushes, the disk saw"),
        (_without_the_last_ack, {}, "7 of 8 transactions acknowledged"),
        (list, {"root_reads": 1}, "1 reads went to the host's disk"),
    ],
    ids=["untouched", "a flipped bit", "a flush missing", "an ack missing", "a read from the host"],
)
@pytest.mark.representative
def test_a_recording_is_void_that_has(
    *,
    sabotage: Callable[[list[Entry]], list[Entry]],
    told_too: dict[str, Any],
    words: str | None,
    second_run: tuple[dict[str, Any], list[bytes]],
    tmp_path: Path,
) -> None:
    scenario: Scenario = scenario_of("wal_full")
    # The log must be from the same run as the guest's report: on a busy host runs may differ by some nanoseconds.
    told, parts = second_run
    with archive.write(parts[:1], tmp_path / "whole", [DISK_MIB], parts[1:]).open() as logs:
        path = write_log(tmp_path / "log", sabotage(entries_of(logs.first)))
    with WriteLog.open(path, device_bytes=DISK_MIB << 20) as log:
        if words is None:
            soundness.require_sound(scenario, told, Logs(log))
            return
        with pytest.raises(RecordingError, match=f"the recording of {scenario.id} is void: .*{words}"):
            soundness.require_sound(scenario, told | told_too, Logs(log))
