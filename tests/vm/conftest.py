"""What the tests over real machines share: the image, the two templates, and short recordings made once a session.

Image and templates come from the user's cache, so they are cheap; recordings live for the session, and the workers of
pytest-xdist share them.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator

import pytest

from rig.contract.scenario import Scenario
from rig.machines import image as vm_image
from rig.machines.argv import Role
from rig.machines.image import Image
from rig.machines.record import record
from rig.machines.template import Template, template
from rig.recordings import archive
from rig.recordings.archive import Recording


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell starts its background jobs with SIGINT ignored, and what we start and interrupt would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def image() -> Image:
    return vm_image.build(vm_image.recipe())


@pytest.fixture(scope="session")
def recorder(image: Image) -> Iterator[Template]:
    with template(Role.RECORDER, image) as made:
        yield made


@pytest.fixture(scope="session")
def verifier(image: Image) -> Iterator[Template]:
    with template(Role.VERIFIER, image) as made:
        yield made


@pytest.fixture(scope="session")
def recorded(recorder: Template, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], Recording]:
    own = tmp_path_factory.getbasetemp()
    # Under xdist the base is the worker's own, in a folder of the run.
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "recordings"

    def make(scenario: Scenario) -> Recording:
        # Another template, should our code change while the tests run, gives another recording.
        name = f"{recorder.identity}-{scenario.recording_key}"
        with vm_image.locked(shared / name):
            if archive.load(shared / name) is None:
                record(scenario, recorder, shared / name)
        # Each worker unpacks its own copy: unpacking has one place in a recording's folder.
        if not (own / name).exists():
            shutil.copytree(shared / name, own / name)
        made = archive.load(own / name)
        assert made
        return made

    return make
