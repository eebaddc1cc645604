"""Run a workload and tell every call of it that writes, makes, removes or syncs a file below the mount point.

After `tell-calls@` the shim may name transactions, such as `16-17`: what changes a file there comes with its stack.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rig.contract.calls import SeenCall
from rig.contract.orders import STACKS_OF, TELL_CALLS
from rig.engines.syncs import Call, CallName
from rig.guest.programs import workload
from rig.guest.programs.own import limits_of
from rig.guest.site import Site
from rig.guest.watch import earlywriteback, stopped
from rig.guest.watch.stacks import interrupted_stack
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition, supervise, tell

_DELETED = " (deleted)"


@dataclass
class Teller:
    """Keeps every call below a directory, after the setup."""

    directory: str
    # The transactions whose calls come with their call stack.
    with_stack: range = range(0)
    calls: list[SeenCall] = field(default_factory=list)
    # Whose memory was looked at, in which transaction; the files that were found in it, in which one.
    _looked_at: set[tuple[int, int]] = field(default_factory=set)
    _mapped: set[tuple[str, int]] = field(default_factory=set)
    # The stack of a thread that makes its call again.
    _stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def on_move(self, place: WorkloadPosition) -> Action:  # noqa: ARG002 - the protocol passes it
        """Take no note."""
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:
        """Keep the call, after the files that its process has mapped into memory."""
        path, new_path = self._relative(call.path), self._relative(call.new_path)
        if place.phase is not WorkloadPhase.SETUP:
            self._note_mapped(place, call, is_telling=path is None or call.name is CallName.SYNC)
        # A call without a path concerns all files.
        if place.phase is not WorkloadPhase.SETUP and (path is not None or not call.path):
            self.calls.append(
                SeenCall(
                    call.name, path or "", new_path or "", call.offset_bytes, call.length_bytes, call.role, kind,
                    call.thread, call.program, place.phase, place.number, time.monotonic_ns(),
                    self._stacks.pop(call.thread, ()),
                )
            )  # fmt: skip
            if call.is_synced:
                self.calls.append(
                    replace(self.calls[-1], name=CallName.SYNC, offset_bytes=-1, length_bytes=-1, stack=())
                )
        return Action.CARRY_OUT

    def _note_mapped(self, place: WorkloadPosition, call: Call, *, is_telling: bool) -> None:
        """Keep the files that a process has mapped, once in each transaction.

        It is looked at before its first call, before syncs, and before it writes elsewhere, as to say what it has done.
        """
        if (call.thread, place.number) in self._looked_at and not is_telling:
            return
        self._looked_at.add((call.thread, place.number))
        for mapped in sorted(stopped.files_in_memory(call.thread)):
            path = self._relative(mapped)
            if path is not None and (path, place.number) not in self._mapped:
                self._mapped.add((path, place.number))
                self.calls.append(
                    SeenCall(
                        CallName.MAP, path, "", -1, -1, "", "", call.thread, call.program, place.phase, place.number,
                        time.monotonic_ns(),
                    )
                )  # fmt: skip

    def interrupts(self, place: WorkloadPosition, call: Call) -> bool:
        """Take the call stack of a call that changes a file, if it is wanted; say whether the call was interrupted."""
        is_wanted = place.number in self.with_stack and place.phase is not WorkloadPhase.SETUP
        is_change = call.name not in {CallName.SYNC, CallName.WRITEBACK} and self._relative(call.path) is not None
        if not (is_wanted and is_change) or call.thread in self._stacks:
            return False
        stack = interrupted_stack(call.thread)
        if stack is None:
            return False
        self._stacks[call.thread] = stack
        return True

    def _relative(self, path: str) -> str | None:
        """Return a path below the directory; None for any other file, such as a pipe."""
        relative = os.path.relpath(path.removesuffix(_DELETED), self.directory) if path.startswith("/") else ".."
        return None if relative.startswith("..") else relative


def run(site: Site) -> dict[str, Any]:
    """Carry out the workload; return its facts and its calls."""
    first, _, last = site.orders.shim.removeprefix(TELL_CALLS).removeprefix(STACKS_OF).partition("-")
    with_stack = range(int(first), int(last) + 1) if last else range(0)
    watch = Teller(site.directory, with_stack)
    body, limits, below = body_of(site), limits_of(site), earlywriteback.beneath(site, watch)
    ending = supervise(site, body, below, details=True, interrupts=watch.interrupts, limits=limits)
    ending.require("the workload")
    (facts,) = ending.messages
    return {**facts, "calls": [asdict(call) for call in watch.calls]}


def body_of(site: Site) -> Callable[[Callable[[Any], None]], None]:
    """Return the workload of a site for `supervise`: a supervisor hears of a commit before it is acknowledged."""

    def watch(log: workload.Mark) -> workload.Mark:
        def mark(text: str) -> None:
            word, _, number = text.partition("-")
            if word == "ack":
                tell(f"committed-{number}")
            log(text)
            tell(text)

        return mark

    return lambda send: send(workload.run_marked(site, watch))
