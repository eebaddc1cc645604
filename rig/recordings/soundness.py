"""Checks that a recording is sound, and the facts that are kept about it.

A recording is void, and never kept, unless all of this holds. For each of its disks, a replay of every log entry equals
the device byte for byte, the disk counted as many flushes as the log holds, and the block trace agrees with the log
entry by entry (this is checked whenever they are opened). No log was truncated. Nothing was read from the host's disk
meanwhile. The engine's settings, the mount options and the attributes of files, read back, are the ones asked for. The
logs of two disks hold the same marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rig.contract.errors import RecordingError
from rig.contract.faultspecs import SPECS, FaultClass
from rig.contract.geometry import CHUNK_BYTES, disk_digest
from rig.contract.injections import Injection
from rig.contract.results import LogFacts, RecordingFacts
from rig.contract.scenario import Scenario
from rig.faults import EntryFlag, Logs, WriteLog
from rig.faults.log.submissions import joinable_flush_count
from rig.filesystems import Attributed, filesystem_named
from rig.recordings import archive
from rig.recordings.timeline import Timeline


@dataclass(frozen=True)
class Origin:
    """The template, image and QEMU with which a recording was made."""

    # The identity of the recorder's template, and the digest of the guest image.
    template: str
    image: str
    qemu_version: str


def log_count(report: Mapping[str, Any]) -> int:
    """Return how many of the parts that the guest handed over are logs; these come first."""
    return len(_disks(report))


def facts_of(scenario: Scenario, origin: Origin, report: Mapping[str, Any], logs: Logs) -> RecordingFacts:
    """Return the facts of a sound recording; raise RecordingError or LogError with what voids it."""
    require_sound(scenario, report, logs)
    timeline = Timeline(logs.first.marks)
    counts = [_counts(log) for log in logs.all]
    return RecordingFacts(
        key=scenario.recording_key,
        disk_mib=sum(log.device_bytes for log in logs.all) >> 20,
        second_disk_mib=sum(log.device_bytes for log in logs.all[1:]) >> 20,
        logs=_log_facts(logs),
        template=origin.template,
        image=origin.image,
        qemu_version=origin.qemu_version,
        kernel=report["kernel"],
        engine_version=f"{report['settings']['version']} {report['settings'].get('source_id', '')}".strip(),
        settings=report["settings"],
        seed=scenario.seed,
        transaction_count=len(timeline.acks),
        busy_virtual_ns=timeline.busy_ns,
        span_virtual_ns=timeline.end.time_ns - timeline.setup.time_ns,
        flush_count=sum(count.flush for count in counts),
        written_bytes=sum(count.written_bytes for count in counts),
        user_bytes=report["user_bytes"],
        reproduced=None,
        syncs=report["syncs"],
        live=report["live"],
        clock=report.get("clock", []),
        reached=[(word, *timeline.span(ending, number)) for ending, number, word in report.get("reached", [])],
        skipped=report.get("skipped", {}),
        filesystem=report["filesystem"],
        steps=timeline.steps,
        error_count=sum(moment.kind == "error" for moment in timeline.moments),
        latencies_virtual_ns=[ack.time_ns - begin.time_ns for begin, ack in timeline.turns],
        fua_count=sum(count.fua for count in counts),
    )


def _log_facts(logs: Logs) -> list[LogFacts]:
    file = logs.file
    facts = [
        LogFacts(
            archive.digest(log.path, log.end_bytes, log.begin_bytes), log.end_bytes, log.entry_count, log.unit_bytes
        )
        for log in logs.all
    ]
    for rank, (begin_bytes, length_bytes) in enumerate(file.traces):
        traced = archive.digest(file.path, length_bytes, begin_bytes)
        facts[rank] = replace(facts[rank], trace_digest=traced, trace_bytes=length_bytes)
    return facts


def require_sound(scenario: Scenario, report: Mapping[str, Any], logs: Logs) -> None:
    """Raise RecordingError or LogError if something voids the recording."""
    void = f"the recording of {scenario.id} is void"
    if report["root_reads"]:
        raise RecordingError(f"{void}: {report['root_reads']} reads went to the host's disk while it was made")
    # The rounds of live cuts are checked separately, see `rig.recordings.livecuts`.
    if "rounds" not in report:
        for disk, log in zip(_disks(report), logs.all, strict=True):
            _require_same_disk(void, disk, log)
    if len(logs.all) > 1:
        # Raises LogError if the marks of the two differ.
        _ = logs.pair
    for name, asked in {**scenario.tuning, **scenario.settings}.items():
        if report["settings"].get(name) != asked:
            raise RecordingError(f"{void}: {name} was set to {asked} and reads back {report['settings'].get(name)}")
    require_mounted(void, scenario.filesystem, report["filesystem"]["mount"])
    require_attributes(void, scenario.filesystem, report["filesystem"].get("attributes", ""))
    acks = sum(mark.text.startswith("ack-") for mark in logs.first.marks)
    spec = SPECS[scenario.fault]
    must_finish = not spec.injection or spec.fault_class is FaultClass.CLOCK or spec.injection is Injection.TWODISK
    if acks != scenario.workload.transaction_count and must_finish:
        raise RecordingError(f"{void}: {acks} of {scenario.workload.transaction_count} transactions acknowledged")


def require_mounted(void: str, word: str, options: str) -> None:
    """Raise RecordingError if the mount options, read back, lack one that makes the file system what its word says."""
    for option in filesystem_named(word).reads_back:
        if option not in options.split(","):
            raise RecordingError(f"{void}: it should be mounted with {option}, and the kernel lists {options}")


def require_attributes(void: str, word: str, attributes: str) -> None:
    """Raise RecordingError if files lack the attribute, read back, that makes the file system what its word says."""
    filesystem = filesystem_named(word)
    if isinstance(filesystem, Attributed) and attributes != filesystem.attributes:
        raise RecordingError(
            f"{void}: all files should have the attribute {filesystem.attributes}, and read back {attributes!r}"
        )


def _disks(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the guest's report on each disk, the first disk first."""
    return [report, *([report["second"]] if "second" in report else [])]


def _require_same_disk(void: str, disk: Mapping[str, Any], log: WriteLog) -> None:
    """Raise RecordingError unless a log holds all that its disk saw."""
    flush_count = int(np.count_nonzero(log.flags & EntryFlag.FLUSH))
    joinable_count = joinable_flush_count(log.account, log.flags) if log.account else 0
    if not flush_count - joinable_count <= disk["requests"]["flushes"] <= flush_count:
        raise RecordingError(f"{void}: the log holds {flush_count} flushes, the disk saw {disk['requests']['flushes']}")
    content = log.replay(log.entry_count, log.device_bytes).reshape(-1, CHUNK_BYTES)
    if disk_digest(chunk.tobytes() for chunk in content) != disk["device_digest"]:
        raise RecordingError(f"{void}: replaying its {log.entry_count} entries does not give the device")


@dataclass(frozen=True)
class _Counts:
    """Counts of one log: FLUSHes and FUA writes while transactions were under way, bytes from setup to end."""

    flush: int
    fua: int
    written_bytes: int


def _counts(log: WriteLog) -> _Counts:
    timeline = Timeline(log.marks)
    written = log.payload_bytes[timeline.setup.entry_index : timeline.end.entry_index].sum()
    return _Counts(_within(log, EntryFlag.FLUSH, timeline), _within(log, EntryFlag.FUA, timeline), int(written))


def _within(log: WriteLog, flag: EntryFlag, timeline: Timeline) -> int:
    """Count the entries with a flag inside transactions; those that overlap share theirs."""
    entries = np.flatnonzero(log.flags & flag)
    ranges = [(begin.entry_index, ack.entry_index) for begin, ack in timeline.busy_spans]
    return sum(int(np.count_nonzero((entries > begin) & (entries < ack))) for begin, ack in ranges)
