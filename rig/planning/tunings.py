"""Tunings that have a word in ids (`rig.engines.Tuning`): where they are measured, and why not elsewhere.

They are not multiplied with the rest of the matrix: only settings with a promise of their own, the default workload and
cuts of one recording. Each tuning has the control of swallowed syncs, and mutants of the syncs that only it makes.

A neighbour has a word in the same place and leaves the engine as it is; the noisy one is measured only if it is named.
So are several clients of a user's program; how many there are follows later (`with_clients`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rig.contract.faultspecs import SPECS
from rig.contract.orders import DROP_PREFIX, Shim
from rig.contract.scenario import CLIENTS, COMPANY_FAULTS, NEIGHBOURS, WRITEBACK, Scenario, is_default, name_of
from rig.engines import Engine, engine_named, settings_name
from rig.engines.own import ClientsDriver
from rig.engines.syncs import kinds
from rig.filesystems import Served, filesystem_named, unsafe

FAULTS = ("oscrash", "powercut", "recoverycut", "torn")
MUTATION_FAULTS = ("powercut", "torn")


def variants(engine: Engine, plain: Scenario) -> Iterable[Scenario]:
    """Yield a scenario once more with each tuning that has a word, its control, and mutants of syncs that are new."""
    spec, name = engine.spec, settings_name(plain.settings)
    is_bare = spec.is_unprotected(plain.settings) or bool(unsafe(plain.filesystem, plain.fault))
    if plain.fault not in FAULTS or not is_default(plain.workload_name) or is_bare or name in spec.same_as:
        return
    is_served = isinstance(filesystem_named(plain.filesystem), Served)
    has_clients = isinstance(engine.own_driver, ClientsDriver)
    for word, faults in COMPANY_FAULTS.items() if not (spec.is_witness or is_served) else ():
        if plain.fault in faults and (word != CLIENTS or has_clients):
            yield replace(plain, tuned=word)
            if name in spec.strict:
                yield replace(plain, tuned=word, shim=Shim.EATMYDATA)
    for word, tuning in spec.tunings.items():
        if tuning.why_not(plain.settings):
            continue
        tuned = replace(plain, tuning={**plain.tuning, **tuning.values}, tuned=word)
        yield tuned
        if name in spec.strict:
            yield replace(tuned, shim=Shim.EATMYDATA)
        if plain.fault in MUTATION_FAULTS:
            usual = kinds(engine, plain.settings)
            new = (kind for kind in kinds(engine, {**tuned.tuning, **tuned.settings}) if kind not in usual)
            yield from (replace(tuned, shim=f"{DROP_PREFIX}{kind}") for kind in new)


def with_clients(scenario: Scenario, count: int) -> Scenario:
    """Return a scenario of several clients with their number, which is part of its id."""
    return replace(scenario, tuned=f"{CLIENTS}{count}", workload=replace(scenario.workload, client_count=count))


def is_nightly(scenario: Scenario) -> bool:
    """Return whether a tuned scenario represents its tuning at night, or is the control of one that does.

    Pages that are written back early are measured at night, too, in plain power cuts.
    """
    if scenario.tuned == WRITEBACK:
        return scenario.fault == "powercut"
    spec = engine_named(scenario.engine).spec
    if scenario.tuned not in spec.tunings:
        return False
    chosen = spec.tunings[scenario.tuned].nightly
    return bool(chosen) and (scenario.shim == Shim.EATMYDATA or settings_name(scenario.settings) in chosen)


def tuning_of(scenario: Scenario, tuning: Mapping[str, str], library: str) -> dict[str, str]:
    """Return the tuning of a scenario, with the options in `tuning` that its engine knows and with the user's build."""
    own = {name: value for name, value in tuning.items() if name in known_options(scenario)}
    build = {"library": library} if library and engine_named(scenario.engine).part("builds") else {}
    return {**scenario.tuning, **own, **build}


def known_options(scenario: Scenario) -> set[str]:
    """Return the tuning options that a scenario's engine knows."""
    tunings = engine_named(scenario.engine).spec.tunings.values()
    return {*scenario.tuning, *(name for tuning in tunings for name in tuning.values)}


def why_not(engine: Engine, wanted: str, fault: str) -> str:
    """Return why an engine is not measured at these settings, tuning included, under this fault.

    Empty if these are not settings with a tuning that has a word, or the fault does not exist.
    """
    spec = engine.spec
    offered = ((settings, word) for settings in spec.all_settings() for word in (*spec.tunings, *NEIGHBOURS))
    meant = (option for option in offered if name_of(option[0], tuned=option[1]) == wanted.partition("+")[0])
    for settings, word in meant if fault in SPECS else ():
        if word not in NEIGHBOURS and (reason := spec.tunings[word].why_not(settings)):
            return f"{engine.name} cannot be measured with {word} at {settings_name(settings)}: {reason}"
        if usual := spec.same_as.get(settings_name(settings)):
            return f"{settings_name(settings)} is the same as {usual}, so {word} is measured only with that"
        if spec.is_unprotected(settings):
            return f"{settings_name(settings)} promises nothing, so it is not measured with {word}"
        faults = COMPANY_FAULTS.get(word, FAULTS)
        if fault not in faults:
            return f"{engine.name} with {word} is measured only under {', '.join(faults)}, not under {fault}"
    return ""
