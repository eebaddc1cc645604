"""Verdicts from findings: what a reopened database showed, judged at the instant of a cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from rig.contract.findings import UNANSWERED, Finding, FindingKind
from rig.contract.messages import decode
from rig.contract.results import LiveFinding, Verdict, VerdictKind
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline

# Reopening takes less than the time limit for a crash state, but under emulation the guest's clock may run ahead.
_CLOCK_LIMIT_S = 3600


def verdict(cut: Cut, finding: Finding, timeline: Timeline) -> Verdict:
    """Judge a finding at the instant of a cut."""
    acked = timeline.acked_count(cut.entry)
    # A state judged at an earlier instant may still hold what transactions wrote after that.
    latest = cut.entry if cut.state.cut_at is None else cut.state.latest_instant
    issued = timeline.issued_count(latest)
    blank = Verdict(
        cut.scenario, cut.address, cut.content, cut.entry, cut.clock or "", cut.state.holds,
        VerdictKind.INCONCLUSIVE, acked, None, 0, 0, cut.weight_ns, "",
    )  # fmt: skip
    if timeline.client_count > 1:
        return _verdict_of_clients(blank, _under_its_clock(cut, finding), latest, timeline)
    judged = _verdict(
        blank,
        _of_this_life(_under_its_clock(cut, finding), issued, timeline),
        issued,
        lambda recovered: timeline.lost_ns(recovered, cut.entry),
        timeline.failed,
    )
    return _with_shown(judged, timeline.said_count(cut.entry)) if judged.lost else judged


def _verdict_of_clients(blank: Verdict, finding: Finding, latest: int, timeline: Timeline) -> Verdict:
    """Judge transactions of several clients; the acknowledged ones need not be the first.

    `latest` is the entry before which every transaction that is there must have begun.
    """
    count, begun = timeline.client_count, timeline.issued_numbers(latest)
    numbers = {
        number
        for client, own_count in enumerate(finding.of_clients, 1)
        for number in range(client, client + own_count * count, count)
    }
    gone, strange = sorted(timeline.acked_numbers(blank.entry) - numbers), sorted(numbers - begun)
    # One client that lost as many would have these; what was not begun is more than any could have.
    alike = len(begun) + 1 if strange else blank.acked - len(gone) if gone else finding.recovered
    as_of_one = finding if finding.recovered is None else replace(finding, recovered=alike)
    judged = _verdict(blank, as_of_one, len(begun), lambda _: timeline.lost_ns_of(gone, blank.entry))
    words = ""
    if judged.kind is VerdictKind.LOST_SUFFIX:
        words = f"acknowledged and gone of {count} clients: {', '.join(map(str, gone))}"
    elif strange and finding.recovered is not None:
        words = f"it has transaction {strange[0]}, which had not begun"
    detail = "; ".join(filter(None, (words, finding.detail)))
    return replace(judged, recovered=finding.recovered, detail=detail)


def _with_shown(judged: Verdict, said_count: int) -> Verdict:
    """Return the verdict on a loss; of its transactions only the first `said_count` were ever acknowledged."""
    lost_shown = min(judged.lost, judged.acked - said_count)
    if not lost_shown:
        return judged
    detail = f"{judged.detail}; the last {lost_shown} had only been shown, after a restart"
    return replace(judged, lost_shown=lost_shown, detail=detail)


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


def _of_this_life(finding: Finding, issued: int, timeline: Timeline) -> Finding:
    """Return the finding, as foreign if a later life shows more transactions than it and the lives before have left."""
    if not timeline.is_later or finding.recovered is None or finding.recovered <= issued:
        return finding
    words = f"transaction {issued + 1} of an earlier life is back, which was gone after the cut of that life"
    return replace(finding, kind=FindingKind.FOREIGN, recovered=None, detail=words)


def _verdict(
    blank: Verdict, finding: Finding, issued: int, lost_ns_of: Callable[[int], int], failed: Collection[int] = ()
) -> Verdict:
    """Fill in what a finding means at an instant at which `blank.acked` transactions were acknowledged.

    Those that `failed` are among these numbers and were not acknowledged.
    """
    acked = blank.acked
    kind, lost, lost_ns, detail = VerdictKind.INCONCLUSIVE, 0, 0, finding.detail
    if finding.kind is FindingKind.SPLIT and finding.recovered is not None:
        kind = VerdictKind.SPLIT
        if finding.recovered < acked:
            lost, lost_ns = acked - finding.recovered, lost_ns_of(finding.recovered)
    elif finding.kind not in {FindingKind.PREFIX, FindingKind.KEPT_OPEN}:
        kind = VerdictKind(finding.kind)
    elif finding.recovered is None or finding.recovered > issued:
        detail = f"it has {finding.recovered or 'any'} transactions, and only {issued} had begun"
    elif finding.recovered < acked:
        kind = VerdictKind.LOST_SUFFIX
        lost = acked - finding.recovered - sum(finding.recovered < number <= acked for number in failed)
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
    judged = [
        _verdict(
            _without_judgement(scenario_id, finding),
            decode(Finding, finding, allow_more=True),
            finding["issued"],
            lambda _: 0,
        )
        for finding in findings
    ]
    # Every verdict also says what was done to the machine.
    return [
        verdict
        if finding["detail"] in verdict.detail
        else replace(verdict, detail=f"{verdict.detail}; {finding['detail']}")
        for verdict, finding in zip(judged, findings, strict=True)
    ]


def _without_judgement(scenario_id: str, finding: LiveFinding) -> Verdict:
    return Verdict(
        scenario_id, finding["state"], finding["state"], 0, "", "", VerdictKind.INCONCLUSIVE, finding["acked"],
        None, 0, 0, 0, "",
    )  # fmt: skip
