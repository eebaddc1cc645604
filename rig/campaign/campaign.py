"""A campaign: record every scenario once, cut it many times, and store a verdict for every cut.

Work proceeds recording by recording, and verdicts are stored as they come. A void recording or a lost machine costs
only its own scenarios their results.

A campaign may be asked to stop at the first failure. Then each recording is judged in two steps, first the cuts whose
turn comes first in their plans (`Cut.turn`). What was judged by then is stored; the rest lacks verdicts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from rig.campaign.executors.executor import Executor, LocalThreads
from rig.campaign.verdicts import live_verdicts, verdict
from rig.campaign.verification import Job
from rig.contract.errors import DisagreementError, LegalityError, NoSuchStepError, RigError
from rig.contract.faultspecs import SPECS
from rig.contract.findings import Finding
from rig.contract.results import LiveFinding, RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import LogError, LogFile, Logs
from rig.host.progress import Progress
from rig.machines.guests import Source
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut, by_content, missing
from rig.planning.matrix import Profile
from rig.planning.planner import Planned, Planner
from rig.recordings import archive
from rig.recordings.timeline import Timeline
from rig.store import Run

_BATCH = 16
# The fewest contents that are worth a clone of their own (it takes half a second to warm up) while other recordings
# keep all machines busy.
_PART_MIN = 160
# The first turns of each scenario, which are judged first by a campaign that stops at a failure.
_TOUR = 30


class Silent:
    """Progress that shows nothing."""

    def says(self, text: str) -> None:
        """Say nothing."""

    def expect(self, cut_count: int) -> None:
        """Show nothing."""

    def advance(self, cut_count: int) -> None:
        """Show nothing."""


# After these no verdict of a scenario counts, whenever it was made.
_VOIDING = (DisagreementError, LegalityError)


class Campaign:
    """The scenarios of a run that are still to be measured, and the threads that measure them."""

    def __init__(  # noqa: PLR0917 - all types differ; mypy catches a swap
        self,
        run: Run,
        profile: Profile,
        source: Source,
        progress: Progress,
        jobs: int = 0,
        fails: Callable[[Scenario, Verdict], bool] | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Begin; stop at the first verdict that `fails` says breaks a promise, if it is given.

        Machines run in threads of this process unless an `executor` says where.
        """
        self._run = run
        self._profile = profile
        self._progress = progress
        self._executor = executor or LocalThreads(source, jobs, says=progress.says)
        self._fails = fails
        # A verdict has failed, and nothing more is begun.
        self._is_over = threading.Event()
        self._part_min = 1

    def measure(self, scenarios: Sequence[Scenario], first_id: str = "") -> None:
        """Measure all scenarios that the run lacks. No machine is left running, whatever interrupts us.

        Unless the profile says that nothing repeats, the recording of one scenario is made twice: of `first_id` or,
        without it, of the first scenario, unless the run has a recording that was made twice.
        """
        again = first_id or min((scenario.id for scenario in scenarios), default="")
        if self._profile.repeats == "none" or self._run.has_repeated():
            again = ""
        self._executor.prepare(scenarios)
        ordered = sorted(scenarios, key=lambda scenario: (scenario.recording_key, scenario.id))
        groups = [list(group) for _, group in groupby(ordered, key=lambda scenario: scenario.recording_key)]
        groups.sort(key=lambda group: group[0].id)
        machine_count = self._executor.machine_count
        self._part_min = _PART_MIN if len(groups) > machine_count else 1
        vms = ThreadPoolExecutor(self._executor.thread_count, "vm")
        # One more group than calls: plan the next recording while the last states of this one are checked.
        leaders = ThreadPoolExecutor(self._executor.thread_count + 1, "group")
        try:
            leading = [
                leaders.submit(
                    self._measure_group,
                    group,
                    vms,
                    reproduce=group[0].id == again or self._profile.reproduces(group[0]),
                )
                for group in groups
            ]
            for future in leading:
                future.result()
        finally:
            self._executor.stop()
            for pool in (leaders, vms):
                pool.shutdown(wait=True, cancel_futures=True)
            self._executor.close()

    def _measure_group(self, group: Sequence[Scenario], vms: ThreadPoolExecutor, *, reproduce: bool) -> None:
        first = group[0]
        if self._is_over.is_set():
            return
        with self._run.lock(first, self._executor.stopped), ExitStack() as stack:
            try:
                folder = self._run.recording_folder(first)
                archive.remove_leftovers(folder)
                recorded = archive.load(folder)
                if recorded is None:
                    recorded = vms.submit(self._executor.record, first, folder, reproduce=reproduce).result()
                logs = stack.enter_context(recorded.open())
                self._judge_group(group, recorded.facts, logs, vms)
            except NoSuchStepError:
                raise
            except (RigError, LogError, TimeoutError) as error:
                self._note_failure(group, error)

    def _judge_group(
        self, group: Sequence[Scenario], facts: RecordingFacts, logs: Logs, vms: ThreadPoolExecutor
    ) -> None:
        """Judge all states; if two kinds of machines disagree on one, judge them all again in the emulator."""
        why = next(filter(None, map(self._run.emulated_because, group)), "")
        try:
            self._judge(group, facts, logs, vms, why)
        except DisagreementError as error:
            self._is_over.clear()
            for scenario in group:
                self._run.void(scenario, str(error))
            why = f"judged under emulation alone, because {error}"
            self._progress.says(f"{group[0].id} and what shares its recording: {why}")
            self._judge(group, facts, logs, vms, why)

    def _judge(
        self, group: Sequence[Scenario], facts: RecordingFacts, logs: Logs, vms: ThreadPoolExecutor, why_emulated: str
    ) -> None:
        planner = Planner(self._profile, logs, Timeline(logs.first.marks), Auditor(logs, facts.disks_mib))
        judge = _Judge(self._run, planner.timeline, self._progress, self._failing(group))
        with ExitStack() as stack:
            planned = []
            for scenario in group:
                with self._costs_only(scenario):
                    planned.append(self._plan(scenario, planner, vms, stack))
            while planned:
                for plan in planned:
                    self._begin(replace(plan, facts=replace(plan.facts, emulated_because=why_emulated)), facts)
                parts = self._parts(group[0], planned, logs)
                self._progress.expect(sum(len(same) for part in parts for same in part.contents))
                verify = partial(self._verify_part, judge=judge, is_emulated=bool(why_emulated))
                futures: list[Future[None]] = [vms.submit(verify, part) for part in parts]
                # Logs and files are in use until the last part is done, even if another part has failed.
                wait(futures)
                _raise_worst(futures)
                planned = [] if self._is_over.is_set() else self._grow(planned, planner)

    def _failing(self, group: Sequence[Scenario]) -> Callable[[Verdict], None]:
        """Return what ends the campaign if a verdict on a scenario of this group breaks a promise."""
        by_id = {scenario.id: scenario for scenario in group}

        def look(latest: Verdict) -> None:
            if self._fails and not self._is_over.is_set() and self._fails(by_id[latest.scenario], latest):
                self._is_over.set()
                self._progress.says(f"stopped at the first failure: {latest.scenario} {latest.state}")

        return look

    def _plan(self, scenario: Scenario, planner: Planner, vms: ThreadPoolExecutor, stack: ExitStack) -> Planned:
        """Return the first cuts of a scenario."""
        if not SPECS[scenario.fault].cuts_recovery:
            return planner.first(scenario)
        kept = self._run.recoveries(scenario)
        kept.remove_leftovers()
        if kept.index() is None:
            vms.submit(self._executor.recover, scenario, self._profile, planner.logs, kept).result()
        return planner.of_recoveries(scenario, kept, stack)

    def _begin(self, plan: Planned, facts: RecordingFacts) -> None:
        """Store a plan, and the findings that need no machine."""
        scenario = plan.scenario
        live = [*facts.live, *plan.failures]
        self._run.write_plan(scenario, replace(plan.facts, state_count=plan.facts.state_count + len(live)))
        for damage in self._run.mend(scenario.id):
            self._progress.says(f"{damage}; it is judged again")
        self._store_live(scenario, live, self._run.verdicts(scenario.id)[0])

    def _parts(self, first: Scenario, planned: Sequence[Planned], logs: Logs) -> list[_Part]:
        """Return jobs for all cuts without a verdict; scenarios share the jobs for cuts of the recording itself."""
        cuts: list[Cut] = []
        parts: list[_Part] = []
        for plan in planned:
            verdicts, _ = self._run.verdicts(plan.scenario.id)
            for opened, batch in plan.batches:
                lacking = missing(batch, verdicts)
                if opened:
                    later = replace(plan.scenario, lives=opened.lives)
                    parts.append(_part(later, opened.logs.file, by_content(lacking), opened.life))
                else:
                    cuts += lacking
        contents = by_content(cuts)
        tour = [same for same in contents if self._fails and any(cut.turn < _TOUR for cut in same)]
        for step in (tour, [same for same in contents if same not in tour]):
            size = max(self._part_min, -(-len(step) // self._executor.machine_count))
            size = min(size, self._executor.part_max)
            parts += [_part(first, logs.file, step[begin : begin + size]) for begin in range(0, len(step), size)]
        return [part for part in parts if part.contents]

    def _grow(self, planned: Sequence[Planned], planner: Planner) -> list[Planned]:
        """Return plans of more states for the scenarios that have seen too few file contents."""
        further = []
        for plan in planned:
            with self._costs_only(plan.scenario):
                more = planner.more(plan, self._run.verdicts(plan.scenario.id)[0])
                if isinstance(more, Planned):
                    further.append(more)
                    counts = [len(batch) for plans in (plan, more) for _, batch in plans.batches]
                    self._progress.says(
                        f"{plan.scenario.id}: {counts[-1]} states instead of {counts[0]}, because {counts[0]} showed "
                        f"{more.seen_count} distinct file contents and {self._profile.exposure_of(plan.scenario)} are "
                        "asked for"
                    )
                elif more:
                    self._run.write_ending(plan.scenario, more.why, is_saturated=more.is_saturated)
        return further

    @contextmanager
    def _costs_only(self, scenario: Scenario) -> Iterator[None]:
        """Blame an error on one scenario only: the others are cut from a sound recording."""
        try:
            yield
        except NoSuchStepError:
            raise
        except (RigError, LogError, TimeoutError) as error:
            self._note_failure([scenario], error)

    def _store_live(self, scenario: Scenario, live: Sequence[LiveFinding], stored: Sequence[Verdict]) -> None:
        """Store the findings of running machines, unless they are stored already."""
        known = {verdict.state for verdict in stored}
        fresh = [verdict for verdict in live_verdicts(scenario.id, live) if verdict.state not in known]
        if fresh:
            self._run.append(scenario.id, fresh)

    def _verify_part(self, part: _Part, judge: _Judge, *, is_emulated: bool) -> None:
        if self._is_over.is_set():
            return
        checking = closing(self._executor.findings(part.job, self._is_over, is_emulated=is_emulated))
        with judge.batch() as add, checking as findings:
            for same, finding in zip(part.contents, findings, strict=not self._fails):
                add(same, finding, part.life)

    def _note_failure(self, scenarios: Sequence[Scenario], error: Exception) -> None:
        """Note why scenarios could not be measured; raise the error instead if we are being stopped."""
        if self._executor.stopped.is_set():
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
    # The timeline of the later life that is cut; None for cuts that are judged at an instant of the recording.
    life: Timeline | None


def _part(scenario: Scenario, file: LogFile, contents: Sequence[Sequence[Cut]], life: Timeline | None = None) -> _Part:
    return _Part(Job(scenario, file, tuple((same[0].state.id, same[0].clock) for same in contents)), contents, life)


class _Judge:
    """Turns findings into verdicts and stores them in batches."""

    def __init__(self, run: Run, timeline: Timeline, progress: Progress, look: Callable[[Verdict], None]) -> None:
        self._run = run
        self._timeline = timeline
        self._progress = progress
        self._look = look
        self._lock = threading.Lock()

    @contextmanager
    def batch(self) -> Iterator[Callable[[Sequence[Cut], Finding, Timeline | None], None]]:
        pending: list[Verdict] = []

        def add(same: Sequence[Cut], finding: Finding, life: Timeline | None) -> None:
            fresh = [verdict(cut, finding, life or self._timeline) for cut in same]
            pending.extend(fresh)
            for fresh_verdict in fresh:
                self._look(fresh_verdict)
            self._progress.advance(len(same))
            if len(pending) >= _BATCH:
                self._store(pending)

        try:
            yield add
        finally:
            self._store(pending)

    def _store(self, pending: list[Verdict]) -> None:
        with self._lock:
            for scenario in sorted({judgement.scenario for judgement in pending}):
                own = [judgement for judgement in pending if judgement.scenario == scenario]
                # Removed first, so that a failed append is judged again and not stored twice.
                pending[:] = [judgement for judgement in pending if judgement.scenario != scenario]
                self._run.append(scenario, own)
