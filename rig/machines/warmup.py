"""Orders that a machine carries out before it is saved as a template, so that clones find all code already loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rig.contract.devices import DEVICES
from rig.contract.injections import Injection
from rig.contract.orders import Orders, Shim
from rig.contract.scenario import DEFAULT_WORKLOAD
from rig.engines import Engine
from rig.engines.builds import Library
from rig.filesystems import FileSystem, Served, default_filesystems, filesystems
from rig.workloads import MEASURED

# A disk on which every operation takes time, so that the warm-up takes every code path.
_DEVICE = DEVICES["hdd7200"]
_TRANSACTION_COUNT, _TRANSACTION_COUNT_OF_LIBRARY = 12, 2


def warm_orders(libraries: Sequence[Library], engines: Sequence[Engine]) -> Iterator[Orders]:
    """Yield a few orders for each engine, each file system, and each kind of build that the user supplied.

    Builds of one kind are opened by the same code and are in memory from the start, so one of each is enough.
    """
    first_filesystem = default_filesystems()[0]
    for engine in engines:
        for name in engine.spec.warm if not engine.spec.needs_build else ():
            for workload in _measured(engine):
                settings = {**_tuning(engine, workload), **engine.spec.settings_named(name)}
                yield _orders(engine, first_filesystem, settings, _TRANSACTION_COUNT, workload)
        for library in _of_each_kind(libraries, engine):
            yield _brief(engine, first_filesystem, library)
    # Variants of one kind differ in words alone. Those whose driver has to be loaded begin in the clone.
    built_in = [one for one in filesystems() if not one.modules and not isinstance(one, Served)]
    of_each_type = {filesystem.kernel_type: filesystem for filesystem in built_in}
    engine = next((engine for engine in engines if engine.spec.is_default), engines[0])
    for filesystem in of_each_type.values():
        needed = _of_each_kind(libraries, engine)[:1] if engine.spec.needs_build else []
        yield _brief(engine, filesystem, *needed)


def _measured(engine: Engine) -> tuple[str, ...]:
    return tuple(name for name in engine.workloads if name in MEASURED) or engine.workloads


def _of_each_kind(libraries: Sequence[Library], engine: Engine) -> list[str]:
    names = sorted(library.name for library in libraries if library.engine == engine.name)
    return list({name.partition("-")[0]: name for name in names}.values())


def _brief(engine: Engine, filesystem: FileSystem, library: str = "") -> Orders:
    workload, named = _measured(engine)[0], engine.spec.settings_named(engine.spec.warm[0])
    settings = {**_tuning(engine, workload), **named, **({"library": library} if library else {})}
    return _orders(engine, filesystem, settings, _TRANSACTION_COUNT_OF_LIBRARY, workload)


def _tuning(engine: Engine, workload: str) -> dict[str, str]:
    return {**engine.spec.tuning, **engine.spec.tuning_of.get(workload, {})}


def _orders(
    engine: Engine,
    filesystem: FileSystem,
    settings: Mapping[str, str],
    transaction_count: int,
    workload: str = DEFAULT_WORKLOAD,
) -> Orders:
    return Orders(
        engine=engine.name, engine_module=engine.module, settings=settings, filesystem=filesystem.word,
        mount_options=filesystem.mount_options, device=_DEVICE, workload=workload,
        transaction_count=transaction_count, think_ms=10, rest_ms=10, shim=Shim.NONE, injection=Injection.NONE, seed=0,
    )  # fmt: skip
