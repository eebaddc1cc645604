"""Measures claims: runs each wanted probe once, and judges the other claims from stored results."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.analysis.documents import crash, speed
from rig.analysis.documents.answer import Answer, decide, not_measured
from rig.analysis.documents.claim import (
    Awaits,
    Claim,
    ClaimVerdict,
    Document,
    GuestProbe,
    Probe,
    Reading,
    Scenarios,
    Speed,
)
from rig.analysis.documents.probes import PROBES, Figures, Unmeasurable
from rig.contract.errors import RigError, UsageError
from rig.host.progress import Progress
from rig.speed.speeds import Speeds

_log = logging.getLogger(__name__)

# Carries out a probe of a file system in a machine; raises RigError or TimeoutError.
InGuest = Callable[[str, str], Figures]


@dataclass(frozen=True)
class Answered:
    """A document with the answers to its claims, in their order."""

    document: Document
    answers: tuple[Answer, ...]


def select(documents: Sequence[Document], names: Sequence[str]) -> list[Document]:
    """Return the documents with the claims that ids or documents name; without names, return all."""
    if not names:
        return list(documents)
    known = {claim.id for document in documents for claim in document.claims} | {document.id for document in documents}
    if unknown := [name for name in names if name not in known]:
        last = ", ".join(f"{document.id}-1 to {document.claims[-1].id}" for document in documents)
        raise UsageError(f"unknown claim {unknown[0]!r}; there are: {last}, or a whole document such as S0")
    selection = []
    for document in documents:
        claims = tuple(claim for claim in document.claims if claim.id in names or document.id in names)
        if claims:
            selection.append(Document(document.id, document.file, document.about, claims, document.summary))
    return selection


def scenario_ids(documents: Sequence[Document]) -> list[str]:
    """Return the scenarios that the claims need, sorted."""
    experiments = [claim.experiment for document in documents for claim in document.claims]
    return sorted({scenario_id for each in experiments if isinstance(each, Scenarios) for scenario_id in each.ids})


def measure(
    documents: Sequence[Document],
    evidence: crash.Evidence,
    speeds: Sequence[Speeds],
    progress: Progress,
    in_guest: InGuest,
) -> list[Answered]:
    """Return an answer to every claim; `progress` counts probes, `in_guest` carries out those that need a machine."""
    experiments = [claim.experiment for document in documents for claim in document.claims]
    progress.expect(len({experiment for experiment in experiments if isinstance(experiment, Probe | GuestProbe)}))
    bench = _ProbeRunner(progress, in_guest)
    return [
        Answered(document, tuple(_answer(claim, bench, evidence, speeds) for claim in document.claims))
        for document in documents
    ]


class _ProbeRunner:
    """Runs each probe once, in a directory of its own that is removed afterwards."""

    def __init__(self, progress: Progress, in_guest: InGuest) -> None:
        self._progress = progress
        self._in_guest = in_guest
        self._known: dict[Probe | GuestProbe, Figures | str] = {}

    def figures(self, probe: Probe | GuestProbe) -> Figures | str:
        """Return the figures of a probe, or why it has no figures."""
        if probe not in self._known:
            self._known[probe] = _here(probe) if isinstance(probe, Probe) else self._there(probe)
            self._progress.advance(1)
        return self._known[probe]

    def _there(self, probe: GuestProbe) -> Figures | str:
        try:
            return self._in_guest(probe.filesystem, probe.name)
        except (RigError, TimeoutError) as error:
            return f"the probe {probe.name} failed in its machine: {error}"


def _here(probe: Probe) -> Figures | str:
    with tempfile.TemporaryDirectory(prefix="rig-claims-") as folder:
        try:
            return PROBES[probe.name](Path(folder))
        except (Unmeasurable, RigError) as reason:
            return str(reason)
        except Exception as error:  # noqa: BLE001 - one that goes wrong must not take all other answers with it
            _log.exception("the probe %s failed", probe.name)
            return f"the probe {probe.name} failed: {type(error).__name__}: {error}"


def _answer(claim: Claim, bench: _ProbeRunner, evidence: crash.Evidence, speeds: Sequence[Speeds]) -> Answer:
    match claim.experiment:
        case Probe() | GuestProbe():
            figures = bench.figures(claim.experiment)
            return not_measured(claim, figures) if isinstance(figures, str) else decide(claim, figures)
        case Scenarios():
            return crash.judge(claim, evidence)
        case Speed():
            return speed.judge(claim, speeds)
        case Reading(verdict):
            truth = "" if verdict is ClaimVerdict.CONFIRMED else claim.truth
            return Answer(claim, verdict, "Read, not measured: it is about what is written.", truth)
        case Awaits(why):
            return not_measured(claim, why)
