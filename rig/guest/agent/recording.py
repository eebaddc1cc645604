"""The agent of a recorder: warm up, say READY on the console, and wait in the restored clone for orders to record.

A clone may be given more code before its orders. It loads that, says READY again, and is saved as another template.
The orders come from QEMU's firmware configuration, which needs no waiting, so the run begins at the same instruction in
every clone; a byte on a serial line could arrive at any instruction.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rig.contract.injections import LIVE_CUTS, Injection
from rig.contract.messages import decode
from rig.contract.orders import ADDED, ILLEGAL, READY, Orders
from rig.engines import load
from rig.filesystems import filesystem_named
from rig.guest import added, livecuts, recorder, servercrash, speedtrial
from rig.guest.agent import channel
from rig.guest.devices import disks, serving
from rig.guest.watch.forks import EngineFailed

_ORDERS = Path("/sys/firmware/qemu_fw_cfg/by_name/opt/rig/orders/raw")
_PADDING = b"\0 \n"
# When a clone begins to run, the host is still busy with the monitor, which shifts the guest's clock by a few
# instructions. This many empty rounds outlast that; all clones then wait for the multiple after next of _MEETING_NS.
_SPIN_ROUNDS = 300_000
_MEETING_NS = 10_000_000_000
_READ_BYTES = 1 << 20
# Where copies of a label may be: at the beginning, here, and at the end.
_LABEL_BYTES, _LABEL_SPAN_BYTES = 64 << 20, 1 << 21


def serve(port: int) -> None:
    """Warm up, and carry out the orders that the clone is given."""
    _read_everything()
    _warm_recorder()
    message = json.loads(first_orders := wait_for_orders(_ORDERS.read_bytes))
    if ADDED in message:
        added.unpack()
        _warm_recorder()
        message = json.loads(wait_for_orders(_ORDERS.read_bytes, first_orders))
    _meet_the_clock()
    if "trial" in message:
        channel.send(port, speedtrial.answer(**message["trial"]))
        return
    orders = decode(Orders, message)
    # Loaded here, where it is needed: loading it before the save would cost every machine.
    serving.require_modules(filesystem_named(orders.filesystem))
    if orders.injection is Injection.SERVERCRASH:
        record: Callable[[Orders, recorder.Keep], dict[str, Any]] = servercrash.record
    else:
        record = livecuts.record if orders.injection in LIVE_CUTS else recorder.record

    def keep(size: int, chunks: Iterable[bytes]) -> None:
        channel.send(port, {"part_bytes": size})
        for chunk in chunks:
            channel.write(port, chunk)

    channel.send(port, record(orders, keep))


def wait_for_orders(read: Callable[[], bytes], known: bytes = b"") -> bytes:
    """Wait until there are orders other than the known ones, and return them.

    The machine may have been saved in the middle of a read. A clone then reads only the rest: the end of the orders
    without their beginning. So the first read only shows that there are new orders, and a second one reads them.
    """
    while read().strip(_PADDING) in {b"", known}:
        time.sleep(0.01)
    return read().strip(_PADDING)


def _warm_recorder() -> None:
    for orders in channel.warm_orders():
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
