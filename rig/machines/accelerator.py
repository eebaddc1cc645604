"""Choose the accelerator of the verifiers: KVM if a machine under it has answered, else emulation, with the reason.

`/dev/kvm` may exist, open and create a vCPU, and still not run a kernel, so the only probe is a machine that says
READY. If QEMU fails on a processor register that the guest can do without, the probe is repeated with that register
hidden.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rig.contract.errors import VmError
from rig.host.cache import cache_folder, lock
from rig.host.files import atomic_write
from rig.images.image import Image
from rig.machines.argv import KVM, Accelerator, Role
from rig.machines.template import PROGRAM, answers, qemu_version

_PROBE_LIMIT_S = 20
# QEMU's words when the host does not let it set a model-specific register.
_REGISTER_TROUBLE = "failed to set MSR"
_SHOWN_CHARS = 200
_SILENT = "the guest prints nothing"
_SLOWER = "emulation works as well, only slower"


@dataclass(frozen=True)
class Choice:
    """An accelerator, the reason for it in a few words, and how to get a faster one."""

    accelerator: Accelerator
    reason: str
    advice: str = ""


def best_accelerator(guest: Image) -> Choice:
    """Return the fastest accelerator that works here. The result of the probe is cached until the host reboots."""
    if reason := _why_closed(KVM):
        return Choice(Accelerator.TCG, reason, _SLOWER)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note = note_of(guest)
    asked = f"{boot} {platform.release()} {qemu_version()}"
    with lock(note):
        known = note.read_text().split("\n") if note.exists() else []
        if len(known) != 4 or known[0] != asked:
            choice = choose(lambda accelerator: _failure(guest, accelerator))
            known = [asked, choice.accelerator, choice.reason, choice.advice]
            atomic_write(note, "\n".join(known).encode())
    return Choice(Accelerator(known[1]), known[2], known[3])


def note_of(guest: Image) -> Path:
    """Return the file of the cache with the result of the probe. Remove it to have the probe made again."""
    # The kernel answers the probe. Several images may share a kernel, and a run may need several kernels.
    kernel = hashlib.blake2b(guest.kernel.read_bytes(), digest_size=8).hexdigest()
    return cache_folder() / f"kvm-probe-{kernel}"


def choose(failure: Callable[[Accelerator], str]) -> Choice:
    """Return the choice; `failure` says why no machine answered under an accelerator, or nothing if one did."""
    plain = failure(Accelerator.KVM)
    if not plain:
        return Choice(Accelerator.KVM, "a machine under KVM answered")
    if _REGISTER_TROUBLE not in plain:
        return Choice(Accelerator.TCG, f"under KVM {plain}", _advice(plain))
    without = failure(Accelerator.KVM_WITHOUT_ARCH_CAPABILITIES)
    if not without:
        hidden = "a machine under KVM answered, with arch-capabilities hidden"
        return Choice(Accelerator.KVM_WITHOUT_ARCH_CAPABILITIES, hidden)
    advice = f"that was with arch-capabilities hidden; with them {plain}; {_advice(without)}"
    return Choice(Accelerator.TCG, f"under KVM {without}", advice)


def _advice(failure: str) -> str:
    if failure == _SILENT:
        return f"no kernel runs under this KVM, as on some virtual hosts: use another host if you can; {_SLOWER}"
    return f"try a newer QEMU or host kernel; {_SLOWER}"


def _why_closed(device: Path) -> str:
    """Return why KVM's device cannot be opened, or nothing if it can.

    Machines of root run as another user, who has the group of the device.
    """
    try:
        if os.geteuid() == 0 and not any(device.stat().st_mode & bits == bits for bits in (0o060, 0o006)):
            return f"{device} is open to root alone, and machines of root run as nobody (chmod 660 {device} opens it)"
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"this host has no {device}"
    except PermissionError:
        return f"this user may not open {device} (on Debian and Ubuntu, members of the group kvm may)"
    except OSError as error:
        return f"{device} cannot be opened: {error.strerror}"
    return ""


def _failure(guest: Image, accelerator: Accelerator) -> str:
    """Return why no machine answers under an accelerator, or nothing if one does."""
    try:
        answers(Role.VERIFIER, guest, accelerator, _PROBE_LIMIT_S)
    except (VmError, TimeoutError) as error:
        return _gist(str(error))
    return ""


def _gist(message: str) -> str:
    """Return QEMU's own words from the message about a lost machine, or `_SILENT` if QEMU was still running."""
    text = message.partition("; console: ")[0]
    if text.endswith("(still running)"):
        return _SILENT
    # Warnings of its libraries may come first, and a failed assertion last.
    first = next((line for line in text.split("\n") if f"{PROGRAM}: " in line), text.partition("\n")[0])
    return f"QEMU says: {first.rpartition(f'{PROGRAM}: ')[2].removeprefix('error: ').removesuffix(')')[:_SHOWN_CHARS]}"
