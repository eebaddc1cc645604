"""User-mode machines: Linux as a process of the host, which runs the guest's programs at the host's own speed.

Without KVM, QEMU emulates every instruction of a verifier. User-mode Linux does not: its kernel is a program, and each
process of the guest is a process of the host whose system calls the kernel carries out (ptrace). The agent and the root
disk are the same; the kernel is Debian's `user-mode-linux`, built from the same series of Linux. It has neither an
instruction counter nor block tracepoints, so all recordings are made in QEMU; and a sample of the crash states judged
here is judged again in QEMU, see `rig.campaign.verification`.

Its serial line cannot carry requests: with more than 4 KiB in it the line stopped for good in one of four tests (Linux
6.12). So messages lie on a disk, a file in memory, and the line carries only their places. Documentation:
Documentation/virt/uml/user_mode_linux_howto_v2.rst of the kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from rig.contract.errors import HostError, VmError
from rig.contract.orders import FAILED, READY, Processor
from rig.engines.builds import Library
from rig.host.cache import cache_folder, lock
from rig.host.files import atomic_write, free_bytes
from rig.images import guestcode, image, recipes
from rig.images.image import Image
from rig.images.usermodekernel import LIBRARIES, PROGRAM, long_state_library
from rig.machines import template
from rig.machines.argv import NO_EXTRAS, Role
from rig.machines.machine import Machine, start
from rig.machines.memoryfile import by_descriptor, memory_file
from rig.recordings.archive import RECORDING_BYTES
from rig.sandbox.sandbox import Sandbox

RECIPE = "usermode"
_MEMORY_MIB = 640
_ADDED_MIB = 64
_BOOT_LIMIT_S = 120
_MAIL_BYTES = 64 << 20
# At most four messages wait for an answer (`rig.campaign.session`), so none of them is overwritten.
_MESSAGE_BYTES_MAX = _MAIL_BYTES // 8
_PAGE_BYTES = 4096
_ANSWER_LIMIT_S = 30
_SAID_CHARS = 200
# What an engine may count on beyond a plain processor, as with the emulator's modern one (`rig.machines.argv`).
# A processor with this flag has a state that is too long for the kernel.
_LONG_STATE = "amx_tile"
_MODERN = frozenset({"avx2", "bmi2", "fma", "movbe", "popcnt"})
# Of the host, the kernel looks at these.
_PATHS = (
    ("/proc/cpuinfo", "/proc/cpuinfo", "read"),
    ("/dev/random", "/dev/random", "read"),
    ("/dev/null", "/dev/null", "write"),
)
_TMPFS = Path("/dev/shm")  # noqa: S108 - its file there has no name


@dataclass(frozen=True)
class UserMode:
    """What machines for crash states are started from, instead of a verifier's template."""

    # The kernel: an image with a program, its C library and an initrd.
    kernel: Image
    # Has the root disk.
    guest: Image
    # The kernel's initrd, followed by our code.
    initrd: Path

    @property
    def identity(self) -> str:
        """Return what decides the outcome of a check: the kernel, the root disk and our code."""
        return self.initrd.parent.name

    @contextmanager
    def clone(self, *, recording: Path | None = None) -> Iterator[Machine]:
        """Boot a machine for the length of a block; it gets a copy of the recording."""
        with (
            memory_file("console") as console,
            memory_file("recording", size_bytes=RECORDING_BYTES) as disk,
            memory_file("mail", size_bytes=_MAIL_BYTES) as mail,
            open(self.initrd, "rb") as initrd,
            open(self.guest.root_disk, "rb") as root,
        ):
            files = (console, initrd, root, disk, mail)

            def command(channel_fd: int, _: int) -> list[str]:
                return _command(channel_fd, *(file.fileno() for file in files))

            with start(
                command,
                self._sandbox({file.fileno(): "write" if file is console else "read" for file in files}),
                console=by_descriptor(console),
                disk=disk,
                # Each system call of the guest passes from one process to another, which takes twice as long between
                # two processors.
                one_cpu=True,
                kind=lambda *plugs: _UserModeMachine(*plugs, mail=mail),
            ) as machine:
                if recording:
                    machine.plug(recording)
                machine.wait_for_console(READY, FAILED, _BOOT_LIMIT_S)
                yield machine

    def _sandbox(self, files: Mapping[int, str]) -> Sandbox:
        folder = str(self.kernel.folder)
        return Sandbox(
            system_calls="user mode",
            memory_bytes=_MEMORY_MIB << 20,
            paths=[(folder, "/kernel", "programs"), *_PATHS],
            files=files,
            cwd=folder,
            environment=kernel_environment(self.kernel.folder),
            # Its RAM, and what the kernel adds to that.
            scratch_bytes=_MEMORY_MIB + _ADDED_MIB << 20,
            scratch=str(_memory_folder()),
        )


def _command(channel_fd: int, console_fd: int, *files: int) -> list[str]:
    # The kernel's command line is short, and a path may have blanks and quotes.
    initrd, root, recording, mail = (f"/proc/self/fd/{file}" for file in files)
    return [
        f"./{PROGRAM}", f"mem={_MEMORY_MIB}M", f"initrd={initrd}", "root=/dev/ram0",
        # "c": without a lock on the file, because QEMU reads the root disk too.
        f"ubd0rc={root}", f"ubd1rc={recording}", f"ubd2rc={mail}",
        "con=null", f"con0=null,fd:{console_fd}", "console=tty0", "ssl=null", f"ssl0=fd:{channel_fd}",
        # No socket for a management console, and no folder for it.
        "uml_dir=/proc/self/",
        "quiet", "audit=0", "rcupdate.rcu_expedited=1", "init_on_alloc=0", "lsm=", NO_EXTRAS,
        # How many rounds of a loop take a jiffy: a guess, which spares counting them. Nothing depends on it.
        "lpj=10000000",
        f"RIG_ROLE={Role.VERIFIER}", "RIG_ROOT=/dev/ubda", "RIG_RECORDING=/dev/ubdb", "RIG_MAIL=/dev/ubdc",
        "RIG_PORT=/dev/ttyS0",
    ]  # fmt: skip


class _UserModeMachine(Machine):
    """A running machine, with the memory for messages."""

    def __init__(self, *plugs: Any, mail: BinaryIO) -> None:
        super().__init__(*plugs)
        self._mail = mail
        self._mail_end = 0

    def send(self, message: dict[str, Any]) -> None:
        """Put one message on the disk for messages, and send its place."""
        content = json.dumps(message).encode()
        size = -(-len(content) // _PAGE_BYTES) * _PAGE_BYTES
        if size > _MESSAGE_BYTES_MAX:
            raise VmError(f"a message of {len(content)} bytes is too long for a user-mode machine")
        begin = self._mail_end if self._mail_end + size <= _MAIL_BYTES else 0
        self._mail_end = begin + size
        os.pwrite(self._mail.fileno(), content, begin)
        self._say(json.dumps([begin, len(content)]))


@contextmanager
def user_mode(guest: Image, libraries: Sequence[Library], processor: Processor) -> Iterator[UserMode]:
    """Hold what machines are started from for the length of a block; `libraries` as in `rig.machines.template`."""
    kernel = build()
    code = guestcode.whole(guest.digest, libraries, processor)
    digest = hashlib.blake2b(f"{kernel.digest} {guest.digest} ".encode() + code, digest_size=8).hexdigest()
    folder = cache_folder() / "templates" / f"{RECIPE}-{digest}"

    def save() -> None:
        template.remove_templates(keep=folder, kind=RECIPE, spared_count=template.SPARED_COUNT)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / template.INITRD).write_bytes(kernel.initrd.read_bytes() + code)
        atomic_write(folder / template.IDENTITY, folder.name.encode())

    with template.in_use(folder, save):
        yield UserMode(kernel, guest, folder / template.INITRD)


def obstacle(guest: Image, processor: Processor, says: Callable[[str], None] = lambda _: None) -> str:
    """Return why no machine answers on this host; empty if one does. The answer is cached until the host reboots."""
    if processor is Processor.MODERN and (lacking := _MODERN - flags()):
        return f"this host's processor lacks {', '.join(sorted(lacking))}"
    try:
        kernel = build(says)
    except HostError as error:
        return f"the kernel of user-mode machines could not be made: {error}"
    note = note_of(kernel)
    asked = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {platform.release()}"
    with lock(note):
        known = note.read_text().split("\n", 1) if note.exists() else []
        if len(known) != 2 or known[0] != asked:
            known = [asked, _failure(guest)]
            atomic_write(note, "\n".join(known).encode())
    return known[1]


def note_of(kernel: Image) -> Path:
    """Return the file of the cache with the result of the probe. Remove it to have the probe made again."""
    return cache_folder() / f"usermode-probe-{kernel.digest}"


def _failure(guest: Image) -> str:
    try:
        with user_mode(guest, (), Processor.PLAIN) as mode, mode.clone() as machine:
            machine.send({"ping": True})
            machine.receive(_ANSWER_LIMIT_S)
    except (VmError, TimeoutError) as error:
        return f"no user-mode machine answers: {str(error).partition(chr(10))[0][:_SAID_CHARS]}"
    return ""


@cache
def flags() -> frozenset[str]:
    """Return what the host's processor can do."""
    (line, *_) = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")] or [":"]
    return frozenset(line.partition(":")[2].split())


def build(says: Callable[[str], None] = lambda _: None) -> Image:
    """Return the kernel, as an image that has no root disk; build it if the cache has none."""
    kernel = image.build(recipes.recipe(RECIPE), says)
    if _LONG_STATE in flags():
        long_state_library(kernel.folder)
    return kernel


def kernel_environment(folder: Path) -> dict[str, str]:
    """Return the variables that the kernel in a folder has to be started with, in that folder."""
    preloaded = {"LD_PRELOAD": long_state_library(folder)} if _LONG_STATE in flags() else {}
    return {"LD_LIBRARY_PATH": LIBRARIES} | preloaded


def _memory_folder() -> Path:
    """Return the folder for a machine's memory: a file without a name, which grows only as memory is used."""
    return _TMPFS if _TMPFS.is_dir() and free_bytes(_TMPFS) >= _MEMORY_MIB << 20 else cache_folder()
