"""The audit of a run: some planned crash states, built whole on the host, before a checker that planned none of them.

A state that the checker does not call legal is a fault of the rig, and nothing of its cell can be trusted: the cell is
void, which is neither a promise kept nor one broken.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from faults import CrashState, WriteLog, base_extents
from faults.legality import RULES, Checker, Legality
from faults.log import ByteArray
from rig.arms import SPECS
from rig.cuts import Cut
from rig.errors import LegalityError
from rig.guest.disks import DISK_MIB
from rig.scenario import Scenario

_DEVICE_BYTES = DISK_MIB << 20


class Auditor:
    """Audits the cells of one recording; reads the log's order of writes once."""

    def __init__(self, log: WriteLog) -> None:
        """Take a log that passed the recording's self-check: replaying all of it gives the device."""
        self.log = log

    @cached_property
    def _checker(self) -> Checker:
        return Checker(self.log, _DEVICE_BYTES)

    def audit(self, scenario: Scenario, cuts: Sequence[Cut], count: int) -> int:
        """Check a seeded sample of the cuts of a cell and return how many were found legal.

        Raise LegalityError at the first that is not; 0 for a cell that is not cut as an honest disk is.
        """
        rule = RULES.get(SPECS[scenario.fault].model)
        if rule is None:
            return 0
        chosen = random.Random(f"audit {scenario.seed} {scenario.id}").sample(cuts, min(count, len(cuts)))
        chosen.sort(key=lambda cut: (cut.state.base_end, cut.entry))
        for cut, content in zip(chosen, contents(self.log, [cut.state for cut in chosen]), strict=True):
            answer = self._checker.check(content, cut.entry, rule)
            if answer.legality is not Legality.LEGAL and cut.entry < cut.state.latest_instant:
                # It answers for fewer acknowledgements than it could, which wrongs nobody.
                answer = self._checker.check(content, cut.state.latest_instant, rule)
            if answer.legality is not Legality.LEGAL:
                raise LegalityError(
                    f"the rig is wrong and {scenario.id} is void: the planned state {cut.state.id}, judged just before "
                    f"entry {cut.entry}, is not one that an honest disk is known to leave: {answer}"
                )
        return len(chosen)


def contents(log: WriteLog, states: Sequence[CrashState]) -> Iterator[ByteArray]:
    """Build the whole disk of each state, sorted so that the base moves forward only; each is valid until the next."""
    device: ByteArray = np.zeros(_DEVICE_BYTES, dtype=np.uint8)
    base_end = 0
    for state in states:
        for extent in base_extents(log, base_end, state.base_end):
            _put(device, extent.device_offset_bytes, extent.data(log))
        base_end = state.base_end
        extents = state.extents(log)
        kept = [
            (one.device_offset_bytes, device[one.device_offset_bytes :][: one.length_bytes].copy()) for one in extents
        ]
        for extent in extents:
            _put(device, extent.device_offset_bytes, extent.data(log))
        yield device
        # All were kept before the first was put, so the order does not matter.
        for offset_bytes, data in kept:
            _put(device, offset_bytes, data)


def _put(device: ByteArray, offset_bytes: int, data: bytes | ByteArray) -> None:
    device[offset_bytes : offset_bytes + len(data)] = np.frombuffer(data, dtype=np.uint8)
