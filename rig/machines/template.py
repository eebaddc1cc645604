"""Templates: a booted machine saved ready to run, and clones restored from it in a twentieth of a second.

A template is valid for one QEMU, command line, kernel, initrd (with our code) and root disk only, so the cache keeps
it under a digest of all of these. Its RAM is a sparse file that clones map copy-on-write; QEMU's migration saves the
rest. All clones of one template are identical, random numbers included. Two templates of the same digest that were
booted separately differ, so each has an `identity` that is part of every result.

Code from outside the project, a user's program for example, does not cost a boot. A clone of the template without that
code gets it (`rig.images.guestcode.addition`) and is saved as another template, under a digest of both.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

from qemu.qmp import QMPError

from rig.contract.errors import HostError, VmError
from rig.contract.orders import ADDED, FAILED, ILLEGAL, READY, Processor
from rig.engines.builds import Library
from rig.host import processes
from rig.host.cache import cache_folder, lock
from rig.host.files import atomic_write, require_space
from rig.images import guestcode
from rig.images.image import Image
from rig.machines import argv, monitor
from rig.machines.argv import Accelerator, MachineSpec, Plugs, Role, Use
from rig.machines.machine import Machine, start
from rig.machines.memoryfile import by_descriptor, memory_file, stored_parts
from rig.recordings.archive import RECORDING_BYTES
from rig.sandbox.sandbox import Sandbox, of_system

PROGRAM = "qemu-system-x86_64"
# A recorder that starts a database server first takes some 15 s alone, and 130 s with two more machines on two
# processors.
_BOOT_LIMIT_S = 300
_BOOT_TRIES = 3
_SAVE_LIMIT_S = 60
_RESTORE_LIMIT_S = 30
# Kept in addition to the newest: as many as the project has images. A recorder's takes some 500 MiB, a verifier's 250.
SPARED_COUNT = 7
# The same for templates with code from outside, which cost no boot.
_SPARED_EXTENDED_COUNT = 3
_EXTENDED = ".extended"
# When we see READY, the guest's serial driver is still sending it. Clones of a machine saved at that moment differ.
_SETTLE_S = 0.5
_RAM = "ram"
# Files in the folder of a template.
_QEMU_OLDEST = (6, 2)
IDENTITY, INITRD, _STATE = "identity", "initrd.cpio", "state"
# Memory that a recorder does not touch costs nothing; the longest workload with an unlucky seed needs more than 1280.
_MEMORY_MIB = {Role.RECORDER: 2560, Role.VERIFIER: 640}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Template:
    """A saved machine."""

    spec: MachineSpec
    folder: Path
    identity: str

    @property
    def image(self) -> str:
        """Return the digest of the guest image that the template was booted from."""
        return self.spec.root_disk.parent.name

    @contextmanager
    def clone(self, *, recording: Path | None = None, orders: bytes = b"") -> Iterator[Machine]:
        """Restore a machine for the length of a block; it continues from the moment of the save."""
        with (
            memory_file("console") as console,
            memory_file("recording", size_bytes=RECORDING_BYTES) as disk,
            _restore(self, Use.CLONE, self.folder, console=console, disk=disk, orders=orders) as machine,
        ):
            if recording:
                machine.plug(recording)
            yield machine


@contextmanager
def template(  # noqa: PLR0917 - all types differ; mypy catches a swap
    role: Role,
    image: Image,
    accelerator: Accelerator = Accelerator.TCG,
    libraries: Sequence[Library] = (),
    processor: Processor = Processor.PLAIN,
    says: Callable[[str], None] = lambda _: None,
) -> Iterator[Template]:
    """Hold a template for the length of a block; boot and save it first if the cache has none.

    `libraries` are copied into the guest with our code, see `rig.engines.builds`, and so are the engines that are
    measured in this image and that the processor can run. `says` takes a line before a machine is booted.
    """
    with ExitStack() as stack:
        made = stack.enter_context(_common(role, image, accelerator, processor, says))
        if added := guestcode.addition(image.digest, libraries, processor):
            made = stack.enter_context(_with(made, added, says))
        yield made


@contextmanager
def _common(
    role: Role, image: Image, accelerator: Accelerator, processor: Processor, says: Callable[[str], None]
) -> Iterator[Template]:
    code = guestcode.common(image.digest, processor)
    spec = MachineSpec(role, accelerator, _MEMORY_MIB[role], image.kernel, image.initrd, image.root_disk, processor)
    folder = _folder(role, _digest(spec, image, code))
    spec = replace(spec, initrd=folder / INITRD)

    def save() -> None:
        _prepare(spec, folder)
        spec.initrd.write_bytes(image.initrd.read_bytes() + code)
        with _say_how_long(
            f"booting a {role} of the image {image.name}, which is kept as a template", f"{role}-boot", says
        ):
            _save(spec, folder, lambda: _boot(spec, folder, _BOOT_LIMIT_S))

    with in_use(folder, save):
        yield Template(spec, folder, (folder / IDENTITY).read_text())


@contextmanager
def _with(base: Template, added: bytes, says: Callable[[str], None]) -> Iterator[Template]:
    """Hold the template of a machine that was restored from `base` and given more."""
    digest = hashlib.blake2b(f"{base.folder.name} {base.identity} ".encode() + added, digest_size=8).hexdigest()
    folder = _folder(base.spec.role + _EXTENDED, digest)
    spec = replace(base.spec, initrd=folder / INITRD)

    def save() -> None:
        _prepare(spec, folder)
        os.link(base.spec.initrd, spec.initrd)
        with _say_how_long(
            f"starting the program or engine once in a {base.spec.role}", f"{base.spec.role}-added", says
        ):
            _save(spec, folder, lambda: _extend(base, added, folder), is_restored=True)

    with in_use(folder, save):
        yield Template(spec, folder, (folder / IDENTITY).read_text())


@contextmanager
def _say_how_long(doing: str, name: str, says: Callable[[str], None]) -> Iterator[None]:
    """Say what is being done and how long it took last time, and note how long it takes."""
    note = cache_folder() / "templates" / f"{name}.seconds"
    last = f"; last time it took {note.read_text()} s" if note.exists() else ""
    says(f"{doing}; its clones then start at once{last}")
    begin_s = time.monotonic()
    yield
    note.write_text(f"{time.monotonic() - begin_s:.0f}")


def _folder(kind: str, digest: str) -> Path:
    return cache_folder() / "templates" / f"{kind}-{digest}"


def answers(role: Role, image: Image, accelerator: Accelerator, limit_s: float) -> None:
    """Boot a machine and discard it; raise VmError or TimeoutError unless it says READY within the limit."""
    folder = cache_folder() / "probe"
    spec = MachineSpec(role, accelerator, _MEMORY_MIB[role], image.kernel, folder / INITRD, image.root_disk)
    with lock(folder):
        # The folder exists if an earlier probe was killed.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            spec.initrd.write_bytes(image.initrd.read_bytes() + guestcode.common(image.digest))
            with _boot(spec, folder, limit_s):
                pass
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_templates(*, keep: Path | None = None, kind: str = "*", spared_count: int = 0) -> list[Path]:
    """Remove the templates that are not in use, of one kind or of all; return the folders removed.

    The `spared_count` templates used last are kept.
    """
    removed = []
    folders = [path for path in (cache_folder() / "templates").glob(f"{kind}-*") if path.is_dir() and path != keep]
    for folder in sorted(folders, key=_last_use_ns)[: max(0, len(folders) - spared_count)]:
        with open(f"{folder}.lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(folder)
            removed.append(folder)
    return removed


def _last_use_ns(folder: Path) -> int:
    lock = Path(f"{folder}.lock")
    return lock.stat().st_mtime_ns if lock.exists() else 0


@contextmanager
def in_use(folder: Path, save: Callable[[], None]) -> Iterator[None]:
    """Save a template if it is missing, and hold a shared lock on it for the length of a block so that it stays."""
    while True:
        # The lock file outlives its template: a process waiting on a removed lock file would end up locking nothing.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if (folder / IDENTITY).exists():
                os.utime(file.fileno())
                yield
                return
        with lock(folder):
            if not (folder / IDENTITY).exists():
                save()


@cache
def qemu_version() -> str:
    """Return the first line of `qemu-system-x86_64 --version`."""
    return processes.run([PROGRAM, "--version"], timeout_s=10).decode().splitlines()[0]


def require_qemu() -> str:
    """Return the version line of QEMU; raise HostError, one line with the fix, if it is missing or too old."""
    version = qemu_version()
    numbers = re.search(r"version (\d+)\.(\d+)", version)
    if not numbers or tuple(map(int, numbers.groups())) < _QEMU_OLDEST:
        oldest = ".".join(map(str, _QEMU_OLDEST))
        raise HostError(f"{version}: older than {oldest}; install qemu-system-x86 of Debian 12 or later")
    return version


def _prepare(spec: MachineSpec, folder: Path) -> None:
    """Make an empty folder for a template."""
    # Some are spared: a user alternates among images, and between another build of an engine and the guest's own.
    kind = folder.name.rpartition("-")[0]
    spared_count = _SPARED_EXTENDED_COUNT if kind.endswith(_EXTENDED) else SPARED_COUNT
    remove_templates(keep=folder, kind=kind, spared_count=spared_count)
    shutil.rmtree(folder, ignore_errors=True)
    require_space(folder, spec.memory_mib << 20, f"a {spec.role} template")
    # Its RAM can be written by any process that reaches it (`Sandbox.open_to_nobody`).
    folder.mkdir(mode=0o700)


def _save(
    spec: MachineSpec, folder: Path, ready: Callable[[], AbstractContextManager[Machine]], *, is_restored: bool = False
) -> None:
    """Save the machine that `ready` gives; try again if that fails."""
    for attempt in range(1, _BOOT_TRIES + 1):
        try:
            with ready() as machine:
                time.sleep(_SETTLE_S)
                limit = machine.limit(_SAVE_LIMIT_S, "saved machine")
                monitor.save(machine.control, folder / _STATE, limit, is_restored=is_restored)
            break
        except (VmError, TimeoutError, QMPError, EOFError) as error:
            # Code that was added to a sound machine, and that its processor cannot run, fails each time.
            if attempt == _BOOT_TRIES or (is_restored and ILLEGAL in str(error)):
                raise VmError(f"{attempt} boots of the {spec.role} failed; the last: {error}") from None
            _log.warning("boot %d of the %s failed, trying again: %s", attempt, spec.role, error)
    atomic_write(folder / IDENTITY, content_digest(folder).encode())


def content_digest(folder: Path) -> str:
    """Return a digest of a saved machine: its state and the pages of its RAM that are not holes."""
    digest = hashlib.blake2b((folder / _STATE).read_bytes(), digest_size=8)
    for offset, part in stored_parts(folder / _RAM):
        digest.update(b"%d " % offset)
        digest.update(part)
    return digest.hexdigest()


@contextmanager
def _boot(spec: MachineSpec, folder: Path, limit_s: float) -> Iterator[Machine]:
    """Boot a machine whose RAM is a file in the folder; give it once it has said READY."""
    with open(folder / _RAM, "wb") as ram:
        ram.truncate(spec.memory_mib << 20)
    with (
        open(folder / "console", "w+b") as console,
        memory_file("recording", size_bytes=RECORDING_BYTES) as disk,
        _start(spec, Use.BOOT, folder, console=console, disk=disk) as machine,
    ):
        machine.wait_for_console(READY, FAILED, limit_s)
        yield machine


@contextmanager
def _extend(base: Template, added: bytes, folder: Path) -> Iterator[Machine]:
    """Restore a machine whose RAM becomes a file in the folder, and add to it; give it once it has said READY again."""
    # Few of its bytes are written, and the holes of a sparse file stay holes.
    processes.run(["cp", "--reflink=auto", str(base.folder / _RAM), str(folder / _RAM)], timeout_s=_SAVE_LIMIT_S)
    message = {ADDED: len(added)}
    with (
        open(folder / "console", "w+b") as console,
        memory_file("added", added, size_bytes=RECORDING_BYTES) as disk,
        _restore(base, Use.EXTEND, folder, console=console, disk=disk, orders=json.dumps(message).encode()) as machine,
    ):
        if base.spec.role is Role.VERIFIER:
            machine.send(message)
        machine.wait_for_console(READY, FAILED, _BOOT_LIMIT_S)
        yield machine


@contextmanager
def _restore(
    saved: Template, use: Use, folder: Path, *, console: BinaryIO, disk: BinaryIO, orders: bytes
) -> Iterator[Machine]:
    with (
        open(saved.folder / _STATE, "rb") as state,
        _start(saved.spec, use, folder, console=console, disk=disk, orders=orders, state=state) as machine,
    ):
        try:
            monitor.restore(machine.control, state.fileno(), machine.limit(_RESTORE_LIMIT_S, "restored machine"))
        except (EOFError, OSError, QMPError, TimeoutError) as error:
            raise machine.loss(f"it could not be restored from {saved.folder}: {error!r}") from None
        yield machine


@contextmanager
def _start(
    spec: MachineSpec,
    use: Use,
    folder: Path,
    *,
    console: BinaryIO,
    disk: BinaryIO,
    orders: bytes = b"",
    state: BinaryIO | None = None,
) -> Iterator[Machine]:
    """Start a machine whose RAM is a file in the folder."""
    with ExitStack() as stack:
        kernel, initrd, root = (
            stack.enter_context(open(path, "rb")) for path in (spec.kernel, spec.initrd, spec.root_disk)
        )
        ram = stack.enter_context(open(folder / _RAM, "r+b"))
        orders_file = stack.enter_context(memory_file("orders", _pad(orders)))
        opened = replace(
            spec, kernel=by_descriptor(kernel), initrd=by_descriptor(initrd), root_disk=by_descriptor(root)
        )
        plugs = (by_descriptor(ram), use, by_descriptor(console), by_descriptor(orders_file), by_descriptor(disk))
        readable = [kernel, initrd, root, orders_file, disk, *([state] if state else [])]
        files = {file.fileno(): "read" for file in readable} | {file.fileno(): "write" for file in (ram, console)}
        yield stack.enter_context(
            start(
                lambda *ends: argv.argv(_program(), opened, Plugs(*plugs, *ends)),
                _sandbox(spec, files),
                console=by_descriptor(console),
                disk=disk,
                one_cpu=spec.role is Role.RECORDER and use is Use.CLONE,
            )
        )


def _sandbox(spec: MachineSpec, files: Mapping[int, str]) -> Sandbox:
    paths, links = of_system(Path(_program()))
    devices = [(str(argv.KVM), str(argv.KVM), "device")] if spec.accelerator is not Accelerator.TCG else []
    return Sandbox("emulator", spec.memory_mib << 20, [*paths, *devices], files, links=links)


def _program() -> str:
    if path := shutil.which(PROGRAM):
        return path
    raise HostError(f"{PROGRAM} is not installed: install the Debian package qemu-system-x86")


def _pad(orders: bytes) -> bytes:
    if len(orders) > argv.ORDERS_BYTES:
        raise VmError(f"orders of {len(orders)} bytes do not fit into {argv.ORDERS_BYTES}; shorten the settings")
    return orders.ljust(argv.ORDERS_BYTES, b"\0")


def _digest(spec: MachineSpec, image: Image, code: bytes) -> str:
    program = shutil.which(PROGRAM) or PROGRAM
    place = Path("placeholder")
    # The image's digest determines these files, wherever the cache is.
    spec = replace(spec, kernel=place, initrd=place, root_disk=place)
    plugs = Plugs(place, Use.CLONE, console=place, orders=place, recording=place, channel_fd=0, monitor_fd=0)
    line = argv.argv(program, spec, plugs)
    stamp = subprocess.list2cmdline(line) + image.digest + qemu_version() + str(Path(program).stat().st_mtime_ns)
    return hashlib.blake2b(stamp.encode() + code, digest_size=8).hexdigest()
