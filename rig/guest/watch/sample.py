"""Sample an engine under supervision: which sync calls its transactions make, and how many calls each makes.

The sample runs on a tmpfs, where a sync is called but has nothing to wait for.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rig.contract.injections import Injection
from rig.contract.orders import Orders, Shim
from rig.engines import load
from rig.engines.syncs import NO_CALLS, Call, Syncs, syncs_of
from rig.guest.programs import workload
from rig.guest.programs.own import limits_of
from rig.guest.site import Site
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition, supervise, tell

_TRANSACTION_COUNT = 12
_FOLDER = Path("/run/sample")


@dataclass
class _Sampling:
    """Collects every call between the beginning of a transaction and its acknowledgement."""

    syncs: Syncs | None
    calls: dict[int, list[Call]] = field(default_factory=dict)

    def on_move(self, place: WorkloadPosition) -> Action:
        if place.phase is WorkloadPhase.COMMIT:
            self.calls[place.number] = []
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:  # noqa: ARG002 - the protocol passes it
        if place.phase is WorkloadPhase.COMMIT:
            self.calls[place.number].append(call)
        return Action.CARRY_OUT

    def sequences(self) -> Counter[str]:
        if self.syncs is None:
            return Counter()
        words = ([self.syncs.word(call) for call in calls] for calls in self.calls.values())
        return Counter(" ".join(filter(None, word)) or NO_CALLS for word in words)


@dataclass(frozen=True)
class Sample:
    """What the transactions of a sample did."""

    # A sequence such as `journal directory journal database unlink` -> how many transactions made it.
    syncs: Mapping[str, int]
    # The supervised calls of each transaction.
    call_counts: tuple[int, ...]


def sample(orders: Orders, folder: Path = _FOLDER, *, writes: bool = False) -> Sample:
    """Carry out a dozen transactions with the engine and settings of a scenario, in their own folder.

    Writes are counted only with `writes`: stopping before each of them takes longer than everything else.
    """
    syncs = syncs_of(load(orders.engine_module))
    tuning = syncs.SAMPLE_TUNING if syncs else {}
    brief = replace(
        orders, settings={**orders.settings, **tuning}, transaction_count=_TRANSACTION_COUNT, think_ms=0, rest_ms=0,
        injection=Injection.NONE, shim=Shim.NONE, neighbour="",
    )  # fmt: skip
    folder.mkdir()
    try:
        site = Site(brief, str(folder))

        def body(send: Callable[[Any], None]) -> None:  # noqa: ARG001 - a sample has nothing to say
            workload.run(site, tell)

        watch = _Sampling(syncs)
        supervise(site, body, watch, writes=writes, limits=limits_of(site)).require("the sample of transactions")
    finally:
        shutil.rmtree(folder)
    return Sample(watch.sequences(), tuple(len(calls) for calls in watch.calls.values()))
