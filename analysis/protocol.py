"""Whether an engine makes its documented sync calls; a kept promise counts only if it does.

Each plain recording ends with a supervised sample of transactions (`rig.guest.watch.sample`).
`rig.engines.NAME.syncs` lists the sync sequences of the settings. If a transaction did something else, or none did the
most common sequence, this build or these settings are not what the documentation describes: a counterexample still
counts, a kept promise does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rig.engines import found
from rig.engines.syncs import in_roles, syncs_of

if TYPE_CHECKING:
    from rig.contract.results import MeasuredScenario


def known_sequences(engine: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sync sequences of one transaction at these settings, the most common first; empty if not known."""
    known = found(engine)
    syncs = syncs_of(known) if known else None
    if not known or not syncs:
        return ()
    return tuple(dict.fromkeys(in_roles(known, sequence) for sequence in syncs.sequences(settings)))


def difference(scenario: MeasuredScenario) -> str:
    """Return how the sampled sync calls differ from the known ones, naming both; empty if they agree or are unknown."""
    known, measured = known_sequences(scenario.engine, scenario.settings), scenario.recording.syncs
    if not known or not measured:
        return ""
    strange = sorted(sequence for sequence in measured if sequence not in known)
    if not strange and known[0] in measured:
        return ""
    shown = ", ".join(f"'{sequence}' ({measured[sequence]})" for sequence in strange or sorted(measured))
    return f"the syncs of a transaction are not the documented ones: measured {shown}, documented {_listed(known)}"


def _listed(sequences: tuple[str, ...]) -> str:
    return " or ".join(f"'{sequence}'" for sequence in sequences)
