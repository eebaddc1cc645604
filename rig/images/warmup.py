"""Orders that a machine carries out before it is saved as a template, so that clones find all code already loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rig.contract.devices import DEVICES
from rig.contract.injections import Injection
from rig.contract.orders import Orders, Shim
from rig.contract.scenario import OWN_WORKLOAD
from rig.engines import Engine, engine_named
from rig.engines.builds import Library
from rig.filesystems import default_filesystems
from rig.workloads import MEASURED

# A disk on which every operation takes time, so that the warm-up takes every code path.
_DEVICE = DEVICES["hdd7200"]
# All code is loaded in the first transactions.
_TRANSACTION_COUNT = 2


def warm_orders(libraries: Sequence[Library], engines: Sequence[Engine]) -> Iterator[Orders]:
    """Yield orders in which each engine's settings to warm, its workloads and each kind of build occur.

    Other combinations and other file systems are left out: they load no more code, and each takes a recorder seconds.
    Builds of one kind are opened by the same code and are in memory from the start, so one of each is enough.
    """
    for engine in engines:
        names, workloads = engine.spec.warm, _workloads_of(engine)
        if names and not engine.spec.needs_build:
            for number in range(max(len(names), len(workloads))):
                yield _orders(engine, names[number % len(names)], workloads[number % len(workloads)])
    for engine in [engine_named(name) for name in sorted({library.engine for library in libraries})]:
        for library in _of_each_kind(libraries, engine):
            orders = _orders(engine, engine.spec.warm[0], _workloads_of(engine)[0], library.name)
            yield orders
            if (count := library.client_count) > 1:
                yield replace(orders, workload=OWN_WORKLOAD, client_count=count, transaction_count=2 * count)


def _workloads_of(engine: Engine) -> tuple[str, ...]:
    return tuple(name for name in engine.workloads if name in MEASURED) or engine.workloads


def _of_each_kind(libraries: Sequence[Library], engine: Engine) -> list[Library]:
    own = sorted((library for library in libraries if library.engine == engine.name), key=lambda library: library.name)
    return list({library.name.partition("-")[0]: library for library in own}.values())


def _orders(engine: Engine, name: str, workload: str, library: str = "") -> Orders:
    filesystem = default_filesystems()[0]
    named = engine.spec.settings_named(name)
    settings = {**engine.spec.tuning_under(named, workload), **named, **({"library": library} if library else {})}
    return Orders(
        engine=engine.name, engine_module=engine.module, settings=settings,
        filesystem=filesystem.word, mount_options=filesystem.mount_options, device=_DEVICE, workload=workload,
        transaction_count=_TRANSACTION_COUNT, think_ms=10, rest_ms=10, shim=Shim.NONE, injection=Injection.NONE, seed=0,
    )  # fmt: skip
