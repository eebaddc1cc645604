"""The list of scenarios, by the ids that users type, and the profiles that say how closely to look at each."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import filter as matching_names
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Literal

from rig.contract.devices import DEFAULT_DEVICE, DEVICES, Device
from rig.contract.errors import UsageError
from rig.contract.faultspecs import FAULTS, FORGETTING_FAULTS, MAIN_FAULTS, SPECS, FaultClass, exposure_wanted
from rig.contract.injections import Injection
from rig.contract.orders import DROP_PREFIX, Processor, Shim
from rig.contract.scenario import Scenario, WorkloadSpec, is_default
from rig.engines import Engine, Sharing, Spec, engine_named, engines, settings_name
from rig.engines.syncs import kinds
from rig.filesystems import FileSystem, default_filesystems, filesystems, unsafe
from rig.planning import obstacles, tunings
from rig.workloads import Walk, workload_named

# What most people mean when the power goes.
DEFAULT_FAULTS = ("powercut", "torn")
_KNOWN: dict[tuple[str, str], tuple[Scenario, ...]] = {}
# Half of the transactions are killed three times, or more of them less often (`rig.guest.programs.kills`).
_KILLS_OF_TWO_TRANSACTIONS = 3
# Enough kills to see damage in a database that promises nothing when its process dies.
_VOLATILE_KILL_TRANSACTION_COUNT = 68
# A message lists at most this many names.
_CHOICES_MAX = 8


@dataclass(frozen=True)
class Profile:
    """How closely to look at the scenarios."""

    name: str
    transaction_count: int
    # Crash states planned for each scenario, and cut instants spread over its virtual time.
    states_max: int
    instants: int
    # With fewer distinct contents a promise counts as not tested.
    exposure_min: int
    # Which recordings are made twice and compared: "all" without shim or injection, only the first, or none.
    repeats: Literal["all", "first", "none"]
    # Whether the whole matrix is measured if no scenario is named.
    is_whole: bool = True
    # The same for all faults but the main ones; half as many states if there is no promise to break.
    side_transaction_count: int = 40
    side_states_max: int = 160
    kill_transaction_count: int = 68
    # Planned states of each scenario that an independent checker must find legal.
    audit_count: int = 4
    # Under the main faults, the states of a workload that goes through more than the ledger are multiplied by this. A
    # state of an engine that is part of a program takes milliseconds, and the recording seconds.
    wide: int = 3
    # The transactions of several writers are multiplied by this: they make four at a moment, and few moments have a
    # checkpoint.
    crowd: int = 2

    def reproduces(self, scenario: Scenario) -> bool:
        """Return whether the recording of a scenario is made twice even if it is not the first."""
        return self.repeats == "all" and scenario.shim == "none" and not SPECS[scenario.fault].injection

    def transactions_of(self, scenario: Scenario) -> int:
        """Return how many transactions are recorded for a scenario."""
        workload = workload_named(scenario.workload_name)
        wanted = self._requested_count(scenario) * (self.crowd if hasattr(workload, "WRITERS") else 1)
        return min(wanted, workload.TRANSACTIONS_MAX or sys.maxsize)

    def _requested_count(self, scenario: Scenario) -> int:
        if SPECS[scenario.fault].injection is Injection.KILL:
            # More kills than the exposure needs would take long and add little.
            is_volatile = engine_named(scenario.engine).spec.is_volatile(scenario.settings)
            return _VOLATILE_KILL_TRANSACTION_COUNT if is_volatile else self.kill_transaction_count
        is_side = SPECS[scenario.fault].injection or scenario.shim != "none"
        return self.side_transaction_count if is_side else self.transaction_count

    def instants_of(self, scenario: Scenario) -> int:
        """Return how many cut instants are spread over a scenario; mutants get none."""
        return self.instants if scenario.fault == "powercut" and not scenario.dropped_sync else 0

    def exposure_of(self, scenario: Scenario) -> int:
        """Return how many distinct file contents are wanted; 0 where a fixed number of states will do."""
        spec = SPECS[scenario.fault]
        is_dishonest = spec.fault_class is FaultClass.DISHONEST
        is_fixed = is_unprotected(scenario) or is_dishonest or spec.is_unpromised or spec.cuts_recovery
        if is_fixed or scenario.shim != "none" or not spec.model:
            return 0
        return exposure_wanted(self.exposure_min, scenario.fault, self.transactions_of(scenario), is_mutant=False)

    def states_max_of(self, scenario: Scenario) -> int:
        """Return how many crash states are planned for a scenario; for mutants see `rig.planning.cuts`."""
        spec = SPECS[scenario.fault]
        if scenario.dropped_sync:
            return self.side_states_max * 3 // 2
        is_dishonest = spec.fault_class is FaultClass.DISHONEST
        if is_unprotected(scenario) or is_dishonest or spec.is_unpromised or scenario.shim != "none":
            return max(1, self.side_states_max // 2)
        if scenario.fault not in MAIN_FAULTS:
            return self.side_states_max
        return self.states_max * (self.wide if _is_wide(scenario) else 1)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "smoke", 40, states_max=60, instants=20, exposure_min=20, repeats="none", is_whole=False,
            side_states_max=40, kill_transaction_count=24, audit_count=2,
        ),
        Profile("quick", 40, states_max=160, instants=60, exposure_min=60, repeats="first", is_whole=False),
        Profile(
            "nightly", 120, states_max=320, instants=240, exposure_min=200, repeats="all",
            side_states_max=80, kill_transaction_count=202, audit_count=12,
        ),
        Profile(
            "exhaustive", 120, states_max=20000, instants=2000, exposure_min=300, repeats="all",
            side_transaction_count=120, side_states_max=2000, kill_transaction_count=800, audit_count=12, wide=1,
        ),
    )
}  # fmt: skip


def profile(name: str, states: int = 0, transactions: int = 0) -> Profile:
    """Return a profile that plans `states` states at first and records `transactions` (0: its own numbers).

    Side scenarios keep their own number or get more in proportion, and never more than `states`.
    If too few contents are seen, more states follow. Raise UsageError naming the choices.
    """
    if name not in PROFILES:
        raise UsageError(f"unknown profile {name!r}; there are: {', '.join(PROFILES)}")
    base = PROFILES[name]
    if transactions:
        base = replace(base, transaction_count=transactions, side_transaction_count=transactions, crowd=1)
    if not states:
        return base
    return replace(
        base,
        wide=1,
        states_max=states,
        side_states_max=min(states, max(base.side_states_max, base.side_states_max * states // base.states_max)),
        instants=min(base.instants, states),
        kill_transaction_count=min(base.kill_transaction_count, -(-2 * states // _KILLS_OF_TWO_TRANSACTIONS)),
    )


def _is_wide(scenario: Scenario) -> bool:
    """Return whether a workload goes through more phases than the ledger, and more states of it cost little."""
    engine = engine_named(scenario.engine)
    is_quick = engine.own_driver is None and engine.spec.sharing is not Sharing.SERVER
    return is_quick and not is_default(scenario.workload_name)


def all_scenarios() -> list[Scenario]:
    """Return every scenario of the engines that need nothing from the user, sorted by id."""
    return scenarios_of(engines())


def scenarios_of(measured: Iterable[Engine], on: Iterable[FileSystem] | None = None) -> list[Scenario]:
    """Return every scenario of these engines that has an id, on these file systems or on all, sorted by id."""
    pairs = itertools.product(measured, filesystems() if on is None else on)
    return sorted(itertools.chain.from_iterable(itertools.starmap(_of_pair, pairs)), key=attrgetter("id"))


def _of_pair(engine: Engine, filesystem: FileSystem) -> tuple[Scenario, ...]:
    # There are tens of thousands of scenarios, so they are kept; the key is not the name, which engines may share.
    key = (repr(engine), filesystem.word)
    if key not in _KNOWN:
        _KNOWN[key] = tuple(
            scenario
            for fault in FAULTS
            if not obstacles.why_not(engine, filesystem, fault)
            for scenario in _scenarios(engine, filesystem, fault)
        )
    return _KNOWN[key]


def require_measurable(engine: Engine, filesystem: FileSystem, fault: str) -> None:
    """Raise UsageError if there is no such fault, or something keeps it from being measured."""
    if fault not in SPECS:
        raise UsageError(f"unknown fault {fault!r}; {choices(fault, FAULTS)}")
    if reason := obstacles.why_not(engine, filesystem, fault):
        raise UsageError(reason)


def _scenarios(engine: Engine, filesystem: FileSystem, fault: str) -> Iterable[Scenario]:
    """Yield every scenario of an engine on a file system under a fault: plain, sabotaged, or with one sync left out."""
    spec, injection = engine.spec, SPECS[fault].injection
    for settings, workload in itertools.product(spec.all_settings(), engine.workloads):
        if not _is_offered(spec, settings, workload, fault):
            continue
        name = settings_name(settings)
        plain = Scenario(
            engine.name, filesystem.word, settings, fault, spec.tuning_under(settings, workload),
            _options(filesystem, fault), workload=WorkloadSpec(name=workload), engine_module=engine.module,
            processor=Processor(engine.spec.processor),
        )  # fmt: skip
        yield plain
        yield from tunings.variants(engine, plain)
        if filesystem.unsafe.get(fault):
            # There is no promise that a program could break.
            continue
        # Controls: a sync that does nothing must break the promise of strict settings, and a fault that does not
        # affect the engine must break the promise of a program on top of it. A dishonest disk leaves none to break.
        # Under kills, syncs can be swallowed only by supervision, which does not see a descriptor that syncs by itself;
        # a program has no other control.
        is_swallowable = injection is not Injection.KILLCUT or engine.own_driver
        if name in spec.strict and fault in FORGETTING_FAULTS and is_swallowable:
            yield replace(plain, shim=Shim.EATMYDATA)
        for word, program in spec.programs.items():
            if name in program.settings and injection in program.injections:
                yield replace(plain, shim=word)
        # Volatile settings have no promise to break.
        if fault in tunings.MUTATION_FAULTS and not spec.is_volatile(settings) and is_default(workload):
            for kind in kinds(engine, settings):
                yield replace(plain, shim=f"{DROP_PREFIX}{kind}")


def _is_offered(spec: Spec, settings: Mapping[str, str], workload: str, fault: str) -> bool:
    """Return whether an engine's settings are measured with a workload under a fault."""
    # Other workloads roll back, which volatile settings may not be able to, and no injection knows their events.
    if not is_default(workload) and (SPECS[fault].injection or spec.is_volatile(settings)):
        return False
    # In a later life a walk goes on from where the cut left it; the other workloads do not know how.
    is_later = SPECS[fault].later_count > 0
    if is_later and not is_default(workload) and not isinstance(workload_named(workload), Walk):
        return False
    # A kill alone may damage volatile settings, and then nothing goes on.
    if SPECS[fault].injection is Injection.KILLCUT and spec.is_volatile(settings):
        return False
    return spec.skills >= workload_named(workload).NEEDS


def _options(filesystem: FileSystem, fault: str) -> str:
    options = (filesystem.mount_options, filesystem.options_by_fault.get(fault, ""))
    return ",".join(option for option in options if option)


def is_unprotected(scenario: Scenario) -> bool:
    """Return whether nothing is promised for these settings on this file system when the power goes."""
    is_unsafe = bool(unsafe(scenario.filesystem, scenario.fault))
    return is_unsafe or engine_named(scenario.engine).spec.is_unprotected(scenario.settings)


def select(patterns: Sequence[str]) -> list[Scenario]:
    """Return the scenarios whose ids match any of the shell patterns; raise UsageError for one that matches none.

    A tuning with a word is matched only by a pattern that has its dot: `wal_*` means what it did before there was one.
    """
    # Most patterns name one engine on one file system; the scenarios of the others need not be listed.
    pairs = itertools.product(engines(), filesystems())
    named_ones = (pair for pair in pairs if any(_may_name(pattern, *pair) for pattern in patterns))
    scenarios = {
        scenario.id: scenario for scenario in itertools.chain.from_iterable(itertools.starmap(_of_pair, named_ones))
    }
    chosen = set[str]()
    for pattern in patterns:
        has_dot = "." in pattern.split("-", 2)[-1]
        matching = {name for name in matching_names(scenarios, pattern) if has_dot or not scenarios[name].tuned}
        if not matching:
            raise UsageError(_why_none(pattern))
        chosen |= matching
    return [scenarios[name] for name in sorted(chosen)]


def matches(pattern: str, scenario_id: str) -> bool:
    """Return whether a shell pattern means the scenario with an id, which this version may not have."""
    (has_dot, is_tuned) = ("." in text.split("-", 2)[-1] for text in (pattern, scenario_id))
    return bool(matching_names([scenario_id], pattern)) and (has_dot or not is_tuned)


def _may_name(pattern: str, engine: Engine, filesystem: FileSystem) -> bool:
    beginning, literal = f"{engine.name}-{filesystem.word}-", re.split("[*?[]", pattern, maxsplit=1)[0]
    return literal.startswith(beginning) or beginning.startswith(literal)


def configure(
    scenarios: Iterable[Scenario],
    wanted: Profile,
    device: Device = DEVICES[DEFAULT_DEVICE],
    seed: int = 1,
    library: str = "",
    *,
    tuning: Mapping[str, str] | None = None,
    think_ms: int = WorkloadSpec.think_ms,
) -> list[Scenario]:
    """Return the scenarios with what the command line sets for all of them.

    `library` is the user's own build; engines without a module `builds` are unaffected. `tuning` changes what engines
    are tuned with; engines that do not know a setting are unaffected by it, but some engine must know it.
    """
    asked = tuning or {}
    configured = [
        replace(
            scenario,
            workload=replace(scenario.workload, transaction_count=wanted.transactions_of(scenario), think_ms=think_ms),
            device=device,
            seed=seed,
            tuning=tunings.tuning_of(scenario, asked, library),
        )
        for scenario in scenarios
    ]
    for workload in (scenario.workload for scenario in configured):
        if workload.transaction_count < workload.client_count:
            raise UsageError(f"{workload.client_count} clients need at least as many --transactions")
    known = sorted({name for scenario in configured for name in tunings.known_options(scenario)})
    for name in asked:
        if name not in known:
            raise UsageError(f"unknown tuning {name!r}; {choices(name, known)}")
    return configured


def _why_none(pattern: str) -> str:
    """Name the part of an id that does not exist, with the choices for it, or what cannot be combined."""
    parts = pattern.split("-", 2)
    if len(parts) == 3 and (reason := _why_no_part(pattern, *parts)):
        return reason
    # A pattern that names no file system means the ones that are measured by default.
    on = [filesystem for filesystem in filesystems() if filesystem.word in pattern] or default_filesystems()
    ids = [scenario.id for scenario in _near(engines(), on, parts[-1])]
    inside = [f"*{pattern}*"] if any(fnmatchcase(name, f"*{pattern}*") for name in ids) else []
    guess = (inside or get_close_matches(pattern, ids, 1) or ids)[0]
    all_of_them = "`rig plan '*'` lists them all, '*.*' those with a tuning"
    return f"no scenario matches {pattern!r}; did you mean {guess!r}? {all_of_them}"


def _why_no_part(pattern: str, engine_word: str, filesystem_word: str, rest: str) -> str:
    settings, _, fault = rest.rpartition("_")
    meant = [engine for engine in engines() if fnmatchcase(engine.name, engine_word)]
    on = [filesystem for filesystem in filesystems() if fnmatchcase(filesystem.word, filesystem_word)]
    names = sorted(
        {scenario.settings_name for scenario in _near(meant, on, settings)}, key=lambda name: (len(name), name)
    )
    reasons = (
        *(tunings.why_not(engine, settings, fault) for engine in meant),
        _unknown("engine", engine_word, pattern, [engine.name for engine in engines()]),
        _unknown("file system", filesystem_word, pattern, [filesystem.word for filesystem in filesystems()]),
        _unknown("settings", settings or "*", pattern, names),
        _unknown("fault", fault, pattern, FAULTS),
        *(obstacles.why_not(*pair, fault) for pair in itertools.product(meant, on) if fault in SPECS),
    )
    return next(filter(None, reasons), "")


def _near(meant: Iterable[Engine], on: Iterable[FileSystem], settings: str) -> list[Scenario]:
    return [scenario for scenario in scenarios_of(meant, on) if not scenario.tuned or "." in settings]


def _unknown(what: str, word: str, pattern: str, known: Sequence[str]) -> str:
    if any(fnmatchcase(name, word) for name in known):
        return ""
    return f"unknown {what} {word!r} in {pattern!r}; {choices(word, known)}"


def choices(word: str, known: Sequence[str]) -> str:
    """Say what word may have been meant, then list the known words: all, or the most similar ones."""
    near = get_close_matches(word, known, 1)
    guess = f"did you mean {near[0]}? " if near else ""
    shown = get_close_matches(word, known, _CHOICES_MAX, cutoff=0) if near else known[:_CHOICES_MAX]
    more = len(known) - len(shown)
    return f"{guess}there are: {', '.join(shown)}" + (f", and {more} more: `rig plan '*'`" if more else "")
