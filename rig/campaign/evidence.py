"""What a finished run can still be asked about one scenario: further crash states, where files were, calls, syncs.

States are judged as a campaign judges them (`rig.campaign.verification`). A disk content is judged once. Files are
looked at under emulation. Calls and the effect of further syncs need another recording of the same scenario, which is
made in the recorder's template and not kept.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rig.campaign import record
from rig.campaign.lifebegin import LifeBegin, life_of
from rig.campaign.replay import address_of, open_recovery, parse_content
from rig.campaign.session import Look, VerifierSession
from rig.campaign.verdicts import verdict
from rig.campaign.verification import StateCheck
from rig.contract.calls import SeenCall
from rig.contract.clocks import Clock
from rig.contract.errors import StoreError, UsageError
from rig.contract.faultspecs import SPECS
from rig.contract.findings import Finding
from rig.contract.injections import Injection
from rig.contract.messages import decode
from rig.contract.orders import ADD_EVERYTHING, ADD_PREFIX, ADD_SEPARATOR, ADD_WITHIN, STACKS_OF, TELL_CALLS
from rig.contract.places import FilePlaces
from rig.contract.results import RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.engines import Sharing, load
from rig.faults import Address, CrashState, Fault, Logs, everything_unflushed_lost, plan
from rig.filesystems import Mirrored, filesystem_named
from rig.host.progress import Progress
from rig.machines.guests import Machines
from rig.machines.pool import Pooled, Pools
from rig.planning.cuts import Cut
from rig.recordings import archive
from rig.recordings.timeline import Timeline
from rig.store import Run

# The models whose states are any choice of the writes that a cut leaves open.
_MODELS = (Fault.POWERCUT, Fault.TORN, Fault.LYINGFLUSH, Fault.TWODISK)


@dataclass
class ScenarioEvidence:
    """One scenario of a run, with its recording open and machines at rest; from `of_scenario`."""

    scenario: Scenario
    facts: RecordingFacts
    logs: Logs
    timeline: Timeline
    _machines: Machines
    _pooled: Pooled
    # One for each processor. They stay, because a machine ends with the thread that started it.
    _threads: ThreadPoolExecutor
    clock: Clock | None = None
    progress: Progress | None = None
    # Where the recorded life began, if it is a later one.
    life: LifeBegin | None = None
    _known: dict[str, Finding] = field(default_factory=dict)

    def judge(self, placed: Sequence[tuple[CrashState, int | None]], *, twice: bool = False) -> list[Verdict]:
        """Judge states, each at an entry or at its own instant; `twice` also in the reference, if there is another."""
        digests = [self.logs.digest(state) for state, _ in placed]
        fresh = {
            digest: state for digest, (state, _) in zip(digests, placed, strict=True)
            if twice or digest not in self._known
        }  # fmt: skip
        order = sorted(fresh, key=lambda digest: (fresh[digest].base_end, fresh[digest].id))
        self._known |= dict(zip(order, self._findings([fresh[digest] for digest in order], twice=twice), strict=True))
        return [
            verdict(
                Cut(self.scenario.id, state, digest, state.instant if entry is None else entry, 0, self.clock),
                self._known[digest],
                self.timeline,
            )
            for digest, (state, entry) in zip(digests, placed, strict=True)
        ]

    def _findings(self, states: Sequence[CrashState], *, twice: bool) -> list[Finding]:
        """Check states in the order of their base, a part of them in a machine on each processor."""
        reference = self._pooled.verifier if twice else None
        check = StateCheck(self.scenario, self.logs.first)
        # A server that takes too long to recover is given up: to wait longer takes minutes, for one candidate.
        if not twice and load(self.scenario.engine_module).spec.sharing is Sharing.SERVER:
            check = replace(check, tries_max=1)

        def check_part(part: Sequence[CrashState]) -> list[Finding]:
            findings = []
            for finding in check.findings([(state, self.clock) for state in part], self._pooled.checker, reference):
                findings.append(finding)
                if self.progress:
                    self.progress.advance(1)
            return findings

        if not states:
            return []
        if self.progress:
            self.progress.expect(len(states))
        size = -(-len(states) // len(os.sched_getaffinity(0)))
        parts = [states[begin : begin + size] for begin in range(0, len(states), size)]
        return [finding for findings in self._threads.map(check_part, parts) for finding in findings]

    def places(self, states: Sequence[CrashState]) -> list[list[FilePlaces] | None]:
        """Return for each state where its files are; None for one that cannot be mounted."""
        looks = self._look(states, Look.PLACES)
        return [None if files is None else [decode(FilePlaces, places) for places in files] for files in looks]

    def files(self, states: Sequence[CrashState]) -> list[bytes | None]:
        """Return the files of states once the file system has recovered, as tar archives with gzip.

        None stands for a state that cannot be mounted.
        """
        return [None if files is None else base64.b64decode(str(files)) for files in self._look(states, Look.FILES)]

    def durable_state(self, entry: int) -> CrashState:
        """Return the state in which, just before a log entry, everything is lost that was not flushed."""
        return everything_unflushed_lost(self.logs.first, self.logs.epochs, entry)

    def shell(self, state: CrashState, typed: Iterator[bytes], printed: Callable[[bytes], object]) -> int:
        """Start a shell in a machine with a state mounted; see `rig.campaign.session`."""
        with self._machines.verifier.clone(recording=self.logs.first.path) as machine:
            return VerifierSession(machine, self.scenario, self.logs.first).shell(state, typed, printed)

    @property
    def untold(self) -> str:
        """Return why nobody can tell the calls of the workload, as the end of a sentence; empty if it can be done."""
        if self.scenario.workload.client_count > 1:
            return "transactions of several clients overlap, so nobody can say whose call it was"
        is_killed = SPECS[self.scenario.fault].injection is Injection.KILLCUT
        return "the workload is killed, and is then not run under supervision" if is_killed else ""

    def calls(self, span: tuple[int, int]) -> list[SeenCall]:
        """Run the workload once more under supervision and return its calls, unless they are `untold`.

        Calls in a span of transactions have their call stacks.
        """
        if self.untold:
            return []
        self._says("running the workload once more, to see its calls")
        supervised = replace(self.scenario, shim=f"{TELL_CALLS}{STACKS_OF}{span[0]}-{span[1]}")
        if self.life:
            calls = self.life.again(supervised, self._pooled.verifier).calls
        else:
            calls = record.run(supervised, self._machines.recorder)[0]["calls"]
        return [decode(SeenCall, message) for message in calls]

    def plan(self, span: tuple[int, int], states_max: int) -> list[Cut]:
        """Plan states of the scenario's fault in the epochs that a span of transactions touches."""
        return _plan_of(self.scenario, self.logs, self.timeline, span, states_max)

    @contextmanager
    def with_syncs(self, wanted: Sequence[str]) -> Iterator[ScenarioEvidence]:
        """Record the scenario with further syncs, for the length of a block; `wanted` are roles or paths of files.

        Without any, the supervision is the same, and adds nothing.
        """
        words = " and ".join(
            "everything" if name == ADD_EVERYTHING else name.removeprefix(ADD_WITHIN) for name in wanted
        )
        self._says(f"recording the workload with {f'a sync of {words}' if wanted else 'nothing'} added")
        added = replace(self.scenario, shim=f"{ADD_PREFIX}{ADD_SEPARATOR.join(wanted)}")
        with tempfile.TemporaryDirectory(prefix="rig-") as name, ExitStack() as stack:
            folder, facts = Path(name), self.facts
            if self.life:
                opened = stack.enter_context(self.life.opened_again(added, self._pooled.verifier, folder))
                logs, timeline = opened.logs, life_of(opened)
            else:
                recorded = record.record(added, self._machines.recorder, folder)
                logs, facts = stack.enter_context(recorded.open()), recorded.facts
                timeline = Timeline(logs.first.marks)
            yield replace(self, scenario=added, facts=facts, logs=logs, timeline=timeline, _known={})

    def _says(self, text: str) -> None:
        if self.progress:
            self.progress.says(text)

    def _look(self, states: Sequence[CrashState], look: Look) -> list[Any]:
        order = sorted(range(len(states)), key=lambda rank: states[rank].base_end)
        with self._pooled.verifier.clone(recording=self.logs.first.path) as machine:
            session = VerifierSession(machine, self.scenario, self.logs.first)
            looks = dict(zip(order, session.looks([states[rank] for rank in order], look), strict=True))
        return [looks[rank] for rank in range(len(states))]


@contextmanager
def of_scenario(
    run: Run, scenario_id: str, machines: Machines, progress: Progress | None = None
) -> Iterator[ScenarioEvidence]:
    """Open a scenario of a run for the length of a block; raise StoreError if its recording is gone."""
    scenario = run.scenario(scenario_id)
    recorded = archive.load(run.recording_folder(scenario))
    if recorded is None:
        raise StoreError(f"the recording of {scenario_id} is gone from {run.folder}")
    with of_recording(scenario, recorded, machines) as evidence:
        evidence.progress = progress
        yield evidence


@contextmanager
def of_recording(scenario: Scenario, recorded: archive.Recording, machines: Machines) -> Iterator[ScenarioEvidence]:
    """Open a recording of a scenario for the length of a block."""
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(len(os.sched_getaffinity(0))))
        pools = Pools()
        stack.callback(pools.close)
        logs = stack.enter_context(recorded.open())
        timeline = Timeline(logs.first.marks)
        yield ScenarioEvidence(scenario, recorded.facts, logs, timeline, machines, pools.of(machines), threads)


@contextmanager
def of_state(run: Run, evidence: ScenarioEvidence, state_id: str) -> Iterator[tuple[ScenarioEvidence, CrashState]]:
    """Give a crash state and the evidence of the recording that it was cut from, for the length of a block.

    That may be the recording of a later life. Otherwise as `state_of`.
    """
    scenario = evidence.scenario
    address = require_single_cut(scenario, evidence.facts, state_id, has_lives=True)
    if not address.way:
        yield evidence, state_of(evidence, state_id)
        return
    before = Address.parse(address.before)
    with open_recovery(run, scenario, address.before) as opened, ExitStack() as stack:
        parent = stack.enter_context(open_recovery(run, scenario, before.before)).logs if before.way else evidence.logs
        begin = LifeBegin(before, parse_content(before.content, scenario.id, parent), parent.first)
        living = replace(scenario, lives=opened.lives)
        own = replace(evidence, scenario=living, logs=opened.logs, timeline=life_of(opened), life=begin, _known={})
        yield own, parse_content(address.content, scenario.id, opened.logs)


def state_of(evidence: ScenarioEvidence, state_id: str) -> CrashState:
    """Return the crash state of an address, and judge under its clock from now on.

    Raise UsageError for a finding of a run that was not cut, a state of a recovery, or one of two disks.
    """
    scenario = evidence.scenario
    address = require_single_cut(scenario, evidence.facts, state_id)
    state = parse_content(address.content, scenario.id, evidence.logs)
    evidence.clock = Clock(address.clock) if address.clock else None
    return state


def require_single_cut(scenario: Scenario, facts: RecordingFacts, state_id: str, *, has_lives: bool = False) -> Address:
    """Return the address of a state that is one cut of one disk of the recording; raise UsageError for any other.

    With `has_lives` it may be a cut of a later life.
    """
    if not SPECS[scenario.fault].model or any(live["state"] == state_id for live in facts.live):
        raise UsageError(f"{state_id!r} was found while the machine ran, and no writes were chosen: see rig replay")
    address = address_of(scenario, state_id)
    if address.way and not (has_lives and SPECS[scenario.fault].later_count):
        raise UsageError(
            f"{state_id!r} is a state of a recovery, and this command knows those of the recording: see rig replay"
        )
    if facts.second_disk_mib and isinstance(filesystem_named(scenario.filesystem), Mirrored):
        raise UsageError(
            f"{state_id!r} is a state of a mirror, and this command knows one copy of a file: see rig replay"
        )
    return address


def require_choice(scenario: Scenario) -> None:
    """Raise UsageError unless the states of a scenario's fault are any choice of the writes that a cut leaves open."""
    if SPECS[scenario.fault].model not in _MODELS:
        faults = ", ".join(_MODELS)
        raise UsageError(
            f"the states of {scenario.fault} are no free choice of writes; explained are those of {faults}"
        )


def verdict_of(evidence: ScenarioEvidence, run: Run, state: CrashState, state_id: str) -> Verdict:
    """Return the stored verdict of a state, of the last instant: it had the most to lose. Judge a state without one."""
    stored = [verdict for verdict in run.verdicts(evidence.scenario.id)[0] if verdict.state == state_id]
    return max(stored, key=lambda verdict: verdict.entry) if stored else evidence.judge([(state, None)])[0]


def _plan_of(scenario: Scenario, logs: Logs, timeline: Timeline, span: tuple[int, int], states_max: int) -> list[Cut]:
    """Return cuts in the epochs between the begin of the first and the acknowledgement after the last transaction."""
    first, last = span
    begin = next(
        (moment.entry_index for moment in timeline.begins if moment.number >= first), timeline.setup.entry_index
    )
    end = next((moment.entry_index for moment in timeline.acks if moment.number > last), timeline.end.entry_index)
    fault = Fault.of(SPECS[scenario.fault].model)
    # Two disks have no epochs in common, so there it is what follows the begin.
    among = [epoch for epoch in logs.epochs if epoch.end > begin and epoch.begin <= end] if fault.states else None
    planned = plan(fault, logs, among, first_entry=begin, states_max=states_max, seed=scenario.seed)
    return [Cut(scenario.id, state, logs.digest(state), state.instant, 0) for state in planned.states]
