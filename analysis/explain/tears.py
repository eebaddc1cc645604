"""One call whose write was torn: a part of it is on the disk, the rest is not, and that alone shows the damage.

The check of this story is two more states of the same cut: with all of the write, and with none of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rig.analysis.explain.blame import Blame
from rig.analysis.explain.blocks import BlockNamer
from rig.analysis.explain.checks import EvidenceSource
from rig.analysis.explain.loss import Loss
from rig.contract.calls import SeenCall
from rig.engines.syncs import CallName
from rig.faults import StateIdError


def torn_call(evidence: EvidenceSource, loss: Loss, namer: BlockNamer, blames: Sequence[Blame]) -> SeenCall | None:
    """Return the call that was torn; None if it is another story, or if the two states show the same damage."""
    lost, landed, choices = loss.lost.sets[0], loss.landed.sets[0], loss.lost.choices
    calls = [blame.call for blame in blames if blame.call.name == CallName.WRITE and blame.call.length_bytes > 0]
    if not (lost and landed and calls):
        return None
    call = calls[0]
    parts = frozenset(namer.atoms_in(call.path, call.offset_bytes, call.length_bytes))
    if not lost | landed <= parts:
        return None
    others = frozenset(choices.atoms) - parts
    # With everything else landed, and with nothing else.
    states = [choices.state(kept | more) for kept in (others, frozenset()) for more in (parts, frozenset())]
    try:
        placed = [(evidence.logs.parse(state.id), None) for state in states]
    except StateIdError:
        return None
    kinds = [verdict.kind for verdict in evidence.judge(placed)]
    # Where a machine was lost, nothing is known.
    return None if any(kind.is_damage or kind.is_infrastructure for kind in kinds) else call
