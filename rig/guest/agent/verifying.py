"""The agent of a verifier: warm up, say READY on the console, and answer the requests of the host.

Requests come over the virtio port. In a user-mode machine (`rig.machines.usermode`) the kernel's command line names
other devices: there they come over a serial line, and a request is a line with the place of a message on a disk. A
verifier that is given more code loads that, says READY again, and is saved as another template.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from rig.contract.findings import FindingKind
from rig.contract.messages import decode
from rig.contract.orders import ADDED, ILLEGAL, READY, Orders
from rig.filesystems import default_filesystems
from rig.guest import added, verifier
from rig.guest.agent import channel
from rig.guest.devices.layer import Layer
from rig.guest.judge import Judge
from rig.guest.site import Site
from rig.guest.watch.forks import EngineFailed

# Everything is loaded for the first time, on a host that may be busy. The host has its own limit for booting.
_WARM_PATIENCE = 60
_NOT_OPENED = {FindingKind.UNOPENABLE, FindingKind.DIED, FindingKind.STUCK, FindingKind.OUT_OF_MEMORY}


def serve(port: int) -> None:
    """Warm up, and answer requests without end."""
    # This process and the one that opens databases wake each other. A batch process that wakes waits until the other
    # sleeps: QEMU's counters then show 3.5 changes of address space a state instead of 7.8, and after each of them an
    # emulator looks up anew where pages and translated code are.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    layer, judge = Layer(default_filesystems()[0].disk_mib_min), Judge()
    _warm_verifier(judge)
    verifier.serve(layer, judge, _requests(port, judge), lambda answer: channel.send(port, answer))


def _warm_verifier(judge: Judge) -> None:
    for orders in channel.warm_orders():
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
                channel.send(port, {"pong": True})
            elif ADDED in message:
                added.unpack()
                _warm_verifier(judge)
            # What few machines are asked for is loaded here, because every machine would wait for it when it boots.
            elif "probe" in message:
                from rig.guest import fileprobe

                channel.send(port, {"figures": fileprobe.carry_out(**message["probe"])})
            elif "rehearsal" in message:
                from rig.guest.watch import rehearsal

                channel.send(port, {"steps": rehearsal.steps(decode(Orders, message["rehearsal"]))})
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
