"""The cells there are, by the ids that users type, and the profiles that say how closely each is looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from rig import engines
from rig.contract.arms import CLOCK_FAULTS, FAULTS, FORGETTING_FAULTS, MAIN_FAULTS, SPECS, Arm
from rig.contract.errors import UsageError
from rig.contract.scenario import DROP_PREFIX, DeviceProfile, FileSystem, Scenario, Shim, Workload
from rig.engines.engine import NAMES as ENGINES
from rig.engines.syncs import kinds

_DEFAULT_FAULTS = ("powercut", "torn")
_BARE_FAULTS = (*_DEFAULT_FAULTS, "processkill")
_CONTROL_SETTINGS = ("delete_off", "wal_off")
_MUTATION_FAULTS = ("powercut", "torn")
# Enough to see a database without a journal on disk come back damaged.
_VOLATILE_KILL_TRANSACTION_COUNT = 34
_CROSS_CHECK_SETTINGS = ("delete_full", "wal_full", *_CONTROL_SETTINGS)
# EXTRA is documented to be FULL in these modes, and each recording shows that it makes the same syncs.
_SAME_AS_FULL = ("truncate_extra", "persist_extra", "wal_extra")
# Names of which a message lists so many.
_CHOICES_MAX = 8
_DEFAULT_JOURNAL_MODES = ("delete", "truncate", "persist", "wal")


@dataclass(frozen=True)
class Profile:
    """How closely the cells are looked at."""

    name: str
    transaction_count: int
    # Crash states planned for each cell, and cut instants spread over its virtual time.
    states_max: int
    instants: int
    # Distinct contents below which a promise counts as not tested.
    exposure_min: int
    # Whether every plain recording, under no shim or injection, is made twice and compared, or only the first.
    reproduce_all: bool
    # Whether every cell there is belongs to it when none is named.
    is_whole: bool = True
    # The same for all but the main faults; half as many states where there is no promise to break.
    side_transaction_count: int = 40
    side_states_max: int = 160
    kill_transaction_count: int = 34
    # Planned states of each cell that an independent checker has to find legal.
    audit_count: int = 4

    def reproduces(self, cell: Scenario) -> bool:
        """Return whether the recording of a cell is made twice wherever it stands among the others."""
        return self.reproduce_all and cell.shim == "none" and not SPECS[cell.fault].injection

    def transactions_of(self, cell: Scenario) -> int:
        """Return how many transactions are recorded for a cell."""
        if SPECS[cell.fault].injection == "kill":
            # Three kills each: more transactions than the exposure asks for would take long, and tell little.
            is_promised = cell.settings.get("journal_mode") in _DEFAULT_JOURNAL_MODES
            return self.kill_transaction_count if is_promised else _VOLATILE_KILL_TRANSACTION_COUNT
        is_side = SPECS[cell.fault].injection or cell.shim != "none"
        return self.side_transaction_count if is_side else self.transaction_count

    def instants_of(self, cell: Scenario) -> int:
        """Return how many cut instants are spread over a cell; how long a mutant is at risk is nobody's question."""
        return self.instants if cell.fault == "powercut" and not cell.dropped_sync else 0

    def states_max_of(self, cell: Scenario) -> int:
        """Return how many crash states are planned for a cell; those of a mutant see `rig.planning.cuts`."""
        spec = SPECS[cell.fault]
        if cell.dropped_sync:
            return self.side_states_max * 3 // 2
        if is_unprotected(cell) or spec.arm is Arm.DISHONEST or spec.is_unpromised or cell.shim != "none":
            return max(1, self.side_states_max // 2)
        return self.states_max if cell.fault in MAIN_FAULTS else self.side_states_max


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", 40, states_max=160, instants=60, exposure_min=100, reproduce_all=False, is_whole=False),
        Profile(
            "nightly",
            120,
            320,
            240,
            exposure_min=300,
            reproduce_all=True,
            side_states_max=80,
            kill_transaction_count=101,
            audit_count=12,
        ),
        Profile(
            "exhaustive",
            120,
            20000,
            2000,
            exposure_min=300,
            reproduce_all=True,
            side_transaction_count=120,
            side_states_max=2000,
            kill_transaction_count=400,
            audit_count=12,
        ),
    )
}


def profile(name: str) -> Profile:
    """Return a profile; raise UsageError naming the choices."""
    if name not in PROFILES:
        raise UsageError(f"unknown profile {name!r}; there are: {', '.join(PROFILES)}")
    return PROFILES[name]


def device_profile(name: str) -> DeviceProfile:
    """Return a device profile; raise UsageError naming the choices."""
    if name not in list(DeviceProfile):
        raise UsageError(f"unknown device profile {name!r}; there are: {', '.join(DeviceProfile)}")
    return DeviceProfile(name)


def all_cells() -> list[Scenario]:
    """Return every cell that has an id, sorted by it."""
    cells = [
        Scenario(
            engine, filesystem, dict(zip(spec.SETTINGS, values, strict=True)), fault, dict(spec.TUNING),
            SPECS[fault].mount_options,
        )
        for engine in ENGINES
        for spec in [engines.named(engine)]
        for filesystem, values, fault in itertools.product(
            FileSystem, itertools.product(*spec.SETTINGS.values()), FAULTS
        )
    ]  # fmt: skip
    # Teeth: an fsync that does nothing has to break what WAL promises, and a dishonest disk leaves no promise to break.
    cells += [
        replace(cell, shim=Shim.EATMYDATA)
        for cell in cells
        if cell.settings_name == "wal_full" and cell.fault in FORGETTING_FAULTS
    ]
    # And a wrong clock, which is nothing to SQLite, has to break what a program that trusts the clock promises.
    cells += [
        replace(cell, shim=Shim.LASTWRITER)
        for cell in cells
        if cell.settings_name == "wal_full" and cell.fault in CLOCK_FAULTS
    ]
    return sorted([*cells, *mutation_cells()], key=lambda cell: cell.id)


def mutation_cells() -> list[Scenario]:
    """Return the cells in which one sync is left out: every sync that transactions of these settings make."""
    return [
        Scenario(
            engine, filesystem, settings, fault, dict(spec.TUNING), SPECS[fault].mount_options,
            shim=f"{DROP_PREFIX}{kind}",
        )
        for engine in ENGINES
        for spec in [engines.named(engine)]
        for filesystem, values, fault in itertools.product(
            FileSystem, itertools.product(*spec.SETTINGS.values()), _MUTATION_FAULTS
        )
        for settings in [dict(zip(spec.SETTINGS, values, strict=True))]
        # Where nothing is promised there is nothing to break.
        if settings.get("journal_mode") in _DEFAULT_JOURNAL_MODES
        for kind in kinds(engine, settings)
    ]  # fmt: skip


def is_unprotected(cell: Scenario) -> bool:
    """Return whether the engine promises nothing under these settings when the power goes."""
    return any(cell.settings.get(name) in values for name, values in engines.named(cell.engine).UNPROTECTED.items())


def _is_undecided(cell: Scenario) -> bool:
    """Return whether no state of it can be judged: the log leaves open what the setup made durable.

    ext4 writes its superblock with FUA at the mount and again from the page cache, in an order that no log tells, and
    in the recordings of these settings it is never written again; see `faults.epochs`.
    """
    return cell.settings.get("journal_mode") in ("memory", "off") and cell.settings["synchronous"] != "off"


def default_cells(wanted: Profile = PROFILES["quick"]) -> list[Scenario]:
    """Return what is measured when no cell is named.

    In the quick profile that is the main job: SQLite's journal modes that keep a journal on disk under the faults that
    most people mean, and the controls. The others take the whole fault matrix: every cell with a promise to break, and
    of the others those that show what is lost without one, and the controls. The cross-checks are of the rig, so a few
    settings do for them, and settings that are the same as others are measured under the main faults alone.
    """
    if wanted.is_whole:
        return [
            cell
            for cell in all_cells()
            if not is_unprotected(cell) or cell.fault in _BARE_FAULTS or cell.settings_name in _CONTROL_SETTINGS
            if cell.fault == "processkill" or not _is_undecided(cell)
            if not SPECS[cell.fault].is_cross_check or cell.settings_name in _CROSS_CHECK_SETTINGS
            if "_".join(cell.settings.values()) not in _SAME_AS_FULL
            or (cell.fault in MAIN_FAULTS and not cell.dropped_sync)
        ]
    return [
        cell
        for cell in all_cells()
        if cell.settings.get("journal_mode") in _DEFAULT_JOURNAL_MODES and cell.fault in _DEFAULT_FAULTS
        if not cell.dropped_sync
    ]


def select(patterns: Sequence[str]) -> list[Scenario]:
    """Return the cells whose ids match any of the shell patterns; raise UsageError for one that matches none."""
    cells = all_cells()
    for pattern in patterns:
        if not any(fnmatchcase(cell.id, pattern) for cell in cells):
            raise UsageError(_why_none(pattern, cells))
    return [cell for cell in cells if any(fnmatchcase(cell.id, pattern) for pattern in patterns)]


def configured(
    cells: Iterable[Scenario],
    wanted: Profile,
    device: DeviceProfile = DeviceProfile.SSD,
    seed: int = 1,
    library: str = "",
) -> list[Scenario]:
    """Return the cells with what the command line decides for all of them; `library` is a build of SQLite."""
    found = [
        replace(cell, workload=Workload(wanted.transactions_of(cell)), profile=device, seed=seed) for cell in cells
    ]
    if not library:
        return found
    # Cells of other engines beside SQLite's, such as controls, are none of its business.
    return [
        replace(cell, tuning={**cell.tuning, "library": library}) if cell.engine == "sqlite" else cell for cell in found
    ]


def _why_none(pattern: str, cells: Sequence[Scenario]) -> str:
    """Name the part of an id that does not exist, with the choices for it."""
    parts = pattern.split("-", 2)
    settings, _, fault = parts[-1].rpartition("_")
    choices = {
        "engine": (parts[0], ENGINES),
        "file system": (parts[1] if len(parts) > 1 else "*", tuple(FileSystem)),
        "settings": (settings or "*", tuple(dict.fromkeys(cell.settings_name for cell in cells))),
        "fault": (fault, FAULTS),
    }
    if len(parts) == 3:
        for what, (word, known) in choices.items():
            if not any(fnmatchcase(name, word) for name in known):
                return f"unknown {what} {word!r} in {pattern!r}; {_choices(word, known)}"
    ids = [cell.id for cell in cells]
    inside = [f"*{pattern}*"] if any(fnmatchcase(name, f"*{pattern}*") for name in ids) else []
    near = (inside or get_close_matches(pattern, ids, 1) or ids)[0]
    return f"no cell matches {pattern!r}; did you mean {near!r}? `rig plan '*'` lists them all"


def _choices(word: str, known: Sequence[str]) -> str:
    """Say what the word may have been meant to be, then what there is: all, or those that are most like it."""
    near = get_close_matches(word, known, 1)
    guess = f"did you mean {near[0]}? " if near else ""
    shown = get_close_matches(word, known, _CHOICES_MAX, cutoff=0) if near else known[:_CHOICES_MAX]
    more = len(known) - len(shown)
    return f"{guess}there are: {', '.join(shown)}" + (f", and {more} more: `rig plan '*'`" if more else "")
