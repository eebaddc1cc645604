"""KVM is used if a machine under it answers; if none does, the message tells which of two reasons, and what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from rig.machines import accelerator
from rig.machines.accelerator import best_accelerator, choose
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


@pytest.mark.parametrize(
    ("printed", "gist"),
    [
        (
            "A warning\nqemu-system-x86_64: -accel kvm: failed to initialize kvm: Permission denied",
            "QEMU says: -accel kvm: failed to initialize kvm: Permission denied",
        ),
        (
            "qemu-system-x86_64: error: failed to set MSR 0x10a to 0x69\nqemu-system-x86_64: ../kvm.c: Assertion",
            "QEMU says: failed to set MSR 0x10a to 0x69",
        ),
        ("", "QEMU says: virtual machine: it ended while we waited for RIG-READY (ended with 1 "),
    ],
)
def test_the_words_of_the_emulator_are_told_and_not_those_of_its_libraries(printed: str, gist: str) -> None:
    message = f"virtual machine: it ended while we waited for RIG-READY (ended with 1 {printed}); console: ...a\nb"
    assert gist == accelerator._gist(message)


@pytest.mark.parametrize(("mode", "is_open"), [(0o600, False), (0o640, False), (0o660, True), (0o606, True)])
def test_root_is_told_that_the_user_of_its_machines_may_not_open_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_open: bool
) -> None:
    device = tmp_path / "kvm"
    device.touch()
    device.chmod(mode)
    monkeypatch.setattr(accelerator, "KVM", device)
    monkeypatch.setattr(accelerator, "note_of", lambda _: tmp_path / "note")
    monkeypatch.setattr(accelerator, "_failure", lambda *_: "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    choice = best_accelerator(Mock())
    assert (Accelerator.KVM if is_open else Accelerator.TCG) is choice.accelerator
    assert is_open is ("root alone" not in choice.reason)
