"""Process 1 of the guest: warm up, say READY on the console, wait for orders in the restored clone.

A clone may be given more code before its orders. It loads that, says READY again, and is saved as another template.

A recorder reads its orders from QEMU's firmware configuration, which needs no waiting, so the run begins at the same
instruction in every clone; a byte on a serial line could arrive at any instruction. A verifier talks over the virtio
port. In a user-mode machine (`rig.machines.usermode`) the kernel's command line names other devices; there it talks
over a serial line, and a request is a line with the place of a message on a disk.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import tty
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rig.contract.findings import FindingKind
from rig.contract.injections import LIVE_CUTS, Injection
from rig.contract.messages import decode
from rig.contract.orders import ADDED, FAILED, ILLEGAL, READY, Orders
from rig.engines import load
from rig.filesystems import default_filesystems, filesystem_named
from rig.guest import added, fileprobe, livecuts, recorder, servercrash, speedtrial, verifier
from rig.guest.devices import disks, serving
from rig.guest.devices.layer import Layer
from rig.guest.judge import Judge
from rig.guest.site import Site
from rig.guest.watch import rehearsal
from rig.guest.watch.forks import EngineFailed

# Part of the code archive, see `rig.machines.template`; a machine that is never cloned has no such file.
_WARM_ORDERS = Path("/run/code/warm.json")
_ORDERS = Path("/sys/firmware/qemu_fw_cfg/by_name/opt/rig/orders/raw")
_PADDING = b"\0 \n"
# When a clone begins to run, the host is still busy with the monitor, which shifts the guest's clock by a few
# instructions. This many empty rounds outlast that; all clones then wait for the multiple after next of _MEETING_NS.
_SPIN_ROUNDS = 300_000
_MEETING_NS = 10_000_000_000
# Everything is loaded for the first time, on a host that may be busy. The host has its own limit for booting.
_WARM_PATIENCE = 60
_READ_BYTES = 1 << 20
# Where copies of a label may be: at the beginning, here, and at the end.
_LABEL_BYTES, _LABEL_SPAN_BYTES = 64 << 20, 1 << 21
_NOT_OPENED = {FindingKind.UNOPENABLE, FindingKind.DIED, FindingKind.STUCK, FindingKind.OUT_OF_MEMORY}


def main() -> None:
    """Play the role that the kernel command line names."""
    port = os.open(os.environ.get("RIG_PORT") or _port_node(), os.O_RDWR | os.O_NOCTTY)
    if os.isatty(port):
        tty.setraw(port)
    try:
        if os.environ["RIG_ROLE"] == "recorder":
            _record(port)
        else:
            _verify(port)
    except EngineFailed as error:
        print(error, FAILED, flush=True)
        _send(port, {"failed": str(error)})
    except BaseException:  # noqa: BLE001 - process 1 must not end; it reports any error to the host
        print(traceback.format_exc(), FAILED, flush=True)
        _send(port, {"error": traceback.format_exc()})
    while True:  # process 1 must not end; the host kills the machine
        signal.pause()


def _record(port: int) -> None:
    _read_everything()
    _warm_recorder()
    message = json.loads(first_orders := wait_for_orders(_ORDERS.read_bytes))
    if ADDED in message:
        added.unpack()
        _warm_recorder()
        message = json.loads(wait_for_orders(_ORDERS.read_bytes, first_orders))
    _meet_the_clock()
    if "trial" in message:
        _send(port, speedtrial.answer(**message["trial"]))
        return
    orders = decode(Orders, message)
    # Loaded here, where it is needed: loading it before the save would cost every machine.
    serving.require_modules(filesystem_named(orders.filesystem))
    if orders.injection is Injection.SERVERCRASH:
        record: Callable[[Orders, recorder.Keep], dict[str, Any]] = servercrash.record
    else:
        record = livecuts.record if orders.injection in LIVE_CUTS else recorder.record

    def keep(size: int, chunks: Iterable[bytes]) -> None:
        _send(port, {"part_bytes": size})
        for chunk in chunks:
            _write(port, chunk)

    _send(port, record(orders, keep))


def wait_for_orders(read: Callable[[], bytes], known: bytes = b"") -> bytes:
    """Wait until there are orders other than the known ones, and return them.

    The machine may have been saved in the middle of a read. A clone then reads only the rest: the end of the orders
    without their beginning. So the first read only shows that there are new orders, and a second one reads them.
    """
    while read().strip(_PADDING) in {b"", known}:
        time.sleep(0.01)
    return read().strip(_PADDING)


def _warm_recorder() -> None:
    for orders in _warm_orders():
        try:
            recorder.record(orders, _forget)
        except EngineFailed as error:
            # A user's program may fail; its own recording will report that. Another processor has to be tried first.
            if not load(orders.engine_module).own_driver or ILLEGAL in str(error):
                raise
    print(READY, flush=True)


def _forget(_size: int, chunks: Iterable[bytes]) -> None:
    for _ in chunks:
        pass


def _warm_orders() -> list[Orders]:
    """Return the orders to carry out once before the save: a clone must find all code loaded."""
    messages = json.loads(_WARM_ORDERS.read_text()) if _WARM_ORDERS.exists() else []
    return [decode(Orders, message) for message in messages]


def _meet_the_clock() -> None:
    """Wait for a fixed moment of virtual time, to cancel out whatever happened while the host resumed us."""
    for _ in range(_SPIN_ROUNDS):
        pass
    _sleep_until((time.monotonic_ns() // _MEETING_NS + 2) * _MEETING_NS)


def _sleep_until(moment_ns: int) -> None:
    # The check tells mypy that the guest's Python has timerfd, which the host's oldest Python lacks.
    if sys.version_info >= (3, 13):
        alarm = os.timerfd_create(time.CLOCK_MONOTONIC)
        os.timerfd_settime_ns(alarm, flags=os.TFD_TIMER_ABSTIME, initial=moment_ns)
        os.read(alarm, 8)
        os.close(alarm)
    else:
        raise RuntimeError(f"Python {sys.version} has no timerfd; the guest image needs 3.13 or later")


def _verify(port: int) -> None:
    # This process and the one that opens databases wake each other. A batch process that wakes waits until the other
    # sleeps: QEMU's counters then show 3.5 changes of address space a state instead of 7.8, and after each of them an
    # emulator looks up anew where pages and translated code are.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    layer, judge = Layer(default_filesystems()[0].disk_mib_min), Judge()
    _warm_verifier(judge)
    verifier.serve(layer, judge, _requests(port, judge), lambda answer: _send(port, answer))


def _warm_verifier(judge: Judge) -> None:
    for orders in _warm_orders():
        with tempfile.TemporaryDirectory() as folder:
            # Like a mounted file system: a server that is not root must be able to enter it.
            os.chmod(folder, 0o755)  # noqa: S103 - nobody else is here
            site = Site(orders, folder)
            os.makedirs(site.engine_directory, exist_ok=True)
            judge.patience = 1 if site.is_own else _WARM_PATIENCE
            judge.assign(site)
            finding = judge.judge()
            if finding.kind in _NOT_OPENED and (not site.is_own or ILLEGAL in finding.detail):
                raise EngineFailed(f"{orders.engine} cannot make a database: {finding.kind}: {finding.detail}")
    print(READY, flush=True)


def _read_everything() -> None:
    """Read the whole root file system before the save, since a clone must not read from the host's disk.

    That includes folders and links, because looking for a missing file reads its folder. It includes the places where
    the root disk could have a file system's label, because programs that look for a file system read them on all disks.
    """
    root_disk = os.stat("/").st_dev
    files = []
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == root_disk]
        for path in [os.path.join(folder, name) for name in names]:
            if os.path.islink(path):
                os.readlink(path)
            elif os.path.isfile(path):
                files.append(path)
    # Request all files before waiting for the first; copy nothing.
    with open(os.devnull, "wb") as nowhere:
        for path in files:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        for path in files:
            with open(path, "rb") as file:
                while os.sendfile(nowhere.fileno(), file.fileno(), None, _READ_BYTES):
                    pass
    # No time limit: while the host reads from its disk, the clock of a waiting guest jumps to the next timer.
    subprocess.run(["blkid", "-c", "/dev/null"], capture_output=True, check=False)
    with open(disks.ROOT_DISK, "rb") as disk:
        for begin, whence in ((0, os.SEEK_SET), (_LABEL_BYTES, os.SEEK_SET), (-_LABEL_SPAN_BYTES, os.SEEK_END)):
            disk.seek(begin, whence)
            disk.read(_LABEL_SPAN_BYTES)


def _port_node() -> str:
    for port in Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == "rig":
            return f"/dev/{port.name}"
    raise FileNotFoundError("no virtio port named rig")


def _requests(port: int, judge: Judge) -> Iterator[dict[str, Any]]:
    pending = bytearray()
    while True:
        chunk = os.read(port, 1 << 16)
        if not chunk:  # the host end is closed
            time.sleep(0.01)
        pending += chunk
        while (end := pending.find(b"\n")) >= 0:
            message = json.loads(pending[:end])
            del pending[: end + 1]
            if isinstance(message, list):
                message = json.loads(_read_mail(*message))
            if "ping" in message:
                _send(port, {"pong": True})
            elif ADDED in message:
                added.unpack()
                _warm_verifier(judge)
            elif "probe" in message:
                _send(port, {"figures": fileprobe.carry_out(**message["probe"])})
            elif "rehearsal" in message:
                _send(port, {"steps": rehearsal.steps(decode(Orders, message["rehearsal"]))})
            else:
                yield message


def _read_mail(offset: int, length: int) -> bytes:
    """Return a message from the disk for messages, bypassing the page cache."""
    size = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
    disk = os.open(os.environ["RIG_MAIL"], os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, size) as buffer:
            if os.preadv(disk, [buffer], offset) != size:
                raise OSError(f"the message at {offset} is shorter than {length} bytes")
            return buffer[:length]
    finally:
        os.close(disk)


def _send(port: int, message: dict[str, Any]) -> None:
    _write(port, json.dumps(message).encode() + b"\n")


def _write(port: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(port, view) :]


if __name__ == "__main__":
    main()
