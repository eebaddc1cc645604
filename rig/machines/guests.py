"""The templates that scenarios are measured in: a pair for each guest image and processor that they need.

A pair is made when it is first asked for, and held until the end, so a run of one engine does not wait for another's
image.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rig.contract.errors import VmError
from rig.contract.processors import Processor
from rig.contract.scenario import Scenario
from rig.engines import named
from rig.engines.builds import Library, builds_of
from rig.host.cache import require_cache
from rig.images import image, needs
from rig.images.image import Image, Recipe
from rig.machines import usermode
from rig.machines.accelerator import Choice, best_accelerator, note_of
from rig.machines.argv import Accelerator, Role
from rig.machines.qemu import require_qemu
from rig.machines.template import Template, template
from rig.machines.usermode import UserMode

# The name of the machines for scenarios that need only the base image.
BASE = "base"


@dataclass(frozen=True)
class Machines:
    """The templates that the scenarios of one image restore their machines from."""

    recorder: Template
    verifier: Template
    # Set if there is no KVM and user mode works.
    user_mode: UserMode | None = None

    @property
    def checker(self) -> Template | UserMode:
        """Return what crash states are checked in."""
        return self.user_mode or self.verifier

    def of(self, scenario: Scenario) -> Machines:  # noqa: ARG002 - these are the machines of all scenarios
        """Return these machines, so that they can be used where all scenarios have one image."""
        return self


class Source(Protocol):
    """Gives each scenario its machines."""

    def of(self, scenario: Scenario) -> Machines:
        """Return the machines that a scenario is measured in."""


class Guests:
    """The machines for any scenario. Scenarios may name the `libraries` in their tuning."""

    def __init__(self, says: Callable[[str], None], libraries: Sequence[Library], stack: ExitStack) -> None:
        self._says = says
        self._libraries = libraries
        self._stack = stack
        self._lock = threading.Lock()
        self._made: dict[tuple[Recipe, Processor], Machines] = {}
        self._recorders: dict[tuple[Recipe, Processor], Template] = {}
        self._verifiers: dict[tuple[Recipe, Processor], Template] = {}
        self._has_said = False

    def of(self, scenario: Scenario) -> Machines:
        """Return the machines that a scenario is measured in; make whatever the cache lacks.

        Raise UsageError for a library that the guest cannot load, or a recipe that cannot be followed.
        """
        key = (needs.recipe_of(scenario), scenario.processor)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(*key)
            return self._made[key]

    def recorder_of(self, scenario: Scenario) -> Template:
        """Return only the recorder, for a command that verifies nothing; raise what `of` raises."""
        with self._lock:
            return self._recorder(needs.recipe_of(scenario), scenario.processor)

    def verifier_of(self, scenario: Scenario) -> Template:
        """Return only the verifier, for a command that records nothing; raise what `of` raises."""
        with self._lock:
            return self._verifier(needs.recipe_of(scenario), scenario.processor)

    def _make(self, recipe: Recipe, processor: Processor) -> Machines:
        recorder, verifier = self._recorder(recipe, processor), self._verifier(recipe, processor)
        return Machines(recorder, verifier, self._user_mode(recipe, processor, verifier))

    def _user_mode(self, recipe: Recipe, processor: Processor, verifier: Template) -> UserMode | None:
        if verifier.spec.accelerator is not Accelerator.TCG:
            return None
        guest, own = self._image(recipe)
        if hindrance := usermode.hindrance(guest, processor, self._says):
            self._tell(f"crash states are checked under emulation: {hindrance}")
            return None
        self._tell("crash states are checked in user-mode machines")
        return self._stack.enter_context(usermode.user_mode(guest, own, processor))

    def _recorder(self, recipe: Recipe, processor: Processor) -> Template:
        if (recipe, processor) not in self._recorders:
            guest, own = self._image(recipe)
            made = template(Role.RECORDER, guest, libraries=own, processor=processor)
            self._recorders[recipe, processor] = self._stack.enter_context(made)
        return self._recorders[recipe, processor]

    def _image(self, recipe: Recipe) -> tuple[Image, list[Library]]:
        """Return the image of a recipe and the libraries that its machines load; raise UsageError if they cannot."""
        guest, own = image.build(recipe, self._says), [one for one in self._libraries if needs.serves(recipe, one)]
        for library in own:
            builds_of(named(library.engine)).require_loadable(library, guest.contents)
        return guest, own

    def _verifier(self, recipe: Recipe, processor: Processor) -> Template:
        if (recipe, processor) not in self._verifiers:
            self._verifiers[recipe, processor] = self._working(*self._image(recipe), processor)
        return self._verifiers[recipe, processor]

    def _working(self, guest: Image, own: Sequence[Library], processor: Processor) -> Template:
        """Return the template of the verifiers under the accelerator that works here.

        A virtual host can be moved while it runs, and KVM that has answered before may stop answering.
        """
        best = best_accelerator(guest)
        self._tell_accelerator(best)
        try:
            return self._restorable(guest, best.accelerator, own, processor)
        except (VmError, TimeoutError) as error:
            if best.accelerator is Accelerator.TCG:
                raise
            self._says(f"{best.accelerator} worked when it was probed and fails now, so it is probed again: {error}")
        note_of(guest).unlink(missing_ok=True)
        best, self._has_said = best_accelerator(guest), False
        self._tell_accelerator(best)
        return self._restorable(guest, best.accelerator, own, processor)

    def _restorable(
        self, guest: Image, accelerator: Accelerator, own: Sequence[Library], processor: Processor
    ) -> Template:
        found = self._stack.enter_context(template(Role.VERIFIER, guest, accelerator, own, processor))
        if accelerator is not Accelerator.TCG:
            with found.clone():
                pass
        return found

    def _tell_accelerator(self, best: Choice) -> None:
        if best.accelerator is not Accelerator.TCG:
            self._tell(f"crash states are checked under {best.accelerator}: {best.reason}")

    def _tell(self, words: str) -> None:
        if not self._has_said:
            self._says(f"{words}; `rig doctor` says more")
            self._has_said = True


def name_of(scenario: Scenario) -> str:
    """Return a name for the machines of a scenario, the same for all scenarios that share them."""
    name = needs.recipe_of(scenario).name
    return name if scenario.processor is Processor.PLAIN else f"{name}-{scenario.processor}"


@contextmanager
def guests(libraries: Sequence[Library] = (), says: Callable[[str], None] = lambda _: None) -> Iterator[Guests]:
    """Give the machines for any scenario, and hold them for the length of a block; `says` takes lines of progress."""
    require_qemu()
    require_cache()
    with ExitStack() as stack:
        yield Guests(says, libraries, stack)
