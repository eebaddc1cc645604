"""Run a workload in which one kind of sync, or every sync, returns success without effect, as if it were left out.

All syncs are dropped for an engine whose transactions are its own, because nothing can be preloaded into a program that
may be static; then files are also opened without O_SYNC and O_DSYNC. Otherwise the shim `drop-wal-commit`, for example,
drops every sync that the engine's rules name `wal-commit`, from the end of the setup on. In place of each the log gets
a mark `drop-N-T` for transaction N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rig.engines.syncs import Call, CallName
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.programs import workload
from rig.guest.programs.marks import marker
from rig.guest.programs.own import limits_of
from rig.guest.site import LOG, Site
from rig.guest.watch import earlywriteback
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition, supervise, tell


@dataclass
class _Dropping:
    kind: str
    mark: Callable[[str], None]
    count: int = 0

    def on_move(self, place: WorkloadPosition) -> Action:  # noqa: ARG002 - the protocol passes it
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:  # noqa: ARG002 - the protocol passes it
        if place.phase is WorkloadPhase.SETUP or kind != self.kind:
            return Action.CARRY_OUT
        if place.phase is not WorkloadPhase.END:
            self.count += 1
            self.mark(f"drop-{place.number}")
        return Action.PRETEND


@dataclass
class _DroppingAll:
    count: int = 0

    def on_move(self, place: WorkloadPosition) -> Action:  # noqa: ARG002 - the protocol passes it
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:  # noqa: ARG002 - the protocol passes it
        if place.phase is WorkloadPhase.SETUP or call.name not in {CallName.SYNC, CallName.WRITEBACK}:
            return Action.CARRY_OUT
        self.count += 1
        return Action.PRETEND


def run(site: Site) -> dict[str, Any]:
    """Carry out the workload without the syncs named in the orders; raise RuntimeError if it never makes that kind."""
    log = marker(DeviceMapper(), LOG)
    dropped = site.orders.dropped_sync
    watch = _Dropping(dropped, log) if dropped else _DroppingAll()

    def body(send: Callable[[Any], None]) -> None:
        def mark(text: str) -> None:
            log(text)
            tell(text)

        send(workload.run(site, mark))

    below = earlywriteback.beneath(site, watch)
    # Writes are stopped at for the names of syncs, and to write them back.
    writes = bool(dropped) or below is not watch
    ending = supervise(site, body, below, writes=writes, unsynced=not dropped, limits=limits_of(site))
    ending.require("the workload")
    (facts,) = ending.messages
    if dropped and not watch.count:
        raise RuntimeError(f"the shim {site.orders.shim} dropped nothing: no transaction makes a sync of that name")
    return {**facts, "dropped": watch.count}
