"""What the tests over real machines share: the image, the two templates, and short recordings made once a session.

Image and templates come from the user's cache, so they are cheap; recordings live for the session, and the workers of
pytest-xdist share them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig import recording
from rig.recording import Recording
from rig.scenario import Scenario
from rig.vm import image as vm_image
from rig.vm.argv import Role
from rig.vm.image import Image
from rig.vm.template import Template, template


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
    base = tmp_path_factory.getbasetemp()
    # Under xdist the base is the worker's own, in a folder of the run.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "recordings"

    def make(scenario: Scenario) -> Recording:
        folder: Path = shared / scenario.recording_key
        with vm_image.locked(folder):
            return recording.load(folder) or recording.record(scenario, recorder, folder)

    return make
