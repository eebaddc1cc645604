"""Native code for a newer processor runs in guests that have one; in others its death says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.contract.errors import VmError
from rig.contract.orders import Processor
from rig.images.image import Image
from rig.machines.argv import Role
from rig.machines.template import Template, template
from rig.planning import matrix
from tests.unit.guest import frailty
from tests.vm import caches

_FLAGS = ("-mavx2",)


@pytest.fixture
def cache(tmp_path: Path, image: Image, verifier: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep templates apart from the user's, who keeps only the last ones."""
    caches.furnish_cache(tmp_path / "cache", image, verifier)
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("cache")
def test_an_engine_that_asks_for_a_modern_processor_gets_it_in_recorder_and_verifier(
    tmp_path: Path, image: Image
) -> None:
    with frailty.install(tmp_path, 'processor="modern"', _FLAGS):
        chosen = matrix.select(["frail-ext4-segfault_powercut"])
        (needed,) = {one.processor for one in chosen}
        assert Processor.MODERN is needed
        # Before it is saved, a machine has opened the database.
        for role in Role:
            with template(role, image, processor=needed) as made:
                assert Processor.MODERN is made.spec.processor


@pytest.mark.usefixtures("cache")
def test_an_engine_that_does_not_ask_is_told_what_to_do(tmp_path: Path, image: Image) -> None:
    words = r"frail cannot make a database: died: died by SIGILL .* recipe says processor = \"modern\""
    with (
        frailty.install(tmp_path, "state_limit_s=5", _FLAGS),
        pytest.raises(VmError, match=f"(?s)1 boots of the verifier failed.*{words}"),
        template(Role.VERIFIER, image),
    ):
        pass
