"""An engine: a package with a spec (data), a driver, and optional parts.

`spec.SPEC` is a `Spec`. `driver.open_database` opens a database. The host imports the driver too, so a driver imports
modules that only the guest has inside functions. Optional: `syncs` knows the engine's system calls
(`rig.engines.syncs`), `roles` what is in its files (`rig.engines.roles`), `stock` its own tools (`rig.engines.stock`),
and `builds`, which stays on the host, finds the user's own builds (`rig.engines.builds`).
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

from rig.contract.orders import Processor
from rig.contract.scenario import OWN_WORKLOAD
from rig.engines.databases import Database, Driver, EnduringDriver
from rig.engines.own import OwnDriver
from rig.workloads import NAMES
from rig.workloads.events import EventKind
from rig.workloads.operations import Skill


class Sharing(StrEnum):
    """How several connections write to a database at a time."""

    # One connection at a time.
    NONE = "none"
    # Several processes open it, each by itself; its databases are `ReadableDatabase`s.
    PROCESSES = "processes"
    # Threads of one process use one open database, which is a `ReadableDatabase`.
    THREADS = "threads"
    # The engine is a server; its driver is a `ServingDriver`.
    SERVER = "server"


@dataclass(frozen=True)
class ControlProgram:
    """A control: a program on top of the engine that, under some faults, breaks what the engine keeps."""

    # The module with its own `open_database`, see `Driver`.
    module: str
    # The injections and the settings under which the program is run.
    injections: tuple[str, ...]
    settings: tuple[str, ...]


Choices = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Tuning:
    """Tuning values that have a word of their own in ids, for example `page512` in `wal_full.page512`."""

    values: Mapping[str, str]
    # setting -> choice -> why these values have no effect there, as the end of a sentence; such a pair is not measured.
    pointless: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Settings, by name, that are measured with this tuning at night even if no scenario is named.
    nightly: tuple[str, ...] = ()

    def why_not(self, settings: Mapping[str, str]) -> str:
        """Return why these values have no effect under these settings; empty if they have one."""
        reasons = (self.pointless.get(name, {}).get(value, "") for name, value in settings.items())
        return next(filter(None, reasons), "")


@dataclass(frozen=True)
class Spec:
    """What the rig must know about an engine before anything runs; all in the engine's own words."""

    name: str
    # setting -> its choices; their values, in this order, make the settings part of a test id. The last setting says
    # how much is synced, and its choices begin with the weakest.
    settings: Choices
    # setting -> default, for settings that matter to an experiment but are not part of its id.
    tuning: Mapping[str, str] = field(default_factory=dict)
    # Pattern of settings and a workload, as in ids (`wal_*.life`) -> the same for these; a later pattern wins.
    tuning_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Word in ids -> other values of tuning, and of settings that have no default here because they are seldom named.
    tunings: Mapping[str, Tuning] = field(default_factory=dict)
    # What its transactions can do besides changing rows ...
    skills: frozenset[Skill] = frozenset()
    # ... and which events it knows, each with its variants in the engine's own words; ("",) if there is only one.
    events: Mapping[EventKind, tuple[str, ...]] = field(default_factory=dict)
    # Situations that its transactions and events can bring about, and that an opening can meet after a cut, in a few
    # words each. The report counts them and so shows which were never reached. See `ObservantDatabase` and
    # `ObservantDriver`.
    situations: tuple[str, ...] = ()
    met: tuple[str, ...] = ()
    # setting -> the choices under which the engine promises nothing when the power goes ...
    unprotected: Choices = field(default_factory=dict)
    # ... and those under which it promises nothing even when only its process dies.
    volatile: Choices = field(default_factory=dict)
    # Whether the settings are ways to do the same thing, so that their speeds can be compared.
    are_alternatives: bool = True
    # Settings documented as equal to others: name in ids -> name in ids.
    same_as: Mapping[str, str] = field(default_factory=dict)
    # Settings that promise to lose nothing. If syncs do nothing, these must lose something.
    strict: tuple[str, ...] = ()
    # Settings that are measured under every fault, even if they promise nothing. The rig's own cross-checks use them.
    cross_checks: tuple[str, ...] = ()
    # Name of a shim -> the program that is run in place of the engine.
    programs: Mapping[str, ControlProgram] = field(default_factory=dict)
    # Whether what the engine shows when it is opened depends only on the names, bytes and modes of its files and on the
    # clock. Then one opening answers for all crash states with the same file content; otherwise each state is opened.
    depends_on_files_alone: bool = True
    # If opening, checking, reading and closing one crash state takes more than this processor time, in seconds of an
    # emulated guest, the state counts as stuck. An engine that sleeps has three times as long.
    state_limit_s: int = 10
    # How many files it may have at a time: some file systems fix their room for files when they are made. 0 for an
    # engine that has a few dozen at most.
    file_count: int = 0
    # "modern" for an engine with native code that is built for SSE4, AVX or BMI; the guests are a tenth slower then.
    processor: str = Processor.PLAIN
    # Whether a fork of a process that has opened a database can open it again. An engine's threads do not survive the
    # fork, and the engine waits for them for ever. If False, no workload lets another process commit.
    survives_fork: bool = True
    # Whether its data files grow at a checkpoint, if it has any, and not when a row is written.
    grows_at_checkpoint: bool = True
    # Fault -> why the engine cannot meet it, as the end of a sentence; such a fault is not measured.
    immune: Mapping[str, str] = field(default_factory=dict)
    # True if it is no database: data that it loses after a sync was lost by the file system
    # (`rig.analysis.judging.blame`).
    is_witness: bool = False
    # How several connections write and read at a time; if they cannot, the reason, as the end of a sentence.
    sharing: Sharing = Sharing.NONE
    alone_because: str = "one process at a time opens its database"
    # For an engine with transactions of its own: workloads besides `own`; whether it says which transactions failed.
    own_workloads: tuple[str, ...] = ()
    says_failures: bool = False
    # Whether it is measured if no scenario is named.
    is_default: bool = True
    # Whether there is nothing to measure until the user gives a build (`rig.engines.builds`).
    needs_build: bool = False
    # Settings that run once before a template is saved; together they must do everything that any setting does.
    warm: tuple[str, ...] = ()

    def all_settings(self) -> Iterator[dict[str, str]]:
        """Yield every combination of choices."""
        for values in itertools.product(*self.settings.values()):
            yield dict(zip(self.settings, values, strict=True))

    def settings_named(self, name: str) -> dict[str, str]:
        """Return the settings with this name in ids; raise KeyError for an unknown name."""
        return {settings_name(settings): settings for settings in self.all_settings()}[name]

    def tuning_under(self, settings: Mapping[str, str], workload: str) -> dict[str, str]:
        """Return what the engine is tuned with under these settings and this workload."""
        name = f"{settings_name(settings)}.{workload}"
        tuning = dict(self.tuning)
        for pattern, values in self.tuning_of.items():
            if fnmatchcase(name, pattern):
                tuning |= values
        return tuning

    def is_unprotected(self, settings: Mapping[str, str]) -> bool:
        """Return whether the engine promises nothing under these settings when the power goes."""
        return _is_among(settings, self.unprotected)

    def is_volatile(self, settings: Mapping[str, str]) -> bool:
        """Return whether the engine promises nothing under these settings even when only its process dies."""
        return _is_among(settings, self.volatile)


def settings_name(settings: Mapping[str, str]) -> str:
    """Return settings as spelled in ids, for example `wal_normal`."""
    return "_".join(settings.values())


def _is_among(settings: Mapping[str, str], choices: Choices) -> bool:
    return any(settings.get(name) in values for name, values in choices.items())


@dataclass(frozen=True)
class Engine:
    """An engine's package; only its spec has been imported."""

    # The dotted name of the package.
    module: str
    spec: Spec

    @property
    def name(self) -> str:
        """Return the word in ids."""
        return self.spec.name

    @property
    def folder(self) -> Path:
        """Return the folder of the package."""
        package = importlib.util.find_spec(self.module)
        assert package
        assert package.origin
        return Path(package.origin).parent

    def driver(self, shim: str = "") -> Driver:
        """Return the engine's driver, or the driver of the program that replaces the engine under this shim."""
        module = self.driver_module(shim)
        if not isinstance(module, Driver):
            raise TypeError(f"{module.__name__} has no open_database; see docs/extend/engine.md")
        return module

    def driver_module(self, shim: str = "") -> ModuleType:
        """Return the module `driver`, whatever it can do."""
        program = self.spec.programs.get(shim)
        return importlib.import_module(program.module if program else f"{self.module}.driver")

    @property
    def own_driver(self) -> OwnDriver | None:
        """Return the driver if the engine's transactions are its own, else None."""
        module = self.driver_module()
        return module if isinstance(module, OwnDriver) else None

    @property
    def workloads(self) -> tuple[str, ...]:
        """Return the names of the workloads that the engine may be measured with."""
        return (OWN_WORKLOAD, *self.spec.own_workloads) if self.own_driver else NAMES

    def part(self, name: str) -> object | None:
        """Return a module of the package, for example `syncs`, or None if the package lacks it."""
        full = f"{self.module}.{name}"
        return importlib.import_module(full) if importlib.util.find_spec(full) else None

    @property
    def endures_errors(self) -> bool:
        """Whether the engine can be measured under error faults."""
        return self.spec.says_failures or isinstance(self.driver_module(), EnduringDriver)


def load(module: str) -> Engine:
    """Return the engine of a package; raise TypeError if it has no spec."""
    spec = getattr(importlib.import_module(f"{module}.spec"), "SPEC", None)
    if not isinstance(spec, Spec):
        raise TypeError(f"{module}.spec has no SPEC that is a rig.engines.Spec; see docs/extend/engine.md")
    if spec.processor not in list(Processor):
        raise TypeError(f"{module}.spec asks for a processor {spec.processor!r}; there are: {', '.join(Processor)}")
    return Engine(module, spec)


def opener(module: str, settings: Mapping[str, str], shim: str, directory: str) -> Callable[[], Database]:
    """Return a function that opens the database in a directory in the same way as the program of a scenario."""
    driver = load(module).driver(shim)
    return lambda: driver.open_database(directory, settings)
