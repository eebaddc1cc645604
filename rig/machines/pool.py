"""Clones that outlive their job: a fresh one takes more than half a second of processor time until it is warm.

Translated code, page tables and the guest's caches come with the first crash states, and a job may have few. So a
machine that has answered everything waits for the next job and then gets another recording. A machine is stopped if it
was lost, if it was interrupted in the middle of a job, or if its clock was set.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rig.contract.errors import VmError
from rig.machines.guests import Machines
from rig.machines.machine import Machine


class Clones(Protocol):
    """What machines come from: a template, or a pool of its clones."""

    def clone(self, *, recording: Path | None = None) -> AbstractContextManager[Machine]:
        """Give a machine with a recording for the length of a block."""


class Pool:
    """Machines at rest, for any number of threads."""

    def __init__(self, source: Clones) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._resting: list[tuple[Machine, ExitStack]] = []

    @contextmanager
    def clone(self, *, recording: Path | None = None) -> Iterator[Machine]:
        """Give a machine with a recording for the length of a block: one at rest, or a new one."""
        machine, stack = self._take(recording) or self._new(recording)
        with stack:
            yield machine
            if not machine.is_spent:
                rest = stack.pop_all()
                with self._lock:
                    self._resting.append((machine, rest))

    def close(self) -> None:
        """Stop the machines at rest."""
        with self._lock, ExitStack() as stack:
            while self._resting:
                stack.push(self._resting.pop()[1])

    def _new(self, recording: Path | None) -> tuple[Machine, ExitStack]:
        stack = ExitStack()
        return stack.enter_context(self._source.clone(recording=recording)), stack

    def _take(self, recording: Path | None) -> tuple[Machine, ExitStack] | None:
        """Return a machine at rest, with the recording; None if no machine rests, or if it has died meanwhile."""
        with self._lock:
            if recording is None or not self._resting:
                return None
            machine, stack = self._resting.pop()
        try:
            machine.plug(recording)
        except (VmError, TimeoutError):
            stack.close()
            return None
        return machine, stack


@dataclass(frozen=True)
class Pooled:
    """The pools of the machines of one guest image."""

    checker: Pool
    verifier: Pool

    def close(self) -> None:
        """Stop the machines at rest."""
        self.checker.close()
        self.verifier.close()


class Pools:
    """The pools of each guest image. When another image is asked for, the machines at rest are stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[int, tuple[Machines, Pooled]] = {}

    def of(self, source: Machines) -> Pooled:
        """Return the pools of an image."""
        with self._lock:
            if id(source) not in self._pools:
                self.close()
                self._pools[id(source)] = source, Pooled(Pool(source.checker), Pool(source.verifier))
            return self._pools[id(source)][1]

    def close(self) -> None:
        """Stop the machines at rest."""
        for _, pooled in self._pools.values():
            pooled.close()
