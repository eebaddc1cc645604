"""A server that loses power and comes back, while its client and the program on it live on: `servercrash`.

The workload runs on a client. In the middle of it the network goes down, then the disk of the server fails and loses
its cache, as under `livecut-cache`. The server forgets everything; its file system is mounted again, which recovers
it, and the server starts anew. The program on the client has only waited. The client still has everything that the
server had not committed, and sends it again. So in the end nothing may be missing that was acknowledged to the program,
synced or not. Only a server that reported data as committed before it was (the export option `async`) loses data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.contract.orders import Orders
from rig.filesystems import Served
from rig.guest import livecuts, recovery
from rig.guest.devices import disks, mounts
from rig.guest.devices.devicemapper import DeviceMapper, Target
from rig.guest.devices.stack import CUT, DELAY, Stack, build_stack, delaying, disks_in_ram
from rig.guest.programs.marks import marker
from rig.guest.recorder import Keep
from rig.guest.site import LOG, Site, filesystem_of
from rig.guest.watch.forks import Fork

_EXPORTED = Path("/run/exported")
# The remains of the disk after the crash; one process writes them, another reads them.
_LEFT = Path("/run/left")


@dataclass(frozen=True)
class _Server:
    """The server of one round."""

    filesystem: Served
    site: Site
    stack: Stack

    def come_back(self) -> None:
        """Stop what is left of the server, power its disk off and on, and start it again."""
        mapper, stack = DeviceMapper(), self.stack
        sector_count = disks.sector_count(stack.delayed)
        self.filesystem.stop()
        mounts.unmount(str(_EXPORTED))
        # A disk cannot lose power while a device above has it open.
        mapper.swap(DELAY.format(0), Target("error", "", sector_count), unsynced=True)
        disks.cycle_power(stack.disk)
        _LEFT.write_bytes(b"".join(livecuts.chunks(stack.disk)))
        mapper.swap(DELAY.format(0), delaying(stack.disk, self.site.orders.device, sector_count), unsynced=True)
        mapper.swap(CUT, Target("linear", f"{stack.delayed} 0", sector_count), unsynced=True)
        _mount(self.site.orders, stack.top)
        self.filesystem.revive(str(_EXPORTED))


def record(orders: Orders, keep: Keep) -> dict[str, Any]:
    """Record several rounds, each with a crash of the server; send and return what `livecuts.record` does."""
    return livecuts.record(orders, keep, _carry_out)


def _carry_out(orders: Orders, number: int, parts: list[bytes]) -> dict[str, Any]:
    mapper, filesystem = DeviceMapper(), filesystem_of(orders)
    if not isinstance(filesystem, Served):
        raise TypeError(f"{filesystem.word} has no server")
    with disks_in_ram(1):
        with build_stack(mapper, orders.device, size_mib=filesystem.disk_mib_min, can_cut=True) as stack:
            filesystem.make(stack.top)
            made_as = filesystem.made_as(stack.top)
            _EXPORTED.mkdir(exist_ok=True)
            _mount(orders, stack.top)
            disks.settle(stack.top)
            filesystem.serve(str(_EXPORTED), mounts.MOUNT_POINT)
            read_back = {"format": made_as, "mount": filesystem.mounted_with(stack.top)}
            site = Site(orders, mounts.MOUNT_POINT, stack.top)
            server = _Server(filesystem, site, stack)
            round_ = livecuts.CutRound(number, site, stack, filesystem.isolate, server.come_back)
            ending = Fork(partial(livecuts.run, round_)).wait()
            if ending.exit_code:
                # A mapped file may have become shorter on a server that has lost data.
                _mark_the_end(mapper, livecuts.together(ending.messages))
            mounts.release(mounts.MOUNT_POINT)
            filesystem.stop()
            mounts.unmount(str(_EXPORTED))
        facts = livecuts.together(ending.messages)
        if "counts" not in facts:
            ending.require(f"the workload whose server lost power (round {number})")
        parts += [recovery.content(stack.log_disk), _LEFT.read_bytes()]
        finding = (
            Finding(FindingKind.DIED, detail=ending.why) if ending.exit_code else livecuts.judge_disk(stack.disk, site)
        )
        # The errors that the engine raised are part of what the program met.
        words = "; ".join(filter(None, [finding.detail, facts["words"]]))
        facts["finding"] = asdict(replace(finding, detail=words))
    return facts | {"filesystem": read_back}


def _mount(orders: Orders, device: str) -> None:
    mounts.mount(device, filesystem_of(orders).kernel_type, orders.mount_options, str(_EXPORTED))


def _mark_the_end(mapper: DeviceMapper, facts: Mapping[str, Any]) -> None:
    """Mark the log as the workload would have marked it if it had not died."""
    mark = marker(mapper, LOG)
    if begun := facts.get("begun"):
        mark(f"fail-{begun}")
    mark("end")
