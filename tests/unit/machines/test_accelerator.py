"""KVM is used if a machine under it answers; if none does, the message tells which of two reasons, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rig.machines.accelerator import choose
from rig.machines.argv import Accelerator

_PLAIN, _HIDDEN = Accelerator.KVM, Accelerator.KVM_WITHOUT_ARCH_CAPABILITIES
_REGISTER = "QEMU says: failed to set MSR 0x10a to 0x69"
_SILENT = "the guest prints nothing"


@pytest.mark.parametrize(
    ("failures", "accelerator", "reason", "advice"),
    [
        ({_PLAIN: ""}, _PLAIN, "a machine under KVM answered", ""),
        (
            {_PLAIN: _REGISTER, _HIDDEN: ""},
            _HIDDEN,
            "a machine under KVM answered, with arch-capabilities hidden",
            "",
        ),
        (
            {_PLAIN: _REGISTER, _HIDDEN: _SILENT},
            Accelerator.TCG,
            f"under KVM {_SILENT}",
            "use another host if you can",
        ),
        (
            {_PLAIN: _REGISTER, _HIDDEN: "QEMU says: failed to set MSR 0x48b"},
            Accelerator.TCG,
            "under KVM QEMU says: failed to set MSR 0x48b",
            "try a newer QEMU or host kernel",
        ),
        ({_PLAIN: _SILENT}, Accelerator.TCG, f"under KVM {_SILENT}", "use another host if you can"),
        (
            {_PLAIN: "QEMU says: no space"},
            Accelerator.TCG,
            "under KVM QEMU says: no space",
            "try a newer QEMU or host kernel",
        ),
    ],
    ids=["works", "works reduced", "silent when reduced", "fails when reduced", "silent", "fails"],
)
def test_what_was_seen_decides_and_is_said_with_what_to_do(
    failures: Mapping[Accelerator, str], accelerator: Accelerator, reason: str, advice: str
) -> None:
    # An accelerator that is not among the failures must not be tried.
    found = choose(failures.__getitem__)
    assert (accelerator, reason) == (found.accelerator, found.reason)
    assert advice in found.advice
    assert bool(advice) is bool(found.advice)
    assert (_REGISTER in found.advice) is (accelerator is Accelerator.TCG and failures[_PLAIN] == _REGISTER)
    assert "\n" not in found.reason + found.advice
