"""Which accelerator verifiers run under: KVM if a machine under it has answered, else TCG, and that is said.

`/dev/kvm` may exist, open and create a vCPU, and still not run a kernel; so the only probe is a machine that says
READY.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from rig import host
from rig.contract.errors import VmError
from rig.machines.argv import Accelerator, Role
from rig.machines.image import Image, cache_folder, locked
from rig.machines.template import answers, qemu_version

_PROBE_LIMIT_S = 20


def best_accelerator(guest: Image) -> tuple[Accelerator, str]:
    """Return the fastest accelerator that works here, and why that one. The probe's answer is kept until reboot."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accelerator.TCG, "/dev/kvm is not there or not ours to open"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note = cache_folder() / "kvm-probe"
    asked = f"{boot} {platform.release()} {qemu_version()} {guest.digest}"
    with locked(note):
        known = note.read_text().splitlines() if note.exists() else []
        if known[:1] != [asked]:
            known = [asked, _probe(guest)]
            host.atomic_write(note, "\n".join(known).encode())
    if known[1] == "answered":
        return Accelerator.KVM, "a machine under KVM answered"
    return Accelerator.TCG, f"KVM did not answer: {known[1]}"


def _probe(guest: Image) -> str:
    try:
        answers(Role.VERIFIER, guest, Accelerator.KVM, _PROBE_LIMIT_S)
    except (VmError, TimeoutError) as error:
        return str(error).splitlines()[0][:200]
    return "answered"
