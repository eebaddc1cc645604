"""Templates: a booted machine saved ready to run, and clones restored from it in a twentieth of a second.

A template is valid for one QEMU, command line, kernel, initrd (with our code) and root disk only, so the cache keeps
it under a digest of all of these. Its RAM is a sparse file that clones map copy-on-write; QEMU's migration saves the
rest. All clones of one template are identical, random numbers included. Two templates of the same digest that were
booted separately differ, so each has an `identity` that is part of every result.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from qemu.qmp import QMPError

import rig
from rig import host
from rig.cache import cache_folder, locked
from rig.contract.errors import VmError
from rig.contract.orders import FAILED, READY
from rig.contract.processors import Processor
from rig.engines import Engine, engines, named
from rig.engines.builds import Library
from rig.machines import argv, cpio, monitor, needs, recipes
from rig.machines.argv import Accelerator, MachineSpec, Plugs, Role
from rig.machines.image import Image
from rig.machines.image import recipe as base_recipe
from rig.machines.machine import Machine, started
from rig.machines.memoryfile import by_descriptor, memory_file
from rig.machines.warmup import warm_orders
from rig.recordings.archive import RECORDING_BYTES

PROGRAM = "qemu-system-x86_64"
# A recorder that starts a database server first takes some 15 s alone, and 130 s beside two machines on two processors.
_BOOT_LIMIT_S = 300
_BOOT_TRIES = 3
_SAVE_LIMIT_S = 60
_RESTORE_LIMIT_S = 30
# Beside the newest: as many as there are images of ours. A recorder's takes some 500 MiB, a verifier's 250.
SPARED_COUNT = 7
# When we see READY, the guest's serial driver is still sending it. Clones of a machine saved at that moment differ.
_SETTLE_S = 0.5
_RAM = "ram"
# In the folder of a template.
IDENTITY, INITRD = "identity", "initrd.cpio"
_NO_RECORDING = "no-recording"
# What a recorder does not touch costs nothing; the longest workload with an unlucky seed needs more than 1280.
_MEMORY_MIB = {Role.RECORDER: 2560, Role.VERIFIER: 640}
_GUEST_CODE = (
    "__init__.py", "contract/*.py", "guest/**/*.py", "engines/*.py", "filesystems/*.py", "trials/*.py",
    "workloads/*.py",
)  # fmt: skip
# Of an engine's package.
_PACKAGE = ("**/*.py", "**/*.so", "**/*.so.*")
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
            memory_file("orders", _padded(orders)) as orders_file,
            open(self.folder / "state", "rb") as state,
            _started(
                self.spec,
                self.folder,
                is_template=False,
                console=by_descriptor(console),
                orders=by_descriptor(orders_file),
                recording=recording or self.folder / _NO_RECORDING,
                pass_fds=[console.fileno(), orders_file.fileno(), state.fileno()],
            ) as machine,
        ):
            try:
                monitor.restore(machine.control, state.fileno(), machine.limit(_RESTORE_LIMIT_S, "restored machine"))
            except (EOFError, OSError, QMPError, TimeoutError) as error:
                raise machine.lost(f"it could not be restored from {self.folder}: {error!r}") from None
            yield machine


@contextmanager
def template(
    role: Role,
    image: Image,
    accelerator: Accelerator = Accelerator.TCG,
    libraries: Sequence[Library] = (),
    processor: Processor = Processor.PLAIN,
) -> Iterator[Template]:
    """Hold a template for the length of a block; boot and save it first if the cache has none.

    `libraries` are copied into the guest with our code, see `rig.engines.builds`, and so are the engines that are
    measured in this image and that the processor can run.
    """
    code = code_archive(libraries, processor, image.digest)
    spec = MachineSpec(role, accelerator, _MEMORY_MIB[role], image.kernel, image.initrd, image.root_disk, processor)
    folder = cache_folder() / "templates" / f"{role}-{_digest(spec, image, code)}"
    spec = replace(spec, initrd=folder / INITRD)
    with in_use(folder, lambda: _save_template(spec, image, code, folder)):
        yield Template(spec, folder, (folder / IDENTITY).read_text())


def answers(role: Role, image: Image, accelerator: Accelerator, limit_s: float) -> None:
    """Boot a machine and discard it; raise VmError or TimeoutError unless it says READY within the limit."""
    folder = cache_folder() / "probe"
    spec = MachineSpec(role, accelerator, _MEMORY_MIB[role], image.kernel, folder / INITRD, image.root_disk)
    with locked(folder):
        # Here if an earlier probe was killed.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            _fill(spec, image, code_archive(), folder)
            with _booted(spec, folder, limit_s):
                pass
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_templates(*, keep: Path | None = None, role: str = "", spared_count: int = 0) -> list[Path]:
    """Remove the templates that are not in use, of one role or of all; return the folders removed.

    The `spared_count` templates used last are kept.
    """
    removed = []
    found = [path for path in (cache_folder() / "templates").glob(f"{role}*-*") if path.is_dir() and path != keep]
    for folder in sorted(found, key=_last_use_ns)[: max(0, len(found) - spared_count)]:
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
        with locked(folder):
            if not (folder / IDENTITY).exists():
                save()


@cache
def qemu_version() -> str:
    """Return the first line of `qemu-system-x86_64 --version`."""
    return host.run([PROGRAM, "--version"], timeout_s=10).decode().splitlines()[0]


def _save_template(spec: MachineSpec, image: Image, code: bytes, folder: Path) -> None:
    # A user alternates among images, and between another build of an engine and the guest's own.
    remove_templates(keep=folder, role=spec.role, spared_count=SPARED_COUNT)
    shutil.rmtree(folder, ignore_errors=True)
    host.require_space(folder, spec.memory_mib << 20, f"a {spec.role} template")
    folder.mkdir()
    _fill(spec, image, code, folder)
    for attempt in range(1, _BOOT_TRIES + 1):
        try:
            with _booted(spec, folder, _BOOT_LIMIT_S) as machine:
                time.sleep(_SETTLE_S)
                monitor.save(machine.control, folder / "state", machine.limit(_SAVE_LIMIT_S, "saved machine"))
            break
        except (VmError, TimeoutError, QMPError, EOFError) as error:
            if attempt == _BOOT_TRIES:
                raise VmError(f"{_BOOT_TRIES} boots of the {spec.role} failed; the last: {error}") from None
            _log.warning("boot %d of the %s failed, trying again: %s", attempt, spec.role, error)
    digest = hashlib.blake2b((folder / "state").read_bytes(), digest_size=8)
    with open(folder / _RAM, "rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
    host.atomic_write(folder / IDENTITY, digest.hexdigest().encode())


def _fill(spec: MachineSpec, image: Image, code: bytes, folder: Path) -> None:
    """Write what a machine boots from: the image's initrd followed by our code, and an empty recording disk."""
    spec.initrd.write_bytes(image.initrd.read_bytes() + code)
    with open(folder / _NO_RECORDING, "wb") as file:
        file.truncate(RECORDING_BYTES)


@contextmanager
def _booted(spec: MachineSpec, folder: Path, limit_s: float) -> Iterator[Machine]:
    """Boot a machine whose RAM is a file in the folder; give it once it has said READY."""
    (folder / _RAM).unlink(missing_ok=True)
    with (
        memory_file("orders", _padded(b"")) as orders,
        _started(
            spec,
            folder,
            is_template=True,
            console=folder / "console",
            orders=by_descriptor(orders),
            recording=folder / _NO_RECORDING,
            pass_fds=[orders.fileno()],
        ) as machine,
    ):
        machine.wait_for_console(READY, FAILED, limit_s)
        yield machine


def _started(
    spec: MachineSpec,
    folder: Path,
    *,
    is_template: bool,
    console: Path,
    orders: Path,
    recording: Path,
    pass_fds: Sequence[int] = (),
) -> AbstractContextManager[Machine]:
    def command(channel_fd: int, monitor_fd: int) -> list[str]:
        plugs = Plugs(folder / _RAM, is_template, console, orders, recording, channel_fd, monitor_fd)
        return argv.argv(PROGRAM, spec, plugs)

    return started(
        command,
        console=console,
        memory_mib=spec.memory_mib,
        one_cpu=spec.role is Role.RECORDER and not is_template,
        pass_fds=pass_fds,
    )


def _padded(orders: bytes) -> bytes:
    if len(orders) > argv.ORDERS_BYTES:
        raise VmError(f"orders of {len(orders)} bytes do not fit into {argv.ORDERS_BYTES}; shorten the settings")
    return orders.ljust(argv.ORDERS_BYTES, b"\0")


def code_archive(
    libraries: Sequence[Library] = (),
    processor: Processor = Processor.PLAIN,
    image_digest: str = "",
    *,
    is_warm: bool = True,
) -> bytes:
    """Return our code as a second archive for an initrd; `is_warm` has the agent load everything before it is ready."""
    root = Path(rig.__file__).parent
    found = sorted(path for pattern in _GUEST_CODE for path in root.glob(pattern))
    code = {f"code/rig/{path.relative_to(root)}": (path.read_bytes(), 0o644) for path in found}
    libraries = sorted(libraries, key=lambda library: library.name)
    served = _served(libraries, processor, image_digest)
    for engine in served:
        code |= _package(engine)
    if is_warm:
        warm = [orders.message for orders in warm_orders(libraries, served)]
        code["code/warm.json"] = (json.dumps(warm, sort_keys=True).encode(), 0o644)
    return cpio.archive(code | {path: entry for one in libraries for path, entry in _with_needs(one).items()})


def _with_needs(library: Library) -> dict[str, tuple[bytes, int]]:
    """Return a build and, if it comes with a user's own recipe, that recipe's name and the files beside the build."""
    found = {f"code/libraries/{library.name}": (library.path.read_bytes(), 0o755)}
    if library.image:
        beside = needs.kept(library.image).files
        found |= {f"code/libraries/{path}": (content, 0o755) for path, content in beside.items()}
        found["code/image"] = (library.image.encode(), 0o644)
    return found


def _served(libraries: Sequence[Library], processor: Processor, image_digest: str) -> list[Engine]:
    """Return the engines of a guest: those of its image that the processor can run, or those that are only a build.

    An image that no engine asks for serves those of the base image, of which it has everything.
    """
    given = [named(name) for name in sorted({library.engine for library in libraries})]
    if alone := [engine for engine in given if engine.spec.needs_build]:
        return alone
    able = [engine for engine in engines() if processor in {Processor.MODERN, engine.spec.processor}]
    own = [engine for engine in able if recipes.serves(image_digest, engine)]
    return own or [engine for engine in able if recipes.of_engine(engine) == base_recipe()]


def _package(engine: Engine) -> dict[str, tuple[bytes, int]]:
    """Return the Python files and native code of an engine's package, and an `__init__.py` for each folder above it."""
    parts = engine.module.split(".")
    found = {}
    for path in sorted(one for pattern in _PACKAGE for one in engine.folder.glob(pattern)):
        found["/".join(["code", *parts, str(path.relative_to(engine.folder))])] = (path.read_bytes(), 0o644)
    for depth in range(1, len(parts)):
        path = engine.folder.parents[len(parts) - depth - 1] / "__init__.py"
        found["/".join(["code", *parts[:depth], "__init__.py"])] = (path.read_bytes() if path.exists() else b"", 0o644)
    return found


def _digest(spec: MachineSpec, image: Image, code: bytes) -> str:
    program = shutil.which(PROGRAM) or PROGRAM
    place = Path("placeholder")
    plugs = Plugs(place, is_template=False, console=place, orders=place, recording=place, channel_fd=0, monitor_fd=0)
    line = argv.argv(program, spec, plugs)
    stamp = subprocess.list2cmdline(line) + image.digest + qemu_version() + str(Path(program).stat().st_mtime_ns)
    return hashlib.blake2b(stamp.encode() + code, digest_size=8).hexdigest()
