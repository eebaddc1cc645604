"""Which setting to take: the fastest of those that meet the wishes, if the evidence suffices.

The rule, for each candidate (`rig.analysis.advice.candidates`) and each fault asked about:
1. It is ruled out if some state violated a wish, however few states were checked; if it broke its promise; or if the
   documentation allows what a wish does not. Where a loss is documented, a measured zero is luck.
2. Else it is unproven if some fault was not measured, if a scenario is inconclusive (a control was not run or did not
   fire, too few file contents, doubtful epochs), or if fewer file contents than wished for were seen.
3. Else it meets the wishes. The fastest of these is advised; among those within 2 % of the fastest, the one that syncs
   least, as in the head of the report.

Damage violates every wish, because nobody can say how much a damaged database has lost. Where the documentation does
not limit a loss, a wish that allows at least one lost transaction is compared with the measured loss, and the advice
says so. Damage of the file system is never blamed on a setting, since none would help; it is shown. Among the settings
whose losses are known for every fault, the advice marks those that no other beats (`rig.analysis.advice.unbeaten`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rig.analysis.advice.candidates import Candidate, Piece, Showing, candidates
from rig.analysis.advice.unbeaten import unbeaten
from rig.analysis.dossiers import Keeps
from rig.analysis.show.findings import EQUAL_SHARE


@dataclass(frozen=True)
class Wishes:
    """What the user wants, at least one of the first three; None where there is no wish."""

    lost_max: int | None = None
    lost_s_max: float | None = None
    no_corruption: bool = False
    # Distinct file contents behind each fault, besides what the profile of the run asks for.
    exposure_min: int | None = None

    def __post_init__(self) -> None:
        if not self.words:
            raise ValueError("without a wish about losses every setting would do")

    @property
    def lost_word(self) -> str:
        """Return the wish about the number of lost transactions as it is typed; empty without this wish."""
        return "" if self.lost_max is None else f"--max-lost {self.lost_max}"

    @property
    def seconds_word(self) -> str:
        """Return the wish about the age of lost transactions as it is typed; empty without this wish."""
        return "" if self.lost_s_max is None else f"--max-lost-seconds {self.lost_s_max:g}"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the wishes about losses as they are typed."""
        corruption = "--no-corruption" if self.no_corruption else ""
        return tuple(filter(None, (self.lost_word, self.seconds_word, corruption)))

    @property
    def zero_words(self) -> tuple[str, ...]:
        """Return the wishes that allow no loss at all."""
        lost, seconds = self.lost_word if self.lost_max == 0 else "", self.seconds_word if self.lost_s_max == 0 else ""
        return tuple(filter(None, (lost, seconds)))


class Standing(StrEnum):
    """What the wishes and the evidence make of a candidate."""

    MEETS = "meets the wishes"
    UNPROVEN = "not proven"
    RULED_OUT = "ruled out"


@dataclass(frozen=True)
class Reason:
    """Why a candidate is not admissible; `wish` is empty if the reason concerns no wish."""

    wish: str
    fault: str
    text: str


@dataclass(frozen=True)
class Assessment:
    """One candidate with its standing."""

    candidate: Candidate
    standing: Standing
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Advice:
    """The answer: the setting to take, or None, and the standing of every candidate."""

    wishes: Wishes
    faults: tuple[str, ...]
    best: Candidate | None
    # As fast as the best within 2 %, and admissible too.
    as_fast: tuple[Candidate, ...]
    # The slowest of the settings that are faster than those above, preferably one that no other beats.
    next_faster: Assessment | None
    # The settings that no other beats, the fastest first.
    unbeaten: tuple[Candidate, ...]
    # Every candidate, the fastest first.
    assessed: tuple[Assessment, ...]

    @property
    def is_refused(self) -> bool:
        """Whether nothing is advised because a setting that could be the answer is unproven."""
        return self.best is None and (not self.assessed or bool(self.unproven))

    @property
    def unproven(self) -> tuple[Assessment, ...]:
        """Return the unproven candidates that may be faster than the best; without a best, return all unproven ones."""
        floor = _speed(self.best) if self.best else 0.0
        return tuple(
            assessment
            for assessment in self.assessed
            if assessment.standing is Standing.UNPROVEN
            and (not _speed(assessment.candidate) or _speed(assessment.candidate) > floor)
        )


def advise(pieces: Iterable[Piece], wishes: Wishes, faults: Sequence[str]) -> Advice:
    """Return which setting to take; the order of the pieces never matters."""
    assessed = tuple(
        sorted((assess(candidate, wishes) for candidate in candidates(pieces, faults)), key=_fastest_first)
    )
    fitting = [assessment.candidate for assessment in assessed if assessment.standing is Standing.MEETS]
    equal = sorted(
        (assessment for assessment in fitting if _speed(assessment) >= EQUAL_SHARE * _speed(fitting[0])),
        key=_least_synced,
    )
    best = equal[0] if equal else None
    top = max(map(_speed, equal), default=0.0)
    first = _unbeaten([assessment.candidate for assessment in assessed])
    faster = [assessment for assessment in assessed if best and _speed(assessment.candidate) > top]
    faster = [assessment for assessment in faster if assessment.candidate in first] or faster
    return Advice(
        wishes=wishes,
        faults=tuple(faults),
        best=best,
        as_fast=tuple(equal[1:]),
        next_faster=faster[-1] if faster else None,
        unbeaten=first,
        assessed=assessed,
    )


def assess(candidate: Candidate, wishes: Wishes) -> Assessment:
    """Return the standing of one candidate, with every reason against it."""
    against = [reason for showing in candidate.showings for reason in _against(showing, wishes)]
    if against:
        return Assessment(candidate, Standing.RULED_OUT, tuple(against))
    thin = [Reason("", showing.fault, text) for showing in candidate.showings for text in _thin(showing, wishes)]
    return Assessment(candidate, Standing.UNPROVEN if thin else Standing.MEETS, tuple(thin))


def is_limited(showing: Showing) -> bool:
    """Return whether the documentation limits how many transactions this fault can lose."""
    return showing.promise is not None and showing.promise.keeps in {Keeps.NOTHING_LOST, Keeps.LAST}


def _against(showing: Showing, wishes: Wishes) -> list[Reason]:
    """Return what rules a candidate out under one fault."""
    seen = _violations(showing, wishes)
    # A loss that was seen counts whatever the documentation says.
    allowed = [gap for gap in _gaps(showing, wishes) if gap[0] not in dict(seen)]
    reasons = [Reason(wish, showing.fault, text) for wish, text in (*seen, *allowed)]
    if showing.broken:
        reasons.append(Reason("", showing.fault, f"broke its promise: {showing.broken}"))
    return reasons


def _violations(showing: Showing, wishes: Wishes) -> list[tuple[str, str]]:
    """Return each wish that some state violated, with what was seen."""
    violations = []
    if wishes.lost_max is not None and showing.lost_max > wishes.lost_max:
        violations.append((wishes.lost_word, f"lost up to {showing.lost_max}"))
    if wishes.lost_s_max is not None and showing.lost_s_max > wishes.lost_s_max:
        violations.append((wishes.seconds_word, f"lost up to {showing.lost_s_max:.3g} s of acknowledged work"))
    if showing.damage.count:
        text = f"came back damaged in {showing.damage.count} of {showing.damage.total} file contents"
        violations += [(wish, text) for wish in wishes.words]
    return violations


def _gaps(showing: Showing, wishes: Wishes) -> list[tuple[str, str]]:
    """Return each wish that the documentation does not grant. An unknown promise makes a result inconclusive anyway."""
    promise = showing.promise
    if promise is None:
        return []
    if promise.keeps in {Keeps.ANYTHING, Keeps.ANY_WHOLE} or not promise.atomic or promise.may_refuse:
        return [(wish, f"documented: {promise.text}, damage not excluded") for wish in wishes.words]
    if promise.keeps is Keeps.NOTHING_LOST:
        return []
    return [(wish, f"documented: {promise.text}") for wish in wishes.zero_words]


def _thin(showing: Showing, wishes: Wishes) -> list[str]:
    """Return why the evidence under one fault does not support a zero."""
    doubts = list(showing.doubts)
    seen_count = showing.piece.row.outcome.exposure_count if showing.piece else 0
    if showing.piece and wishes.exposure_min is not None and seen_count < wishes.exposure_min:
        doubts.append(f"{seen_count} distinct file contents, --exposure {wishes.exposure_min} asked for")
    return doubts


def _unbeaten(known: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the settings that no other beats, in their order."""
    taking_part = [
        candidate for candidate in known if _speed(candidate) and not any(each.doubts for each in candidate.showings)
    ]
    return unbeaten(taking_part, lambda candidate: (_speed(candidate), candidate.loss))


def _speed(candidate: Candidate) -> float:
    return candidate.transactions_per_s or 0.0


def _fastest_first(assessment: Assessment) -> tuple[object, ...]:
    return (-_speed(assessment.candidate), *_least_synced(assessment.candidate))


def _least_synced(candidate: Candidate) -> tuple[object, ...]:
    # The last setting says how much is synced, as in `rig.engines.Spec.settings`.
    names = (candidate.engine, candidate.filesystem, candidate.version, candidate.variant, candidate.device)
    return (candidate.rank[::-1], *names, candidate.name)
