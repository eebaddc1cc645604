"""Error faults, life by life: each time the database is reopened, another process starts.

Each opening has a life of its own (`rig.guest.programs.survivor`): a fork, so that nothing the engine held survives.
The process that forks them never opens the database. A life that the engine ends is a live finding of that kind,
`died-N.I`, `stuck-N.I` or `out-of-memory-N.I`, and the next life reopens the database.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

from rig.contract.findings import Finding
from rig.engines import Database, load
from rig.guest.devices import mounts
from rig.guest.programs.outage import Outage
from rig.guest.programs.survivor import OPENINGS_MAX, State, Survivor, enduring_driver, note
from rig.guest.site import Site
from rig.guest.watch.forks import Ending, Fork, Send
from rig.guest.watch.patience import OF_A_WORKLOAD

# A life is stuck once it has computed this many times as long as a crash state may take, or has lasted `_LIFE_S`.
_PATIENCE = 6
_LIFE_S = 1200
# Often enough that a process cannot take all memory in between.
_LOOK_S = 0.25


def run(site: Site, mark: Callable[[str], None], steps: Steps) -> State:
    """Carry out the workload, life by life; return its last state, with the live findings."""
    state, life_count, mended = State(), 0, ""
    processor_s = _PATIENCE * load(site.orders.engine_module).spec.state_limit_s
    limits = replace(OF_A_WORKLOAD, processor_s=processor_s, wall_s=_LIFE_S, look_s=_LOOK_S)
    while not state.has_ended:
        if state.error and not state.opening_count:
            mended = mend(site)
        life_count += 1
        ending = Fork(partial(_live, site, mark, steps, state, mended, life_count), limits).wait()
        state = State(**ending.messages[-1]) if ending.messages else state
        if ending.failure and state.settings:
            _grieve(site, mark, steps, state, ending)
        else:
            ending.require("the workload")
    return state


@dataclass(frozen=True)
class Steps:
    """What a workload does besides its transactions."""

    # Make the database and everything durable; return it and its settings.
    set_up: Callable[[], tuple[Database, dict[str, str]]]
    # Pause for some milliseconds.
    think: Callable[[float], None]


def _live(  # noqa: PLR0917 - all types differ; mypy catches a swap
    site: Site, mark: Callable[[str], None], steps: Steps, state: State, mended: str, number: int, send: Send
) -> None:
    """Live from an opening to the end, or to the next error that makes the program reopen the database."""
    pause = random.Random(f"think {site.orders.seed}" + (f" {number}" if number > 1 else ""))

    def think() -> None:
        steps.think(pause.uniform(0, 2 * site.orders.think_ms))

    survivor = Survivor(site, mark, think, state, lambda: send(asdict(state)))
    if not state.settings:
        database, state.settings = steps.set_up()
        survivor.begin(database)
    elif not survivor.reopen(mended):
        return
    if survivor.run():
        _end(site, mark, steps, state)
        survivor.save()
        survivor.close()


def _end(site: Site, mark: Callable[[str], None], steps: Steps, state: State) -> None:
    steps.think(site.orders.rest_ms)
    mark("end")
    state.has_ended = True


def _grieve(site: Site, mark: Callable[[str], None], steps: Steps, state: State, ending: Ending) -> None:
    """Note that the engine ended a life; the next life reopens the database unless the workload is over."""
    assert ending.failure
    if state.struck_at:
        Outage(site, enduring_driver(site), mark, state).end()
    if state.opening_count:
        # The cause of the failed opening may be gone, so try again.
        state.is_over = state.opening_count >= OPENINGS_MAX
        if state.is_over:
            note(state, "reopen", Finding(ending.failure, detail=ending.why), state.error)
            _end(site, mark, steps, state)
        return
    place = f"in transaction {state.due}" if state.is_under_way else f"after transaction {state.due - 1}"
    if state.is_under_way:
        mark(f"fail-{state.issued}")
        state.is_under_way = False
    note(state, str(ending.failure), Finding(ending.failure, detail=f"{place} the engine {ending.why}"), "")
    # A second end at the same transaction: no later one would ever be reached.
    state.is_over = state.grieved_at == state.due
    state.grieved_at, state.error = state.due, f"the engine {ending.why}"
    if state.is_over and not state.has_ended:
        _end(site, mark, steps, state)


def mend(site: Site) -> str:
    """Unmount, repair and mount a file system that takes no more writes; return what was done, or an empty string."""
    if is_writable(site.directory):
        return ""
    filesystem = site.filesystem
    mounts.release(site.directory)
    result = filesystem.repair(site.device)
    mounts.mount(site.device, filesystem.kernel_type, site.orders.mount_options, site.directory)
    return f"mounted again after {result}"


def is_writable(directory: str) -> bool:
    """Return whether the file system still takes writes."""
    # A file system that has shut down may not report itself as read-only (Linux 6.12), so try a write.
    path = os.path.join(directory, "probe")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        os.unlink(path)
    except OSError:
        return False
    return True
