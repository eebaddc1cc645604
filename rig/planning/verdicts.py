"""Verdicts from findings: what a reopened database showed, judged at the instant of a cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rig.contract.findings import UNANSWERED, Finding, FindingKind
from rig.contract.results import LiveFinding, Verdict, VerdictKind
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline

# Reopening takes less than the time limit for a crash state, but under emulation the guest's clock may run ahead.
_CLOCK_LIMIT_S = 3600


def verdict(cut: Cut, finding: Finding, timeline: Timeline) -> Verdict:
    """Judge a finding at the instant of a cut."""
    acked = timeline.acked(cut.entry)
    # A state judged at an earlier instant may still hold what transactions wrote after that.
    issued = timeline.issued(cut.entry if cut.state.cut_at is None else cut.state.latest_instant)
    blank = Verdict(
        cut.scenario, cut.address, cut.content, cut.entry, cut.clock or "", cut.state.holds,
        VerdictKind.INCONCLUSIVE, acked, None, 0, 0, cut.weight_ns, "",
    )  # fmt: skip
    return _verdict(
        blank,
        _under_its_clock(cut, finding),
        issued,
        lambda recovered: timeline.lost_ns(recovered, cut.entry),
    )


def _under_its_clock(cut: Cut, finding: Finding) -> Finding:
    """Return the finding, or an inconclusive one if the clock was not the one asked for."""
    is_answer = finding.kind not in UNANSWERED
    if cut.clock is None or not is_answer:
        return finding
    read_s = finding.clock_s
    if read_s is not None and 0 <= read_s - cut.clock.seconds < _CLOCK_LIMIT_S:
        return finding
    detail = f"judged while the clock read {read_s} instead of {cut.clock.seconds}; {finding.detail}"
    return replace(finding, kind=FindingKind.INCONCLUSIVE, recovered=None, detail=detail)


def _verdict(blank: Verdict, finding: Finding, issued: int, lost_ns_of: Callable[[int], int]) -> Verdict:
    """Fill in what a finding means at an instant at which `blank.acked` transactions were acknowledged."""
    acked = blank.acked
    kind, lost, lost_ns, detail = VerdictKind.INCONCLUSIVE, 0, 0, finding.detail
    if finding.kind is FindingKind.SPLIT and finding.recovered is not None:
        kind = VerdictKind.SPLIT
        if finding.recovered < acked:
            lost, lost_ns = acked - finding.recovered, lost_ns_of(finding.recovered)
    elif finding.kind not in {FindingKind.PREFIX, FindingKind.KEPT_OPEN}:
        kind = VerdictKind(finding.kind)
    elif finding.recovered is None or finding.recovered > issued:
        detail = f"recovered {finding.recovered} of {issued} issued transactions: the recording contradicts itself"
    elif finding.recovered < acked:
        kind = VerdictKind.LOST_SUFFIX
        lost = acked - finding.recovered
        lost_ns = lost_ns_of(finding.recovered)
        detail = f"transactions {finding.recovered + 1} to {acked} were acknowledged and are gone"
        detail = f"{detail}; {finding.detail}" if finding.detail else detail
    else:
        kind = VerdictKind.DURABLE if finding.kind is FindingKind.PREFIX else VerdictKind.KEPT_OPEN
    return replace(
        blank,
        kind=kind,
        recovered=finding.recovered,
        lost=lost,
        lost_virtual_ns=lost_ns,
        detail=detail,
        files=finding.files,
        opened=finding.opened,
        met=finding.met,
        repaired=finding.repaired,
    )


def live_verdicts(scenario_id: str, findings: Sequence[LiveFinding]) -> list[Verdict]:
    """Judge findings in the running guest, each with its numbers of acknowledged and issued transactions."""
    judged = [_verdict(_unjudged(scenario_id, one), Finding.of(one), one["issued"], lambda _: 0) for one in findings]
    # Every verdict also says what was done to the machine.
    return [
        one if told["detail"] in one.detail else replace(one, detail=f"{one.detail}; {told['detail']}")
        for one, told in zip(judged, findings, strict=True)
    ]


def _unjudged(scenario_id: str, one: LiveFinding) -> Verdict:
    return Verdict(
        scenario_id, one["state"], one["state"], 0, "", "", VerdictKind.INCONCLUSIVE, one["acked"], None, 0, 0, 0, "",
    )  # fmt: skip
