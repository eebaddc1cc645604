"""The audit of a run: an independent checker tests a sample of planned crash states, built whole on the host.

A state that the checker does not call legal is a fault of the rig. Its scenario cannot be trusted and is void: its
promise is neither kept nor broken.

Each of two disks is checked against its own log, and both instants against the marks, see
`rig.faults.legality.jointlegality`. The cut of a recovery is checked against that recovery's log. The head of that log
holds the content from which it recovered. This content is checked against the log from which it was cut, and so on back
to the recording. A later life is a recovery that goes on, and is cut from where the database has shown its content.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cached_property

from rig.contract.errors import LegalityError
from rig.contract.faultspecs import SPECS
from rig.contract.scenario import Scenario
from rig.faults import DiskLetter, Fault, JointState, Logs
from rig.faults.legality.jointlegality import JointChecker
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.log.arrays import ByteArray
from rig.faults.states.rendering import contents
from rig.planning.cuts import Cut
from rig.recordings.recoveries import OpenRecovery


class Auditor:
    """Audits the scenarios of one recording; reads the order of writes once."""

    def __init__(self, logs: Logs, disks_mib: Sequence[int]) -> None:
        """Take logs that passed the recording's self-check, a replay of each equals its disk, and the disks' sizes."""
        self._logs = logs
        self._disks_bytes = [disk_mib << 20 for disk_mib in disks_mib]
        self._device_bytes = sum(self._disks_bytes)

    @cached_property
    def _checker(self) -> Checker:
        return Checker(self._logs.first, self._device_bytes)

    @cached_property
    def _joint_checker(self) -> JointChecker:
        return JointChecker(self._logs.all, self._disks_bytes)

    def audit(self, scenario: Scenario, cuts: Sequence[Cut], count: int) -> int:
        """Check a seeded sample of the cuts of a scenario and return how many were found legal.

        Raise LegalityError for the first that is not legal. Return 0 for a scenario without cuts of an honest disk.
        """
        rule = _rule(scenario)
        if rule is None:
            return 0
        chosen = _random(scenario).sample(cuts, min(count, len(cuts)))
        chosen.sort(key=lambda cut: (cut.state.base_end, cut.entry))
        states = [cut.state for cut in chosen]
        for cut, content in zip(chosen, contents(self._logs.first, states, self._device_bytes), strict=True):
            if isinstance(cut.state, JointState):
                complaint = self._joint_complaint(content, cut.state, cut.entry)
            else:
                complaint = _complaint(self._checker, content, cut.entry, rule)
                if complaint and cut.entry < cut.state.latest_instant:
                    # Judged earlier, a state answers for fewer acknowledgements, which can only soften the verdict.
                    complaint = _complaint(self._checker, content, cut.state.latest_instant, rule)
            _require_none(complaint, scenario, cut.address, cut.entry)
        return len(chosen)

    def audit_recoveries(
        self, scenario: Scenario, recoveries: Sequence[tuple[OpenRecovery, Sequence[Cut]]], count: int
    ) -> int:
        """Check a seeded sample of cuts, spread over the recorded recoveries; return how many were legal.

        Also check every state that was recovered from on the way. Raise LegalityError for the first illegal state.
        """
        rule = _rule(scenario)
        if rule is None:
            return 0
        opened = {recovery.state: recovery for recovery, _ in recoveries}
        begun: set[str] = set()
        chosen = _spread(_random(scenario), [(recovery, cuts) for recovery, cuts in recoveries if cuts], count)
        for recovery, cuts in chosen:
            way = recovery.state
            while way and way not in begun:
                self._audit_start(scenario, rule, opened[way], opened, cuts[0].entry)
                begun.add(way)
                way = opened[way].address.before
            checker = Checker(recovery.log, self._device_bytes)
            states = [cut.state for cut in cuts]
            for cut, content in zip(cuts, contents(recovery.log, states, self._device_bytes), strict=True):
                instant = cut.state.instant
                complaint = _complaint(checker, content, instant, rule, recovery.begin_entry)
                _require_none(complaint, scenario, cut.address, instant)
        return sum(len(cuts) for _, cuts in chosen)

    def _audit_start(
        self, scenario: Scenario, rule: Rule, recovery: OpenRecovery, opened: Mapping[str, OpenRecovery], entry: int
    ) -> None:
        """Check the content with which a recovery began.

        `entry` is the instant at which its verdicts are judged; the verdicts of a later life are judged by its own log.
        """
        address = recovery.address
        content = recovery.log.replay(recovery.first_entry + 1, self._device_bytes)
        if not address.way:
            entry = self._logs.parse(address.content).instant if recovery.life else entry
            complaint = _complaint(self._checker, content, entry, rule)
        else:
            parent = opened[address.before]
            entry = parent.logs.parse(address.content).instant
            complaint = _complaint(Checker(parent.log, self._device_bytes), content, entry, rule, parent.begin_entry)
        _require_none(complaint, scenario, recovery.state, entry)

    def _joint_complaint(self, content: ByteArray, state: JointState, entry: int) -> str:
        """Return why a content is not known to be legal after all marks before an entry of log `a`; empty if it is."""
        joint, second_begin = self._joint_checker, self._disks_bytes[0]
        late, instant = list(DiskLetter).index(state.late), state.states[state.late].instant
        seen, claimed = joint.mark_count(late, instant), joint.mark_count(0, entry)
        if seen < claimed:
            return f"it answers for {claimed} marks, but only {seen} lie before entry {instant} of disk {state.late}"
        answer = joint.check((content[:second_begin], content[second_begin:]), late, instant)
        return "" if answer.legality is Legality.LEGAL else str(answer)


def _rule(scenario: Scenario) -> Rule | None:
    """Return the rule for the states of a scenario; None if the disk lies or nothing is cut."""
    model = SPECS[scenario.fault].model
    return Fault.of(model).rule if model else None


def _random(scenario: Scenario) -> random.Random:
    return random.Random(f"audit {scenario.seed} {scenario.id}")


def _spread(
    draw: random.Random, recoveries: Sequence[tuple[OpenRecovery, Sequence[Cut]]], count: int
) -> list[tuple[OpenRecovery, list[Cut]]]:
    """Draw up to `count` cuts, recoveries taking turns, sorted so that bases and checkers only move forward."""
    shuffled = [(recovery, draw.sample(cuts, len(cuts))) for recovery, cuts in draw.sample(recoveries, len(recoveries))]
    turns = sorted((turn, rank) for rank, (_, cuts) in enumerate(shuffled) for turn in range(len(cuts)))
    used = [sum(rank == own for _, rank in turns[:count]) for own in range(len(shuffled))]
    chosen = [
        (recovery, sorted(cuts[:number], key=lambda cut: (cut.state.base_end, cut.state.instant)))
        for (recovery, cuts), number in zip(shuffled, used, strict=True)
        if number
    ]
    return sorted(chosen, key=lambda row: (row[1][0].entry, row[0].state))


def _complaint(checker: Checker, content: ByteArray, instant: int, rule: Rule, first_entry: int = -1) -> str:
    """Return why a content is not known to be legal at an instant after `first_entry`; empty if it is."""
    if instant <= first_entry:
        return "it lies before the recovery began"
    answer = checker.check(content, instant, rule)
    return "" if answer.legality is Legality.LEGAL else str(answer)


def _require_none(complaint: str, scenario: Scenario, text: str, entry: int) -> None:
    if complaint:
        raise LegalityError(
            f"the rig is wrong and {scenario.id} is void: the planned state {text}, judged just before "
            f"entry {entry}, is not one that an honest disk is known to leave: {complaint}"
        )
