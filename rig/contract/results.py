"""What the rig stores and the analysis reads: plain frozen data, one row a crash state, one record a recording.

Times are virtual nanoseconds of the recorder's guest clock; byte and entry counts are plain integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NotRequired, TypedDict


class VerdictKind(StrEnum):
    """What reopening one crash state showed, from best to worst; the last group says nothing about the database."""

    DURABLE = "durable"
    LOST_SUFFIX = "lost-suffix"
    TORN = "torn"
    HOLE = "hole"
    STALE = "stale"
    FOREIGN = "foreign"
    CORRUPT = "corrupt"
    UNOPENABLE = "unopenable"
    FILESYSTEM_DAMAGE = "file-system-damage"
    KERNEL_PANIC = "kernel-panic"
    HANG = "hang"
    INCONCLUSIVE = "inconclusive"

    @property
    def is_damage(self) -> bool:
        """Whether the database came back in a state that no prefix of its transactions explains."""
        return self in (self.TORN, self.HOLE, self.STALE, self.FOREIGN, self.CORRUPT, self.UNOPENABLE)

    @property
    def is_infrastructure(self) -> bool:
        """Whether the verdict says something of the rig, the kernel or the file system, and nothing of the database."""
        return self in (self.FILESYSTEM_DAMAGE, self.KERNEL_PANIC, self.HANG, self.INCONCLUSIVE)


@dataclass(frozen=True)
class Verdict:
    """One crash state judged. `recovered` is the p with content == model(p), or None if there is none."""

    scenario: str
    # The address of the crash state, as it is typed to replay it; the next four say what nobody has to read out of it.
    state: str
    content: str
    # The log entry of the recording just before whose completion the power went; 0 for what was found without a cut.
    entry: int
    # The clock that the machine came back with, a word of `Clock`; empty where it is no part of the fault.
    clock: str
    # What the content holds beside the writes that landed (`faults.damage.Holds`); empty for nothing.
    holds: str
    kind: VerdictKind
    acked: int
    recovered: int | None
    lost: int
    # From the ack of the first lost transaction to the cut; 0 when nothing is lost.
    lost_virtual_ns: int
    # The virtual time this state stands for as the state "everything unflushed is lost" of a cut instant; else 0.
    instant_weight_ns: int
    # The first difference or the engine's words; empty when there is nothing to tell.
    detail: str


class LiveFinding(TypedDict):
    """The database reopened while its machine went on running: after a kill, or after an error."""

    # Names the instant in the recording; with the scenario and the template it is made again.
    state: str
    acked: int
    issued: int
    # As `rig.guest.oracle.Finding` has it.
    kind: str
    recovered: int | None
    detail: str
    # Transactions that a disk acknowledged which was no more; only of a live cut.
    acked_after: NotRequired[int]


@dataclass(frozen=True)
class LogFacts:
    """One write log of a recording; `digest` is of its bytes up to the end of the last entry."""

    digest: str
    size_bytes: int
    entry_count: int


@dataclass(frozen=True)
class RecordingFacts:
    """What one recording is and what it measured; `settings` is READ BACK from the engine."""

    key: str
    # One for each disk, that with the data first.
    logs: Sequence[LogFacts]
    template: str
    image: str
    qemu_version: str
    kernel: str
    engine_version: str
    settings: Mapping[str, str]
    seed: int
    transaction_count: int
    # Virtual time spent inside transactions, begin to ack, without think time.
    busy_virtual_ns: int
    # Virtual time from the end of the setup to the end of the workload, think time included.
    span_virtual_ns: int
    # FLUSH entries logged between begin and ack, summed over all transactions.
    flush_count: int
    # Bytes of all write entries from the end of the setup to the end of the workload.
    written_bytes: int
    # Bytes of keys and values that the workload handed to the engine.
    user_bytes: int
    # Whether two runs of the same scenario on the same template gave the same log, bit for bit; None if not tried.
    reproduced: bool | None
    # The sync calls of one transaction, in order, and how many of a sample of transactions made these; see
    # `rig.guest.watch.supervisor`. Empty where they were not looked at.
    syncs: Mapping[str, int]
    # What reopening in the running guest showed, without a cut: see `LiveFinding` for the fields of each.
    live: Sequence[LiveFinding]
    # What the workload read of its clocks where a wrong one was put under it: `rig.guest.programs.clock.ProcessClock`.
    clock: Sequence[Sequence[int]] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Return the digests of all logs."""
        return "+".join(log.digest for log in self.logs)

    @property
    def entry_count(self) -> int:
        """Return the number of entries of all logs."""
        return sum(log.entry_count for log in self.logs)


@dataclass(frozen=True)
class PlanFacts:
    """How much of what could legally have happened was looked at."""

    state_count: int
    epoch_count: int
    epochs_exhaustive: int
    epochs_sampled: int
    instant_count: int
    # Recoveries that were recorded and cut, and the states of which one had begun to write to the files of the
    # database, and had more to write.
    recovery_count: int = 0
    inside_count: int = 0
    # Of two disks: the states in which the one holds what became durable behind the last that the other holds.
    apart_count: int = 0
    # Planned states that an independent checker (`faults.legality`) found legal, before any was judged.
    audited_count: int = 0


@dataclass(frozen=True)
class MeasuredScenario:
    """All that is stored of one scenario of the matrix; `settings` as asked for, in the engine's own words."""

    id: str
    engine: str
    filesystem: str
    settings: Mapping[str, str]
    fault: str
    device: str
    shim: str
    recording: RecordingFacts
    plan: PlanFacts
    verdicts: tuple[Verdict, ...]
