"""Why one crash state breaks a promise: the smallest loss, its writes by name, the calls behind them, and a check.

The check adds the sync that seems to be missing, records the scenario again, and judges states at the same place. An
explanation whose check does not help says that it is a guess.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rig.analysis.explain.blame import Blame, Until, blame_calls, has_unseen, last_call_behind, unsynced_files
from rig.analysis.explain.blocks import BlockNamer, NamedWrite
from rig.analysis.explain.checks import EvidenceSource, StoryCheck, StoryChecker
from rig.analysis.explain.choices import Choices
from rig.analysis.explain.drawing import Drawing, drawing
from rig.analysis.explain.loss import Enough, Loss, Searcher
from rig.analysis.explain.shrink import SINGLES_MAX
from rig.analysis.explain.tears import torn_call
from rig.contract.calls import SeenCall
from rig.contract.results import RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.engines.syncs import CallName
from rig.faults import CrashState
from rig.filesystems.roles import ChangeKind
from rig.recordings.timeline import Timeline

# Sets of one size that are named, and shown. There may be hundreds: each frame of a log may be enough.
_SETS_NAMED_MAX, _SETS_SHOWN_MAX = 20, 5
# Roughly the seconds for the states of one check, before and after. Once the explanation has taken this many times as
# long as the search may, nothing more is guessed.
_CHECK_S, _GUESSES_FACTOR = 40, 4


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
    # The call whose write was torn, if this is why. It was checked with all of the write, and with none of it.
    torn: SeenCall | None = None
    # Why the calls of the workload are not known; empty if they are.
    untold: str = ""
    # Whether any call of the workload is a sync.
    has_syncs: bool = True
    # Whether a lost write is the work of no call that is seen, so that no sync can be added for it.
    has_unseen: bool = False
    # Whether time was over before all syncs were tried that might help.
    is_cut_short: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether the syncs that seemed to be missing were added, and helped, or a torn write is the whole story."""
        return self.torn is not None or any(check.helps for check in self.checks)


def explain(
    evidence: EvidenceSource,
    state: CrashState,
    verdict: Verdict,
    limit_s: float,
    singles_max: int = SINGLES_MAX,
    *,
    guesses_s: float = 0,
) -> Explanation:
    """Explain the verdict of a crash state; the search for the smallest loss takes hardly longer than `limit_s`.

    All single writes of a cut are tried if there are at most `singles_max`. `guesses_s` after the begin no further sync
    is tried, or after a multiple of `limit_s` if that is longer. Raise UsageError if there is nothing to explain.
    """
    deadline_s = time.monotonic() + max(guesses_s, _GUESSES_FACTOR * limit_s)
    if evidence.timeline.client_count > 1:
        # A count of what is there names no transaction: which one is lost does not matter.
        verdict = replace(verdict, recovered=None)
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
    # If no cut shows the loss until later transactions have begun, something that came later took what was durable.
    subject = loss.subject if begin.number <= loss.subject + 1 else 0
    until = Until(subject) if subject else end
    reliant = landed[0] if landed and not subject else ()
    writes = [write for each in lost for write in each]
    span = (subject or begin.number, max(subject, end.number))
    calls = _without_syncs_by_the_clock(evidence.calls(span), subject, writes, evidence.timeline)
    blames = tuple(blame_calls(writes, calls, until, reliant, begin, is_subject=bool(subject)))
    # Where nothing is ever synced, each file lacks a sync, and trying some of them leads nowhere.
    has_syncs = not calls or any(call.name == CallName.SYNC for call in calls)
    states_max = int(searcher.states_per_s * _CHECK_S)
    checker = StoryChecker(evidence, verdict.kind, span, states_max, deadline_s)
    torn = torn_call(evidence, loss, namer, blames) if same_cut and not loss.subject else None
    checks = checker.of_blames(blames) if torn is None else ()
    if not (torn or evidence.untold or any(check.helps for check in checks)):
        unsynced = unsynced_files(calls, until.number) if has_syncs else ()
        blames, checks = checker.of_guesses(blames, checks, unsynced)
    landed_by = last_call_behind(landed[0][0], calls, begin) if landed and landed[0] else None
    drawn = drawing(loss, evidence.logs.first, evidence.timeline, namer)
    return Explanation(
        evidence.scenario, evidence.facts, loss, lost, landed, blames, checks, drawn, landed_by, torn, evidence.untold,
        has_syncs, has_unseen(writes, calls), time.monotonic() > deadline_s,
    )  # fmt: skip


def _without_syncs_by_the_clock(
    calls: Sequence[SeenCall], transaction: int, lost: Sequence[NamedWrite], timeline: Timeline
) -> Sequence[SeenCall]:
    """Leave out what other threads sync in a transaction if what is lost was written after its acknowledgement.

    A thread may sync once a second. The run in which the calls were seen takes longer, so such a sync falls into
    another transaction there.
    """
    ack = next((moment.entry_index for moment in timeline.acks if moment.number == transaction), None)
    entries = [write.atom.entry for write in lost]
    own = {call.thread for call in calls if call.number == transaction and call.name == CallName.WRITE}
    if ack is None or not entries or min(entries) < ack or not own:
        return calls
    return [
        call for call in calls
        if call.name != CallName.SYNC or call.number != transaction or call.thread in own
    ]  # fmt: skip


def _until(timeline: Timeline, entry: int) -> Until:
    """Return how far the workload had come at a cut just before an entry."""
    number = timeline.issued_count(entry)
    return Until(number, timeline.acked_count(entry) >= number, entry > timeline.end.entry_index)


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
