"""The comparison of two kinds of machines: both must show the same findings and the same bytes in the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rig.contract.errors import DisagreementError
from rig.contract.findings import Finding, FindingKind
from rig.contract.scenario import Scenario
from rig.faults import CrashState

# An engine that does not open the same files may end in either way, as chance in its threads will have it.
_NOT_OPENED = {FindingKind.UNOPENABLE, FindingKind.DIED}


class Comparison:
    """The findings of one kind of machines that another kind has to repeat."""

    def __init__(self) -> None:
        self._noted: dict[FindingKind, tuple[int, Finding]] = {}

    def note(self, number: int, finding: Finding) -> None:
        """Note the finding of a state by its number: the last prefix, and the first finding of each other kind."""
        if finding.kind is FindingKind.PREFIX:
            self._noted[finding.kind] = number, finding
        else:
            self._noted.setdefault(finding.kind, (number, finding))

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the states to compare, ascending."""
        return sorted(number for number, _ in self._noted.values())

    def require_equal(self, scenario: Scenario, states: Sequence[CrashState], again: Iterable[Finding]) -> None:
        """Raise DisagreementError unless the states at `numbers` show the same again."""
        noted_findings = [finding for _, finding in sorted(self._noted.values(), key=lambda noted: noted[0])]
        for state, one, other in zip(states, noted_findings, again, strict=True):
            if _answer(one) != _answer(other):
                shown = " and ".join(
                    f"{each.kind} {each.recovered} {each.detail} {each.files}" for each in (one, other)
                )
                raise DisagreementError(
                    f"two kinds of machines disagree on {state.id} of {scenario.id}: they show {shown}"
                )


def _answer(finding: Finding) -> tuple[FindingKind, int | None, str]:
    kind = FindingKind.UNOPENABLE if finding.kind in _NOT_OPENED else finding.kind
    return kind, finding.recovered, finding.files
