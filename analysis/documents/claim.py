"""What a claim is: a statement of one of the documents, the experiment that decides it, and the thresholds.

The experiment is one of six kinds. A *probe* is a small real experiment without a crash, here or in a *guest*.
*Scenarios* of the matrix are judged from a run directory. A *speed* experiment compares two arms of `rig speed`. A
*reading* is for statements about a documentation, which only its text can decide. *Awaits* says why a claim has no
experiment yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rig.analysis.documents.condition import Condition


class ClaimVerdict(StrEnum):
    """What measuring a claim showed."""

    CONFIRMED = "confirmed"
    IMPRECISE = "imprecise"
    REFUTED = "refuted"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Probe:
    """A small experiment by its name in `rig.analysis.documents.probes`."""

    name: str


@dataclass(frozen=True)
class GuestProbe:
    """A small experiment with a file system that needs a machine, in `rig.analysis.documents.guestprobes`.

    A name such as `ENGINE.NAME` means an experiment with an engine on several hosts.
    """

    filesystem: str
    name: str


@dataclass(frozen=True)
class Scenarios:
    """Scenarios of the matrix, by arms: the figure `wal.lost_max` is the largest loss of the arm `wal`."""

    arms: Mapping[str, tuple[str, ...]]
    # Arms that only show that the rig is not blind; no zero rests on them.
    controls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # `delete.lost` or `delete.damaged`: the states that are worth replaying; empty if a verdict rests on a zero.
    shows: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """Return every scenario that is needed, sorted."""
        return tuple(
            sorted({scenario_id for arms in (self.arms, self.controls) for ids in arms.values() for scenario_id in ids})
        )


@dataclass(frozen=True)
class Speed:
    """Two arms of one `rig speed`: the figure `ratio` is the median of `over` divided by the median of `under`."""

    # A document such as S0, or `settings`.
    experiment: str
    over: str
    under: str
    # If empty, the main metric of the experiment.
    metric: str = ""
    # The file system to measure on; if empty, any.
    filesystem: str = ""
    # What the arms do, as `rig speed` names it, such as `1 row into 1000`; if empty, all of a document's own work, or
    # the ledger.
    load: str = ""


@dataclass(frozen=True)
class Reading:
    """A statement about a documentation, and what reading the documentation shows."""

    verdict: ClaimVerdict


@dataclass(frozen=True)
class Awaits:
    """Why there is no experiment yet."""

    why: str


Experiment = Probe | GuestProbe | Scenarios | Speed | Reading | Awaits


@dataclass(frozen=True)
class Claim:
    """One statement of a document. `seen` and `truth` are sentences with figures in braces."""

    id: str
    line: int
    says: str
    experiment: Experiment
    metric: str
    # What must come out the other way, and the condition that says whether it did.
    control: str
    fires: tuple[Condition, ...]
    confirm: tuple[Condition, ...]
    refute: tuple[Condition, ...]
    # Imprecise: neither of the two above holds, so the claim is partly true, and `truth` says what is true.
    imprecise: tuple[Condition, ...]
    seen: str
    truth: str
    documentation: str
    source: str

    @property
    def thresholds(self) -> tuple[tuple[ClaimVerdict, tuple[Condition, ...]], ...]:
        """Return what each verdict needs, in the order of judgement: the first verdict that holds is the answer."""
        return (
            (ClaimVerdict.REFUTED, self.refute),
            (ClaimVerdict.CONFIRMED, self.confirm),
            (ClaimVerdict.IMPRECISE, self.imprecise),
        )

    @property
    def threshold(self) -> str:
        """Return the thresholds in one line."""
        parts = {"confirmed": self.confirm, "refuted": self.refute, "imprecise": self.imprecise}
        return "; ".join(
            f"{word} if {' and '.join(condition.text for condition in conditions)}"
            for word, conditions in parts.items()
            if conditions
        )


@dataclass(frozen=True)
class SummaryLine:
    """One line of a document's summary, and the verdicts that it rests on."""

    text: str
    rests_on: Mapping[str, ClaimVerdict]


@dataclass(frozen=True)
class Document:
    """One document: its claims in their order, and what its reader wants to know."""

    id: str
    file: str
    about: str
    claims: tuple[Claim, ...]
    summary: tuple[SummaryLine, ...]
