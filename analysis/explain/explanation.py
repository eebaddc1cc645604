"""Why one crash state breaks a promise: the smallest loss, its writes by name, the calls behind them, and a check.

The check adds the sync that seems to be missing, records the scenario again, and judges states at the same place. An
explanation whose check does not help says that it is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import comb
from typing import Protocol, Self

from rig.analysis.explain.blame import Blame, Until, blame_calls, last_call_behind, unsynced_files
from rig.analysis.explain.blocks import BlockNamer, NamedWrite
from rig.analysis.explain.choices import Choices
from rig.analysis.explain.drawing import Drawing, drawing
from rig.analysis.explain.loss import Enough, Loss, Placed, Searcher
from rig.analysis.explain.shrink import SINGLES_MAX
from rig.contract.calls import SeenCall
from rig.contract.errors import RigError
from rig.contract.orders import ADD_EVERYTHING
from rig.contract.places import FilePlaces
from rig.contract.results import RecordingFacts, Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.engines.syncs import CallName
from rig.faults import CrashState, Logs
from rig.filesystems.roles import ChangeKind
from rig.recordings.timeline import Timeline

# Sets of one size that are named, and shown. There may be hundreds: each frame of a log may be enough.
_SETS_NAMED_MAX, _SETS_SHOWN_MAX = 20, 5
# So many files that had not been synced are tried, each with a sync. Where no call speaks for a sync, it helps only if
# chance explains that with at most this probability.
_UNSYNCED_MAX, _CHANCE_MAX = 4, 0.01
# States judged to check the story, before and after.
_CHECK_STATES = 130


class PlannedCut(Protocol):
    """A state that a plan has."""

    @property
    def state(self) -> CrashState:
        """Return the state."""


class EvidenceSource(Protocol):
    """What a finished run can still be asked about one scenario; see `rig.campaign.evidence`."""

    @property
    def scenario(self) -> Scenario:
        """Return the scenario."""

    @property
    def facts(self) -> RecordingFacts:
        """Return the facts of its recording."""

    @property
    def logs(self) -> Logs:
        """Return the logs of its recording."""

    @property
    def timeline(self) -> Timeline:
        """Return the moments of its recording."""

    @property
    def untold(self) -> str:
        """Return why nobody can tell the calls of the workload, as the end of a sentence; empty if it can be done."""

    def judge(self, placed: Sequence[Placed], *, twice: bool = False) -> Sequence[Verdict]:
        """Judge states, each at an entry or at its own instant; `twice` in machines of two kinds, if there are two."""

    def places(self, states: Sequence[CrashState]) -> Sequence[Sequence[FilePlaces] | None]:
        """Return for each state where its files are; None for one that cannot be mounted."""

    def calls(self) -> Sequence[SeenCall]:
        """Return the calls of the workload; none if they are `untold`."""

    def plan(self, span: tuple[int, int], states_max: int) -> Sequence[PlannedCut]:
        """Plan states of the scenario's fault in the epochs that a span of transactions touches."""

    def with_syncs(self, wanted: Sequence[str]) -> AbstractContextManager[Self]:
        """Give the evidence of the same scenario with further syncs, by the roles or paths of the files."""


@dataclass(frozen=True)
class StoryCheck:
    """What adding syncs did at the same place: distinct contents that show the same, of all that were judged.

    Any damage is the same; `is_damage` says that it is about damage.
    """

    # The roles or paths of what was synced.
    added: tuple[str, ...]
    broken_before: int
    count_before: int
    broken_after: int
    count_after: int
    # Why the check could not be made; empty if it was.
    failure: str = ""
    is_damage: bool = False
    # Whether a call without a sync speaks for them.
    has_witness: bool = True

    @property
    def helps(self) -> bool:
        """Whether nothing shows the same once the syncs are there, though something did before.

        Where nothing could be judged afterwards, nothing is known. Without a witness it must be more than chance.
        """
        is_gone = not self.failure and self.broken_before > 0 and self.broken_after == 0 and self.count_after > 0
        return is_gone and (self.has_witness or self.chance <= _CHANCE_MAX)

    @property
    def chance(self) -> float:
        """Return how likely it is that all that is broken is among what was judged before, if syncs change nothing.

        Fisher's exact test for none broken afterwards.
        """
        return comb(self.count_before, self.broken_before) / comb(
            self.count_before + self.count_after, self.broken_before
        )


@dataclass(frozen=True)
class Explanation:
    """Why one crash state breaks a promise."""

    scenario: Scenario
    facts: RecordingFacts
    loss: Loss
    # Each set of writes that is enough to be lost, and to have landed; at most a few of each.
    lost: tuple[tuple[NamedWrite, ...], ...]
    landed: tuple[tuple[NamedWrite, ...], ...]
    blames: tuple[Blame, ...]
    checks: tuple[StoryCheck, ...]
    drawing: Drawing
    # The last call that may be behind the first of the writes that landed.
    landed_by: SeenCall | None = None
    # Why the calls of the workload are not known; empty if they are.
    untold: str = ""
    # Whether any call of the workload is a sync.
    has_syncs: bool = True

    @property
    def is_proven(self) -> bool:
        """Whether the syncs that seemed to be missing were added, and helped."""
        return any(check.helps for check in self.checks)


def explain(
    evidence: EvidenceSource, state: CrashState, verdict: Verdict, limit_s: float, singles_max: int = SINGLES_MAX
) -> Explanation:
    """Explain the verdict of a crash state; the search for the smallest loss takes hardly longer than `limit_s`.

    All single writes of a cut are tried if there are at most `singles_max`. Raise UsageError if there is nothing to
    explain.
    """
    searcher = Searcher(evidence.logs, evidence.timeline, evidence.judge, limit_s, singles_max)
    loss = searcher.loss(state, verdict)
    namer = _namer(evidence, loss.culprit.choices)
    culprit, lost = _names_of(namer, loss.culprit, is_lost=True)
    loss = replace(loss, last=culprit) if loss.culprit is loss.last else replace(loss, lost=culprit)
    same_cut = culprit.choices == loss.premise.choices
    premise, landed = _names_of(
        namer if same_cut else _namer(evidence, loss.premise.choices), loss.premise, is_lost=False
    )
    loss = replace(loss, first=premise) if loss.premise is loss.first else replace(loss, landed=premise)
    evidence.judge([(side.state, None) for side in (loss.lost, loss.premise, loss.culprit)], twice=True)
    begin, end = (_until(evidence.timeline, instant.entry) for instant in (loss.first_instant, loss.last_instant))
    until = Until(loss.subject) if loss.subject else end
    reliant = landed[0] if landed and not loss.subject else ()
    writes = [write for each in lost for write in each]
    calls = evidence.calls()
    blames = tuple(blame_calls(writes, calls, until, reliant, begin, is_subject=bool(loss.subject)))
    span = (loss.subject or begin.number, max(loss.subject, end.number))
    checks = _checks(evidence, blames, verdict.kind, span)
    if not (evidence.untold or any(check.helps for check in checks)):
        blames, checks = _guesses(evidence, blames, checks, unsynced_files(calls, until.number), verdict.kind, span)
    landed_by = last_call_behind(landed[0][0], calls, begin) if landed and landed[0] else None
    drawn = drawing(loss, evidence.logs.first, evidence.timeline, namer)
    return Explanation(
        evidence.scenario, evidence.facts, loss, lost, landed, blames, checks, drawn, landed_by, evidence.untold,
        not calls or any(call.name == CallName.SYNC for call in calls),
    )  # fmt: skip


def _until(timeline: Timeline, entry: int) -> Until:
    """Return how far the workload had come at a cut just before an entry."""
    number = timeline.issued_count(entry)
    return Until(number, timeline.acked_count(entry) >= number)


def _namer(evidence: EvidenceSource, choices: Choices) -> BlockNamer:
    return BlockNamer(evidence.scenario, evidence.logs, choices, evidence.places)


def _names_of(namer: BlockNamer, side: Enough, *, is_lost: bool) -> tuple[Enough, tuple[tuple[NamedWrite, ...], ...]]:
    """Return the sets by how much they tell, data of files and the weightiest changes first, and some of them by name.

    `is_lost` says whether the sets are of writes that are lost, or of writes that landed.
    """
    named = {atoms: tuple(namer.names(atoms)) for atoms in side.sets[:_SETS_NAMED_MAX]}
    telling = sorted(named, key=lambda atoms: min(map(_weight, named[atoms]), default=0))
    first, everything = telling[0], frozenset(side.choices.atoms)
    state = side.choices.state(everything - first if is_lost else first)
    sets = (*telling, *side.sets[_SETS_NAMED_MAX:])
    return replace(side, sets=sets, state=state), tuple(named[atoms] for atoms in telling[:_SETS_SHOWN_MAX])


def _weight(write: NamedWrite) -> int:
    """Return a rank by what a write says about files, the most telling first."""
    kinds = list(ChangeKind)
    return 0 if write.path else min((1 + kinds.index(change.kind) for change in write.changes), default=len(kinds) + 1)


def _checks(
    evidence: EvidenceSource, blames: Sequence[Blame], kind: VerdictKind, span: tuple[int, int]
) -> tuple[StoryCheck, ...]:
    """Add the syncs that are missing: first for the weightiest call, then all; stop once it helps."""
    missing = tuple(dict.fromkeys(blame.sync_to_add for blame in blames if blame.missing))
    checks: list[StoryCheck] = []
    for added in dict.fromkeys((missing[:1], missing)):
        if added and not (checks and checks[-1].helps):
            checks.append(_check(evidence, added, kind, span))
    return tuple(checks)


def _guesses(
    evidence: EvidenceSource, blames: tuple[Blame, ...], checks: tuple[StoryCheck, ...], unsynced: Sequence[Blame],
    kind: VerdictKind, span: tuple[int, int],
) -> tuple[tuple[Blame, ...], tuple[StoryCheck, ...]]:  # fmt: skip
    """Return another call to blame, with its check, if a sync that nothing speaks for helps; otherwise what was given.

    It may be about a file that had not been written to the disk yet. The last check tries a sync of everything: if that
    does not help either, it is about no sync.
    """
    tried = {check.added for check in checks}
    for other in [blame for blame in unsynced if (blame.sync_to_add,) not in tried][:_UNSYNCED_MAX]:
        check = _check(evidence, (other.sync_to_add,), kind, span, has_witness=False)
        if check.helps:
            return (other,), (check,)
    return blames, (*checks, _check(evidence, (ADD_EVERYTHING,), kind, span, has_witness=False))


def _check(
    evidence: EvidenceSource, added: tuple[str, ...], kind: VerdictKind, span: tuple[int, int], *,
    has_witness: bool = True,
) -> StoryCheck:  # fmt: skip
    broken_before, count_before = _broken_count(evidence, kind, span)
    broken_after, count_after, failure = 0, 0, ""
    try:
        with evidence.with_syncs(added) as other:
            broken_after, count_after = _broken_count(other, kind, span)
    except RigError as error:
        # What failed comes first and the cause last, with a trace between them if the agent failed.
        text = str(error).splitlines() or [repr(error)]
        failure = " ".join(dict.fromkeys((text[0], text[-1])))
    return StoryCheck(
        added, broken_before, count_before, broken_after, count_after, failure, kind.is_damage, has_witness
    )


def _broken_count(evidence: EvidenceSource, kind: VerdictKind, span: tuple[int, int]) -> tuple[int, int]:
    """Return how many distinct contents show a kind of verdict, any damage if it is one, and how many there are."""
    cuts = evidence.plan(span, _CHECK_STATES)
    verdicts = evidence.judge([(cut.state, None) for cut in cuts])
    known = [verdict for verdict in verdicts if not verdict.kind.is_infrastructure]
    kinds = {kind, *(other for other in VerdictKind if kind.is_damage and other.is_damage)}
    broken = {verdict.exposure for verdict in known if verdict.kind in kinds}
    return len(broken), len({verdict.exposure for verdict in known})
