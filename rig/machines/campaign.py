"""A campaign: record every scenario once, cut it many times, and store a verdict for every cut.

Work proceeds recording by recording, and verdicts are stored as they come. A void recording or a lost machine costs
only its own scenarios a result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from rig.cache import require_cache
from rig.contract.arms import SPECS
from rig.contract.errors import LegalityError, RigError
from rig.contract.findings import Finding
from rig.contract.results import PlanFacts, RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.engines import named
from rig.engines.builds import Library, builds_of
from rig.faults import LogError, LogFile, Logs
from rig.machines import image, machine, record, recover
from rig.machines.accelerator import best_accelerator
from rig.machines.argv import Role
from rig.machines.qemu import require_qemu
from rig.machines.template import Template, template
from rig.machines.verification import Job, verify
from rig.planning import recoverycuts
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut, by_content, cuts, missing
from rig.planning.matrix import Profile
from rig.planning.verdicts import live_verdicts, verdict
from rig.recordings import archive
from rig.recordings.recoveries import OpenRecovery
from rig.recordings.timeline import Timeline
from rig.store import Run

_BATCH = 16
# The fewest contents that are worth a clone of their own (it takes half a second to warm up) while other recordings
# keep all machines busy.
_PART_MIN = 160


class Progress(Protocol):
    """Receives the progress of a campaign; called from several threads."""

    def says(self, text: str) -> None:
        """Take a line of text."""

    def planned(self, cut_count: int) -> None:
        """Add to the cuts that will be judged."""

    def judged(self, cut_count: int) -> None:
        """Add to the cuts that have been judged."""


class Silent:
    """Progress that shows nothing."""

    def says(self, text: str) -> None:
        """Say nothing."""

    def planned(self, cut_count: int) -> None:
        """Show nothing."""

    def judged(self, cut_count: int) -> None:
        """Show nothing."""


@dataclass(frozen=True)
class Machines:
    """The templates that a campaign restores its machines from."""

    recorder: Template
    verifier: Template


@contextmanager
def machines(progress: Progress, libraries: Sequence[Library] = ()) -> Iterator[Machines]:
    """Hold an image and both templates for the length of a block; make whatever the cache lacks.

    Scenarios may name the `libraries` in their tuning; raises UsageError for one that the guest cannot load.
    """
    require_qemu()
    require_cache()
    recipe = image.recipe()
    if not image.is_built(recipe):
        progress.says(f"building the guest image {recipe.name} (about a minute)")
    guest = image.build(recipe)
    for library in libraries:
        builds_of(named(library.engine)).require_loadable(library, (guest.folder / "packages.txt").read_text())
    paths = sorted({library.path for library in libraries})
    best = best_accelerator(guest)
    accelerator = best.accelerator
    more = "; `rig doctor` says more" if best.advice else ""
    progress.says(f"verifiers run under {accelerator}: {best.reason}{more}")
    with ExitStack() as stack:
        recorder = stack.enter_context(template(Role.RECORDER, guest, libraries=paths))
        yield Machines(recorder, stack.enter_context(template(Role.VERIFIER, guest, accelerator, paths)))


class Campaign:
    """The scenarios of a run that are still to be measured, and the threads that measure them."""

    def __init__(self, run: Run, profile: Profile, machines_: Machines, progress: Progress, jobs: int = 0) -> None:
        self._run = run
        self._profile = profile
        self._machines = machines_
        self._progress = progress
        self._jobs = jobs or os.cpu_count() or 1
        self._stopped = threading.Event()
        self._part_min = 1

    def measure(self, scenarios: Sequence[Scenario]) -> None:
        """Measure all scenarios that the run lacks. No machine is left running, whatever interrupts us."""
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
            machine.allow_all()

    def _measure_group(self, group: Sequence[Scenario], vms: ThreadPoolExecutor, *, reproduce: bool) -> None:
        first = group[0]
        with self._run.locked(first, self._stopped), ExitStack() as stack:
            try:
                folder = self._run.recording_folder(first)
                archive.remove_leftovers(folder)
                recorded = archive.load(folder)
                if recorded is None:
                    recorder = self._machines.recorder
                    recorded = vms.submit(record.record, first, recorder, folder, reproduce=reproduce).result()
                logs = stack.enter_context(recorded.opened())
                self._judge_group(group, recorded.facts, logs, vms)
            except (RigError, LogError, TimeoutError) as error:
                self._failed(group, error)

    def _judge_group(
        self, group: Sequence[Scenario], facts: RecordingFacts, logs: Logs, vms: ThreadPoolExecutor
    ) -> None:
        timeline = Timeline(logs.first.marks)
        auditor = Auditor(logs)
        found: list[Cut] = []
        parts: list[_Part] = []
        with ExitStack() as stack:
            for scenario in group:
                try:
                    batches, plan = self._planned(scenario, logs, auditor, timeline, vms, stack)
                except (RigError, LogError, TimeoutError) as error:
                    # Recoveries belong to one scenario; the other scenarios are cut from a recording that is sound.
                    self._failed([scenario], error)
                    continue
                self._run.write_plan(scenario, replace(plan, state_count=plan.state_count + len(facts.live)))
                for damage in self._run.mend(scenario.id):
                    self._progress.says(f"{damage}; it is judged again")
                verdicts, _ = self._run.verdicts(scenario.id)
                self._store_live(scenario, facts, verdicts)
                for opened, planned in batches:
                    lacking = missing(planned, verdicts)
                    if opened:
                        parts.append(_part(group[0], opened.logs.file, by_content(lacking)))
                    else:
                        found += lacking
            contents = by_content(found)
            size = max(self._part_min, -(-len(contents) // self._jobs))
            parts += [
                _part(group[0], logs.file, contents[begin : begin + size]) for begin in range(0, len(contents), size)
            ]
            parts = [part for part in parts if part.contents]
            self._progress.planned(sum(len(same) for part in parts for same in part.contents))
            judge = _Judge(self._run, timeline, self._progress)
            futures: list[Future[None]] = [vms.submit(self._verify_part, part, judge) for part in parts]
            # Logs and files are in use until the last part is done, even if another part has failed.
            wait(futures)
            for future in futures:
                future.result()

    def _planned(  # noqa: PLR0917 - all types differ; mypy catches a swap
        self,
        scenario: Scenario,
        logs: Logs,
        auditor: Auditor,
        timeline: Timeline,
        vms: ThreadPoolExecutor,
        stack: ExitStack,
    ) -> tuple[Sequence[tuple[OpenRecovery | None, Sequence[Cut]]], PlanFacts]:
        """Return the cuts of a scenario in batches, each with the recovery that it cuts, or None for the recording."""
        if not SPECS[scenario.fault].cuts_recovery:
            planned = cuts(scenario, self._profile, logs, timeline)
            audited_count = auditor.audit(scenario, planned.cuts, self._profile.audit_count)
            return [(None, planned.cuts)], replace(planned.facts, audited_count=audited_count)
        kept = self._run.recoveries(scenario.id)
        kept.remove_leftovers()
        if kept.index() is None:
            verifier = self._machines.verifier
            vms.submit(recover.record, scenario, self._profile, verifier, logs, kept, self._stopped).result()
        recoveries, facts = recoverycuts.cuts(scenario, self._profile, logs, kept, stack)
        audited_count = auditor.audit_recoveries(scenario, recoveries, self._profile.audit_count)
        return recoveries, replace(facts, audited_count=audited_count)

    def _store_live(self, scenario: Scenario, facts: RecordingFacts, stored: Sequence[Verdict]) -> None:
        """Store the findings of the recording run itself, unless they are stored already."""
        known = {one.state for one in stored}
        fresh = [one for one in live_verdicts(scenario.id, facts.live) if one.state not in known]
        if fresh:
            self._run.append(scenario.id, fresh)

    def _verify_part(self, part: _Part, judge: _Judge) -> None:
        found = closing(verify(part.job, self._machines.verifier, self._stopped))
        with judge.batch() as add, found as findings:
            for same, finding in zip(part.contents, findings, strict=True):
                add(same, finding)

    def _failed(self, scenarios: Sequence[Scenario], error: Exception) -> None:
        """Note why scenarios could not be measured; raise the error instead if we are being stopped."""
        if self._stopped.is_set():
            raise error
        for scenario in scenarios:
            note = self._run.void if isinstance(error, LegalityError) else self._run.write_failure
            note(scenario, str(error))
            self._progress.says(f"{scenario.id} could not be measured: {error}")


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
