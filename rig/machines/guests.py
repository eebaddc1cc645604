"""The templates that scenarios are measured in: a pair for each guest image and processor that they need.

A pair is made when it is first asked for, and held until the end, so a run of one engine does not wait for another's
image.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from rig.contract.errors import VmError
from rig.contract.orders import ILLEGAL, Processor
from rig.contract.scenario import Scenario
from rig.engines import engine_named
from rig.engines.builds import Library, builds_of
from rig.host.cache import require_cache
from rig.images import image, recipes
from rig.images.image import Image
from rig.images.recipes import Recipe
from rig.machines import usermode
from rig.machines.accelerator import Choice, best_accelerator, note_of
from rig.machines.argv import Accelerator, Role
from rig.machines.template import Template, require_qemu, template
from rig.machines.usermode import UserMode


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
        self._templates: dict[tuple[Role, Recipe, Processor], Template] = {}
        self._has_said = False

    def of(self, scenario: Scenario) -> Machines:
        """Return the machines that a scenario is measured in; make whatever the cache lacks.

        Raise UsageError for a library that the guest cannot load, or a recipe that cannot be followed.
        """
        key = (recipes.recipe_of(scenario), scenario.processor)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(*key)
            return self._made[key]

    def able(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Return the scenarios, on the modern processor if the plain one cannot run the user's program.

        Make whatever the cache lacks; raise what `of` raises.
        """
        try:
            for scenario in scenarios:
                self.of(scenario)
        except VmError as error:
            if ILLEGAL not in str(error) or any(each.processor is Processor.MODERN for each in scenarios):
                raise
            self._says(
                "the program died by SIGILL on the plain processor, so it is measured on the modern one; "
                'processor = "modern" in its recipe spares this attempt'
            )
            return self.able([replace(scenario, processor=Processor.MODERN) for scenario in scenarios])
        return list(scenarios)

    def recorder_of(self, scenario: Scenario) -> Template:
        """Return only the recorder, for a command that verifies nothing; raise what `of` raises."""
        with self._lock:
            return self._template(Role.RECORDER, recipes.recipe_of(scenario), scenario.processor)

    def verifier_of(self, scenario: Scenario) -> Template:
        """Return only the verifier, for a command that records nothing; raise what `of` raises."""
        with self._lock:
            return self._template(Role.VERIFIER, recipes.recipe_of(scenario), scenario.processor)

    def _make(self, recipe: Recipe, processor: Processor) -> Machines:
        recorder, verifier = (self._template(role, recipe, processor) for role in (Role.RECORDER, Role.VERIFIER))
        return Machines(recorder, verifier, self._user_mode(recipe, processor, verifier))

    def _user_mode(self, recipe: Recipe, processor: Processor, verifier: Template) -> UserMode | None:
        if verifier.spec.accelerator is not Accelerator.TCG:
            return None
        guest, own = self._image(recipe)
        if obstacle := usermode.obstacle(guest, processor, self._says):
            self._tell(f"crash states are checked under emulation: {obstacle}")
            return None
        self._tell("crash states are checked in user-mode machines")
        return self._stack.enter_context(usermode.user_mode(guest, own, processor))

    def _template(self, role: Role, recipe: Recipe, processor: Processor) -> Template:
        key = role, recipe, processor
        if key not in self._templates:
            guest, own = self._image(recipe)
            if role is Role.RECORDER:
                made = template(role, guest, libraries=own, processor=processor, says=self._says)
                self._templates[key] = self._stack.enter_context(made)
            else:
                self._templates[key] = self._working(guest, own, processor)
        return self._templates[key]

    def _image(self, recipe: Recipe) -> tuple[Image, list[Library]]:
        """Return the image of a recipe and the libraries that its machines load; raise UsageError if they cannot."""
        guest, own = image.build(recipe, self._says), []
        for library in self._libraries:
            engine = engine_named(library.engine)
            if recipes.serves(recipe.digest, engine, library.image):
                builds_of(engine).require_loadable(library, guest.contents)
                own.append(library)
        return guest, own

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
        made = self._stack.enter_context(template(Role.VERIFIER, guest, accelerator, own, processor, self._says))
        if accelerator is not Accelerator.TCG:
            with made.clone():
                pass
        return made

    def _tell_accelerator(self, best: Choice) -> None:
        if best.accelerator is not Accelerator.TCG:
            self._tell(f"crash states are checked under {best.accelerator}: {best.reason}")

    def _tell(self, words: str) -> None:
        if not self._has_said:
            self._says(f"{words}; `rig doctor` says more")
            self._has_said = True


def name_of(scenario: Scenario) -> str:
    """Return a name for the machines of a scenario, the same for all scenarios that share them."""
    name = recipes.recipe_of(scenario).name
    return name if scenario.processor is Processor.PLAIN else f"{name}-{scenario.processor}"


@contextmanager
def guests(libraries: Sequence[Library] = (), says: Callable[[str], None] = lambda _: None) -> Iterator[Guests]:
    """Give the machines for any scenario, and hold them for the length of a block; `says` takes lines of progress."""
    require_qemu()
    require_cache()
    with ExitStack() as stack:
        yield Guests(says, libraries, stack)
