"""Fixtures of the tests on real machines: the image, the two templates, and short recordings made once per session.

Image and templates come from the user's cache, so they are cheap. Recordings are kept for the session and shared by the
workers of pytest-xdist.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig.campaign.record import record
from rig.contract.orders import Processor
from rig.contract.scenario import Scenario
from rig.host import cache as host_cache
from rig.images import image as vm_image
from rig.images import recipes
from rig.images.image import Image
from rig.machines import usermode
from rig.machines.argv import Role
from rig.machines.template import Template, template
from rig.machines.usermode import UserMode
from rig.recordings import archive
from rig.recordings.archive import Recording
from tests.vm import caches
from tests.vm.processors import own_processor

__all__ = ["own_processor"]


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Restore SIGINT: a shell ignores it in background jobs, and the programs that we interrupt would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def image() -> Image:
    return vm_image.build(recipes.recipe())


@pytest.fixture(scope="session")
def recorder(image: Image) -> Iterator[Template]:
    with template(Role.RECORDER, image) as made:
        yield made


@pytest.fixture(scope="session")
def verifier(image: Image) -> Iterator[Template]:
    with template(Role.VERIFIER, image) as made:
        yield made


@pytest.fixture(scope="session")
def user_mode(image: Image) -> Iterator[UserMode]:
    with usermode.user_mode(image, (), Processor.PLAIN) as made:
        yield made


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, image: Image, recorder: Template, verifier: Template) -> Path:
    """A cache for users' programs and their images, whose templates would push others out of the user's own cache."""
    folder = shared_folder(tmp_path_factory) / "cache"
    with host_cache.lock(folder):
        if not folder.exists():
            unfinished = folder.with_name("unfinished-cache")
            caches.furnish_cache(unfinished, image, recorder, verifier).rename(folder)
    return folder


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of the session share."""
    own = tmp_path_factory.getbasetemp()
    # Under xdist the base folder is the worker's own; its parent belongs to the run.
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


# Gives the own copy of a folder with a name; the first who asks for it has it filled.
MadeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Make a folder once for all workers, and give each of them a copy."""
    own, shared = tmp_path_factory.getbasetemp(), shared_folder(tmp_path_factory) / "made-once"

    def copy(name: str, fill: Callable[[Path], None]) -> Path:
        with host_cache.lock(shared / name):
            if not (shared / name).exists():
                unfinished = shared / f"unfinished-{name}"
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                fill(unfinished)
                unfinished.rename(shared / name)
        return Path(shutil.copytree(shared / name, own / name))

    return copy


@pytest.fixture(scope="session", params=["emulated", "user-mode"])
def checker(request: pytest.FixtureRequest) -> Template | UserMode:
    """What crash states are checked in, once of each kind."""
    name = {"emulated": "verifier", "user-mode": "user_mode"}[request.param]
    found: Template | UserMode = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="session")
def recorded(recorder: Template, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], Recording]:
    own, shared = tmp_path_factory.getbasetemp(), shared_folder(tmp_path_factory) / "recordings"

    def make(scenario: Scenario) -> Recording:
        # If our code changes while the tests run, the template and hence the recording change too.
        name = f"{recorder.identity}-{scenario.recording_key}"
        with host_cache.lock(shared / name):
            if archive.load(shared / name) is None:
                record(scenario, recorder, shared / name)
        # Each worker unpacks its own copy, because a recording's folder has only one place for that.
        if not (own / name).exists():
            shutil.copytree(shared / name, own / name)
        made = archive.load(own / name)
        assert made
        return made

    return make
