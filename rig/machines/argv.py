"""The QEMU command line, as a pure function of a frozen spec and of what is plugged in.

A template and its clones have the same devices in the same order, because a saved state fits no other machine. Only the
backends differ: files, and sockets passed as open descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rig.contract.orders import Processor


class Role(StrEnum):
    """What a machine is for."""

    RECORDER = "recorder"
    VERIFIER = "verifier"


class Accelerator(StrEnum):
    """Who executes the guest's instructions."""

    TCG = "tcg"
    KVM = "kvm"
    # For hosts on which QEMU cannot set the arch-capabilities register (MSR 0x10a) and exits.
    KVM_WITHOUT_ARCH_CAPABILITIES = "kvm-without-arch-capabilities"


class Use(StrEnum):
    """What a machine is started for, which decides where it begins and whether its RAM is kept."""

    # To be saved as a template, from the beginning.
    BOOT = "boot"
    # To be saved as a template, from one that was saved with less.
    EXTEND = "extend"
    # To work.
    CLONE = "clone"

    @property
    def is_saved(self) -> bool:
        """Whether the machine writes its RAM to the file."""
        return self is not Use.CLONE

    @property
    def is_restored(self) -> bool:
        """Whether the machine waits for a saved state."""
        return self is not Use.BOOT


@dataclass(frozen=True)
class MachineSpec:
    """A machine before anything is plugged in. This and QEMU itself determine a template."""

    role: Role
    accelerator: Accelerator
    memory_mib: int
    kernel: Path
    initrd: Path
    root_disk: Path
    # Under emulation; with KVM a guest has the host's processor.
    processor: Processor = Processor.PLAIN


@dataclass(frozen=True)
class Plugs:
    """The backends of one machine's devices. The QEMU process inherits the descriptors, and the paths name some too."""

    ram_file: Path
    use: Use
    console: Path
    orders: Path
    recording: Path
    channel_fd: int
    monitor_fd: int


# A template can be restored only with orders of the size that it was saved with.
ORDERS_BYTES = 4096

KVM = Path("/dev/kvm")

# QEMU 7.2 mis-emulates cmpxchg16b: with it, 1 of 6 boots died in early kernel code. The plainest CPU model is the
# fastest to emulate (a crash state takes a tenth less time than with "max"). Neither model has an instruction that
# reads host randomness.
_TCG_CPU = {Processor.PLAIN: "qemu64,cx16=off", Processor.MODERN: "max,cx16=off,rdrand=off,rdseed=off"}
_KVM_CPU = {Accelerator.KVM: "host", Accelerator.KVM_WITHOUT_ARCH_CAPABILITIES: "host,-arch-capabilities"}
# Virtual time advances by 2 ns with each guest instruction, and jumps to the next timer when the guest sleeps.
_ICOUNT_SHIFT = 1
_ICOUNT = f"shift={_ICOUNT_SHIFT},sleep=off,align=off"
# An instruction takes 2^shift virtual nanoseconds.
INSTRUCTIONS_PER_S = 10**9 >> _ICOUNT_SHIFT
# What the kernel does when it starts, and nothing here needs: compare variants of RAID 6 for Btrfs, test a source of
# randomness and a derivation of keys, and load certificates.
NO_EXTRAS = "initcall_blacklist=raid6_select_algo,jent_mod_init,crypto_kdf108_init,load_system_certificate_list"
# no_timer_check: on a busy host the kernel may see no tick while it tests its timer, and Linux 6.12 then panics. KVM
# guests skip that test. rcu_expedited: removing a dm device waits for RCU grace periods; this makes them far shorter.
# The last line is Debian's hardening, which takes a tenth of each crash state under emulation.
_APPEND = (
    f"console=ttyS0 quiet panic=-1 mitigations=off audit=0 no_timer_check rcupdate.rcu_expedited=1 {NO_EXTRAS} "
    "RIG_ROLE={role} init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off lsm="
)
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny,spawn=deny"


def argv(program: str, spec: MachineSpec, plugs: Plugs) -> list[str]:
    """Return the command line."""
    return [
        program,
        "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot",
        "-machine", "q35,memory-backend=ram,hpet=off",
        *_processor(spec),
        "-smp", "1",
        "-m", str(spec.memory_mib),
        "-object", _memory(spec, plugs),
        "-rtc", "base=2026-01-01T00:00:00,clock=vm",
        "-kernel", str(spec.kernel), "-initrd", str(spec.initrd), "-append", _APPEND.format(role=spec.role),
        "-fw_cfg", f"name=opt/rig/orders,file={_quote(plugs.orders)}",
        *_disk("root", spec.root_disk),
        *_disk("recording", plugs.recording),
        "-device", "virtio-serial-pci",
        "-chardev", f"socket,id=channel,fd={plugs.channel_fd}",
        "-device", "virtserialport,chardev=channel,name=rig",
        "-chardev", f"file,id=console,path={_quote(plugs.console)}",
        "-serial", "chardev:console",
        "-sandbox", _SANDBOX,
        "-chardev", f"socket,id=monitor,fd={plugs.monitor_fd}",
        "-mon", "chardev=monitor,mode=control",
        *(["-S", "-incoming", "defer"] if plugs.use.is_restored else []),
    ]  # fmt: skip


def _processor(spec: MachineSpec) -> list[str]:
    if spec.accelerator in _KVM_CPU:
        return ["-accel", "kvm", "-cpu", _KVM_CPU[spec.accelerator]]
    processor = ["-accel", "tcg,tb-size=128", "-cpu", _TCG_CPU[spec.processor]]
    return [*processor, "-icount", _ICOUNT] if spec.role is Role.RECORDER else processor


def _memory(spec: MachineSpec, plugs: Plugs) -> str:
    share = "on" if plugs.use.is_saved else "off"
    return f"memory-backend-file,id=ram,size={spec.memory_mib}M,mem-path={_quote(plugs.ram_file)},share={share}"


def _disk(name: str, path: Path) -> list[str]:
    node = f"driver=raw,node-name={name},read-only=on,file.driver=file,file.read-only=on"
    return ["-blockdev", f"{node},file.filename={_quote(path)}", "-device", f"virtio-blk-pci,drive={name}"]


def _quote(path: Path) -> str:
    """Double the commas: QEMU's option syntax ends a value at a single one."""
    return str(path).replace(",", ",,")
