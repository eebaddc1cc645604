"""A campaign: record every scenario once, cut it many times, and store a verdict for every cut.

Work proceeds recording by recording, and verdicts are stored as they come. A void recording or a lost machine costs
only its own scenarios their results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Protocol

from rig.campaign import record, recover
from rig.campaign.verification import Job, verify
from rig.contract.arms import SPECS
from rig.contract.errors import DisagreementError, LegalityError, RigError
from rig.contract.findings import Finding
from rig.contract.results import RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import LogError, LogFile, Logs
from rig.host.progress import Progress
from rig.machines import machine
from rig.machines.guests import Source
from rig.machines.pool import Pooled, Pools
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut, by_content, missing
from rig.planning.matrix import Profile
from rig.planning.planner import Planned, Planner
from rig.planning.verdicts import live_verdicts, verdict
from rig.recordings import archive
from rig.recordings.timeline import Timeline
from rig.store import Run

_BATCH = 16
# The fewest contents that are worth a clone of their own (it takes half a second to warm up) while other recordings
# keep all machines busy.
_PART_MIN = 160


class Silent:
    """Progress that shows nothing."""

    def says(self, text: str) -> None:
        """Say nothing."""

    def planned(self, cut_count: int) -> None:
        """Show nothing."""

    def judged(self, cut_count: int) -> None:
        """Show nothing."""


# After these no verdict of a scenario counts, whenever it was made.
_VOIDING = (DisagreementError, LegalityError)


class Campaign:
    """The scenarios of a run that are still to be measured, and the threads that measure them."""

    def __init__(self, run: Run, profile: Profile, source: Source, progress: Progress, jobs: int = 0) -> None:
        self._run = run
        self._profile = profile
        self._source = source
        self._pools = Pools()
        self._progress = progress
        self._jobs = jobs or os.cpu_count() or 1
        self._stopped = threading.Event()
        self._part_min = 1

    def measure(self, scenarios: Sequence[Scenario]) -> None:
        """Measure all scenarios that the run lacks. No machine is left running, whatever interrupts us."""
        for scenario in scenarios:
            self._source.of(scenario)
        ordered = sorted(scenarios, key=lambda scenario: (scenario.recording_key, scenario.id))
        groups = [list(group) for _, group in groupby(ordered, key=lambda scenario: scenario.recording_key)]
        groups.sort(key=lambda group: group[0].id)
        self._part_min = _PART_MIN if len(groups) > self._jobs else 1
        vms = ThreadPoolExecutor(self._jobs, "vm")
        # One more group than machines: plan the next recording while the last states of this one are checked.
        leaders = ThreadPoolExecutor(self._jobs + 1, "group")
        try:
            leading = [
                leaders.submit(
                    self._measure_group, group, vms, reproduce=number == 0 or self._profile.reproduces(group[0])
                )
                for number, group in enumerate(groups)
            ]
            for future in leading:
                future.result()
        finally:
            self._stopped.set()
            machine.stop_all()
            for pool in (leaders, vms):
                pool.shutdown(wait=True, cancel_futures=True)
            self._pools.close()
            machine.allow_all()

    def _measure_group(self, group: Sequence[Scenario], vms: ThreadPoolExecutor, *, reproduce: bool) -> None:
        first = group[0]
        with self._run.locked(first, self._stopped), ExitStack() as stack:
            try:
                folder = self._run.recording_folder(first)
                archive.remove_leftovers(folder)
                recorded = archive.load(folder)
                if recorded is None:
                    recorder = self._source.of(first).recorder
                    recorded = vms.submit(record.record, first, recorder, folder, reproduce=reproduce).result()
                logs = stack.enter_context(recorded.opened())
                self._judge_group(group, recorded.facts, logs, vms)
            except (RigError, LogError, TimeoutError) as error:
                self._failed(group, error)

    def _judge_group(
        self, group: Sequence[Scenario], facts: RecordingFacts, logs: Logs, vms: ThreadPoolExecutor
    ) -> None:
        """Judge all states; if two kinds of machines disagree on one, judge them all again in the emulator."""
        why = next(filter(None, map(self._run.emulated_because, group)), "")
        try:
            self._judge(group, facts, logs, vms, why)
        except DisagreementError as error:
            for scenario in group:
                self._run.void(scenario, str(error))
            why = f"judged under emulation alone, because {error}"
            self._progress.says(f"{group[0].id} and what shares its recording: {why}")
            self._judge(group, facts, logs, vms, why)

    def _judge(
        self, group: Sequence[Scenario], facts: RecordingFacts, logs: Logs, vms: ThreadPoolExecutor, why_emulated: str
    ) -> None:
        planner = Planner(self._profile, logs, Timeline(logs.first.marks), Auditor(logs, facts.disks_mib))
        judge = _Judge(self._run, planner.timeline, self._progress)
        with ExitStack() as stack:
            planned = []
            for scenario in group:
                with self._costs_only(scenario):
                    planned.append(self._planned(scenario, planner, vms, stack))
            while planned:
                for one in planned:
                    self._begin(replace(one, facts=replace(one.facts, emulated_because=why_emulated)), facts)
                parts = self._parts(group[0], planned, logs)
                self._progress.planned(sum(len(same) for part in parts for same in part.contents))
                verify = partial(self._verify_part, judge=judge, is_emulated=bool(why_emulated))
                futures: list[Future[None]] = [vms.submit(verify, part) for part in parts]
                # Logs and files are in use until the last part is done, even if another part has failed.
                wait(futures)
                _raise_worst(futures)
                planned = self._grown(planned, planner)

    def _planned(self, scenario: Scenario, planner: Planner, vms: ThreadPoolExecutor, stack: ExitStack) -> Planned:
        """Return the first cuts of a scenario."""
        if not SPECS[scenario.fault].cuts_recovery:
            return planner.first(scenario)
        kept = self._run.recoveries(scenario)
        kept.remove_leftovers()
        if kept.index() is None:
            verifiers = self._pooled(scenario).verifier
            vms.submit(recover.record, scenario, self._profile, verifiers, planner.logs, kept, self._stopped).result()
        return planner.of_recoveries(scenario, kept, stack)

    def _begin(self, one: Planned, facts: RecordingFacts) -> None:
        """Store a plan, and the findings that need no machine."""
        scenario = one.scenario
        self._run.write_plan(scenario, replace(one.facts, state_count=one.facts.state_count + len(facts.live)))
        for damage in self._run.mend(scenario.id):
            self._progress.says(f"{damage}; it is judged again")
        self._store_live(scenario, facts, self._run.verdicts(scenario.id)[0])

    def _parts(self, first: Scenario, planned: Sequence[Planned], logs: Logs) -> list[_Part]:
        """Return jobs for all cuts without a verdict; scenarios share the jobs for cuts of the recording itself."""
        found: list[Cut] = []
        parts: list[_Part] = []
        for one in planned:
            verdicts, _ = self._run.verdicts(one.scenario.id)
            for opened, batch in one.batches:
                lacking = missing(batch, verdicts)
                if opened:
                    parts.append(_part(first, opened.logs.file, by_content(lacking)))
                else:
                    found += lacking
        contents = by_content(found)
        size = max(self._part_min, -(-len(contents) // self._jobs))
        parts += [_part(first, logs.file, contents[begin : begin + size]) for begin in range(0, len(contents), size)]
        return [part for part in parts if part.contents]

    def _grown(self, planned: Sequence[Planned], planner: Planner) -> list[Planned]:
        """Return plans of more states for the scenarios that have seen too few file contents."""
        found = []
        for one in planned:
            with self._costs_only(one.scenario):
                more = planner.more(one, self._run.verdicts(one.scenario.id)[0])
                if isinstance(more, Planned):
                    found.append(more)
                elif more:
                    self._run.write_ending(one.scenario, more.why, is_saturated=more.is_saturated)
        return found

    @contextmanager
    def _costs_only(self, scenario: Scenario) -> Iterator[None]:
        """Blame an error on one scenario only: the others are cut from a sound recording."""
        try:
            yield
        except (RigError, LogError, TimeoutError) as error:
            self._failed([scenario], error)

    def _store_live(self, scenario: Scenario, facts: RecordingFacts, stored: Sequence[Verdict]) -> None:
        """Store the findings of the recording run itself, unless they are stored already."""
        known = {one.state for one in stored}
        fresh = [one for one in live_verdicts(scenario.id, facts.live) if one.state not in known]
        if fresh:
            self._run.append(scenario.id, fresh)

    def _verify_part(self, part: _Part, judge: _Judge, *, is_emulated: bool) -> None:
        pooled = self._pooled(part.job.scenario)
        checker = pooled.verifier if is_emulated else pooled.checker
        found = closing(verify(part.job, checker, self._stopped, pooled.verifier))
        with judge.batch() as add, found as findings:
            for same, finding in zip(part.contents, findings, strict=True):
                add(same, finding)

    def _pooled(self, scenario: Scenario) -> Pooled:
        return self._pools.of(self._source.of(scenario))

    def _failed(self, scenarios: Sequence[Scenario], error: Exception) -> None:
        """Note why scenarios could not be measured; raise the error instead if we are being stopped."""
        if self._stopped.is_set():
            raise error
        for scenario in scenarios:
            note = self._run.void if isinstance(error, _VOIDING) else self._run.write_failure
            note(scenario, str(error))
            self._progress.says(f"{scenario.id} could not be measured: {error}")


def _raise_worst(futures: Sequence[Future[None]]) -> None:
    """Raise an error of the finished futures, if any failed; an error that voids the others' findings goes first."""
    errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise min(errors, key=lambda error: not isinstance(error, _VOIDING))


@dataclass(frozen=True)
class _Part:
    """What one machine verifies: a job, and for each of its states the cuts that share its finding."""

    job: Job
    contents: Sequence[Sequence[Cut]]


def _part(scenario: Scenario, file: LogFile, contents: Sequence[Sequence[Cut]]) -> _Part:
    return _Part(Job(scenario, file, tuple((same[0].state.id, same[0].clock) for same in contents)), contents)


class _Judge:
    """Turns findings into verdicts and stores them in batches."""

    def __init__(self, run: Run, timeline: Timeline, progress: Progress) -> None:
        self._run = run
        self._timeline = timeline
        self._progress = progress
        self._lock = threading.Lock()

    @contextmanager
    def batch(self) -> Iterator[_Add]:
        pending: list[Verdict] = []

        def add(same: Sequence[Cut], finding: Finding) -> None:
            pending.extend(verdict(cut, finding, self._timeline) for cut in same)
            self._progress.judged(len(same))
            if len(pending) >= _BATCH:
                self._store(pending)

        try:
            yield add
        finally:
            self._store(pending)

    def _store(self, pending: list[Verdict]) -> None:
        with self._lock:
            for scenario in sorted({one.scenario for one in pending}):
                own = [one for one in pending if one.scenario == scenario]
                # Removed first, so that a failed append is judged again and not stored twice.
                pending[:] = [one for one in pending if one.scenario != scenario]
                self._run.append(scenario, own)


class _Add(Protocol):
    def __call__(self, same: Sequence[Cut], finding: Finding) -> None: ...
