"""What the rig stores and the analysis reads: frozen data, a row for each crash state, a record for each recording.

Times are virtual nanoseconds of the recorder's guest clock; byte and entry counts are plain integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NotRequired, TypedDict

from rig.contract.scenario import Scenario


class VerdictKind(StrEnum):
    """What reopening one crash state showed, from best to worst; the last group says nothing about the database."""

    DURABLE = "durable"
    # Durable, but the engine held files after it had closed the database.
    KEPT_OPEN = "kept-open"
    LOST_SUFFIX = "lost-suffix"
    # Each of several databases is a prefix, but a transaction that changed all of them is only in some.
    SPLIT = "split"
    TORN = "torn"
    HOLE = "hole"
    STALE = "stale"
    FOREIGN = "foreign"
    CORRUPT = "corrupt"
    UNOPENABLE = "unopenable"
    FICKLE = "fickle"
    OUT_OF_MEMORY = "out-of-memory"
    STUCK = "stuck"
    DIED = "died"
    FILESYSTEM_DAMAGE = "file-system-damage"
    KERNEL_PANIC = "kernel-panic"
    HANG = "hang"
    INCONCLUSIVE = "inconclusive"
    UNSTABLE = "unstable"

    @property
    def is_damage(self) -> bool:
        """Whether the database came back in a state that no prefix of its transactions explains."""
        return not self.is_infrastructure and self not in {self.DURABLE, self.KEPT_OPEN, self.LOST_SUFFIX}

    @property
    def is_unreadable(self) -> bool:
        """Whether the database could not be read at all: everything that was acknowledged is lost."""
        return self in (self.UNOPENABLE, self.OUT_OF_MEMORY, self.STUCK, self.DIED)

    @property
    def is_infrastructure(self) -> bool:
        """Whether the verdict is about the rig, the kernel or the file system, and says nothing about the database."""
        return self in (self.FILESYSTEM_DAMAGE, self.KERNEL_PANIC, self.HANG, self.INCONCLUSIVE, self.UNSTABLE)


@dataclass(frozen=True)
class Verdict:
    """One crash state judged. `recovered` is the p with content == model(p), or None without such a p."""

    scenario: str
    # The address of the crash state, as typed to replay it. The next four fields spare the reader parsing it.
    state: str
    content: str
    # The power went just before this log entry of the recording completed; 0 for a finding without a cut. In a later
    # life it is an entry of that life's own recording.
    entry: int
    # The clock with which the machine came back, a word of `Clock`; empty if the fault does not set it.
    clock: str
    # The kinds of damage in the content (`rig.faults.states.damage.Holds`); empty for none.
    holds: str
    kind: VerdictKind
    acked: int
    recovered: int | None
    lost: int
    # From the ack of the first lost transaction to the cut; 0 if nothing is lost.
    lost_virtual_ns: int
    # For the state "everything unflushed is lost" of a cut instant, the virtual time that it represents; otherwise 0.
    instant_weight_ns: int
    # The first difference or the engine's words; may be empty.
    detail: str
    # The file content: what the database saw, see `rig.guest.filecontent`; empty where no file system was mounted.
    files: str = ""
    # Whether the database was opened on this state; if not, the verdict comes from a state with the same file content.
    opened: bool = True
    # What the database met in its files when it was opened, in the engine's words, separated by commas.
    met: str = ""
    # Whether the file system had to be repaired before it was mounted, or repaired one copy from another.
    repaired: bool = False
    # How many of the lost transactions were never acknowledged: the database had shown them after a restart.
    lost_shown: int = 0

    @property
    def exposure(self) -> str:
        """Return what the database was exposed to: the file content, or the disk's where that is not known."""
        return self.files or self.content


class LiveFinding(TypedDict):
    """The database reopened while its machine kept running, for example after a kill or an error."""

    # Names the instant in the recording; the scenario and the template reproduce it.
    state: str
    acked: int
    issued: int
    # As in `rig.contract.findings.Finding`.
    kind: str
    recovered: int | None
    detail: str
    # The file content, where it is known.
    files: NotRequired[str]
    # Transactions acknowledged after the disk lost power; only for a live cut.
    acked_after: NotRequired[int]


@dataclass(frozen=True)
class LogFacts:
    """One write log of a recording; `digest` covers its bytes up to the end of the last entry.

    `trace_digest` covers the block trace, if there is one (`rig.faults.log.submissions`).
    """

    digest: str
    size_bytes: int
    # Entries as the crash states count them: a write longer than the unit is several.
    entry_count: int
    # What the disk writes atomically; 0 if any write is.
    unit_bytes: int = 0
    trace_digest: str = ""
    trace_bytes: int = 0


@dataclass(frozen=True)
class RecordingFacts:
    """One recording and its measurements; `settings` is READ BACK from the engine."""

    key: str
    # The size of the disk, or of both together.
    disk_mib: int
    # One for each disk, the first disk first.
    logs: Sequence[LogFacts]
    template: str
    image: str
    qemu_version: str
    kernel: str
    engine_version: str
    settings: Mapping[str, str]
    seed: int
    transaction_count: int
    # Virtual time during which transactions were under way, begin to ack, without think time.
    busy_virtual_ns: int
    # Virtual time from the end of the setup to the end of the workload, think time included.
    span_virtual_ns: int
    # FLUSH entries logged while transactions were under way, begin to ack.
    flush_count: int
    # Bytes of all write entries from the end of the setup to the end of the workload.
    written_bytes: int
    # Bytes of keys and values that the workload handed to the engine.
    user_bytes: int
    # Whether two runs of the same scenario on the same template gave the same log, bit for bit; None if not tried.
    reproduced: bool | None
    # Sequence of sync calls of one transaction -> how many sampled transactions made it; see
    # `rig.guest.watch.supervisor`. Empty if none were sampled.
    syncs: Mapping[str, int]
    # What reopening in the running guest showed.
    live: Sequence[LiveFinding]
    # The workload's readings of its clocks if it was given a wrong one: `rig.guest.programs.clock.ProcessClock`.
    clock: Sequence[tuple[int, bool, int, int]] = field(default_factory=list)
    # What the workload reached, each with the log entries between which a cut hits it: (situation, first, last).
    reached: Sequence[tuple[str, int, int]] = field(default_factory=list)
    # Event -> how often it was skipped, because the engine does not know it or these settings do not.
    skipped: Mapping[str, int] = field(default_factory=dict)
    # How the file system was made (`format`) and mounted (`mount`), READ BACK in the guest.
    filesystem: Mapping[str, str] = field(default_factory=dict)
    # Virtual time from begin to ack of each acknowledged transaction, in order; empty in recordings from before.
    latencies_virtual_ns: Sequence[int] = field(default_factory=list)
    # FUA writes logged while transactions were under way; None in recordings from before.
    fua_count: int | None = None
    # The size of the second disk; 0 if there is one disk.
    second_disk_mib: int = 0
    # Steps to which a user's program gave names, each with the log entries between which a cut hits it.
    steps: Sequence[tuple[str, int, int]] = field(default_factory=list)
    # How many transactions returned an error to a user's program.
    error_count: int = 0

    @property
    def disks_mib(self) -> tuple[int, ...]:
        """Return the size of each disk."""
        second_mib = self.second_disk_mib
        return (self.disk_mib - second_mib, second_mib) if second_mib else (self.disk_mib,)

    @property
    def digest(self) -> str:
        """Return the digests of all logs."""
        return "+".join(log.digest for log in self.logs)

    @property
    def entry_count(self) -> int:
        """Return the number of entries of all logs."""
        return sum(log.entry_count for log in self.logs)


@dataclass(frozen=True)
class PhaseFacts:
    """A phase of a commit: alike epochs, and which choices of their writes the states of a plan have tried.

    See `rig.faults.choosing.phases` and `rig.faults.choosing.paircoverage`.
    """

    what: str
    epoch_count: int
    # Writes in the batch of each of these epochs that change something.
    write_count: int
    # Ordered pairs (a, b) of these writes for which some state has a and lacks b.
    pairs_tried: int
    # Writes that were lost while all others landed, and writes that landed while all others were lost.
    lost_alone_count: int
    landed_alone_count: int
    # Crash states whose cut lies in one of these epochs.
    state_count: int = 0
    # Where the fault tears writes: the plain tears of these writes, and how many some state has. One write is torn in
    # two, and all others landed, or none did. None where writes are lost whole.
    tear_count: int | None = None
    tears_tried: int = 0

    @property
    def pair_count(self) -> int:
        """Return the number of ordered pairs of writes; 0 where writes are torn, because a power cut tries them."""
        return self.write_count * (self.write_count - 1) if self.tear_count is None else 0


@dataclass(frozen=True)
class PlanFacts:
    """How many of the legal crash states were planned."""

    state_count: int
    epoch_count: int
    epochs_exhaustive: int
    epochs_sampled: int
    instant_count: int
    # Recoveries that were recorded and cut, and the states in which the recovery had begun to write to the files of the
    # database and had more to write; for later lives, the states in which such a life had acknowledged a transaction.
    recovery_count: int = 0
    inside_count: int = 0
    # For two disks: states in which one disk holds something that became durable after all that the other holds.
    apart_count: int = 0
    # Epochs with hardly a planned state, because the log leaves open what they start on.
    epochs_doubtful: int = 0
    # For two disks: epochs that were not cut, because the logs do not tell what the other disk held.
    epochs_unproven: int = 0
    # Where and why, for the place that makes most of them doubtful; empty without doubtful epochs.
    doubt: str = ""
    # Why no more states were planned though more file contents were wanted; empty otherwise.
    ending: str = ""
    # Whether the ending was because the last round of states, or all states that there are, showed no new file content.
    is_saturated: bool = False
    # Planned states that an independent checker (`rig.faults.legality.legality`) found legal, before any was judged.
    audited_count: int = 0
    # Why all states were judged under emulation, although faster machines work here; empty if they were not.
    emulated_because: str = ""
    # Where the fault loses or tears writes of one disk, what was tried of each phase of a commit.
    phases: tuple[PhaseFacts, ...] = ()
    # If few pairs of writes were tried: the number of states with which a plan tries most, and how many; else 0.
    states_for_pairs: int = 0
    pairs_then: int = 0

    @property
    def pair_count(self) -> int:
        """Return the number of ordered pairs of writes, of all phases."""
        return sum(phase.pair_count for phase in self.phases)

    @property
    def pairs_tried(self) -> int:
        """Return the number of pairs of all phases for which some state has the first write and lacks the second."""
        return sum(phase.pairs_tried for phase in self.phases)

    @property
    def tear_count(self) -> int:
        """Return the number of plain tears of all phases."""
        return sum(phase.tear_count or 0 for phase in self.phases)

    @property
    def tears_tried(self) -> int:
        """Return the number of plain tears of all phases that some state has."""
        return sum(phase.tears_tried for phase in self.phases)


@dataclass(frozen=True)
class MeasuredScenario:
    """All that is stored for one scenario of the matrix."""

    scenario: Scenario
    recording: RecordingFacts
    plan: PlanFacts
    verdicts: tuple[Verdict, ...]
