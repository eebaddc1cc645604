"""Which accelerator verifiers run under: KVM if a machine under it has answered, else TCG, and that is said.

`/dev/kvm` may exist, open and create a vCPU, and still not run a kernel; so the only probe is a machine that says
READY.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from rig import host
from rig.cache import cache_folder, locked
from rig.contract.errors import VmError
from rig.machines.argv import Accelerator, Role
from rig.machines.image import Image
from rig.machines.template import PROGRAM, answers, qemu_version

_DEVICE = Path("/dev/kvm")
_PROBE_LIMIT_S = 20


def best_accelerator(guest: Image) -> tuple[Accelerator, str]:
    """Return the fastest accelerator that works here, and why that one. The probe's answer is kept until reboot."""
    if reason := _why_closed(_DEVICE):
        return Accelerator.TCG, reason
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
    return Accelerator.TCG, f"a machine under KVM did not answer: {known[1]}"


def _why_closed(device: Path) -> str:
    """Return why KVM's device cannot be opened; nothing if it can."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"this host has no {device}"
    except PermissionError:
        return f"this user may not open {device} (on Debian and Ubuntu, members of the group kvm may)"
    except OSError as error:
        return f"{device} cannot be opened: {error.strerror}"
    return ""


def _probe(guest: Image) -> str:
    try:
        answers(Role.VERIFIER, guest, Accelerator.KVM, _PROBE_LIMIT_S)
    except (VmError, TimeoutError) as error:
        return _gist(str(error))
    return "answered"


def _gist(message: str) -> str:
    """Return the words of QEMU in a message about a lost machine, else the message's first line without the console."""
    line = message.partition("\n")[0].partition("; console: ")[0]
    return line.rpartition(f"{PROGRAM}: ")[2][:120]
