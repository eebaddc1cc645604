"""The wheel contains all that a run needs, under one name; a wheel built from the sdist is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import wheels

# Needs git.
pytestmark = pytest.mark.slow

# The folders of the repository to which the package links.
LINKED = ("analysis", "faults", "vm-images")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.clone(tmp_path_factory.mktemp("un clone d'été") / "clone")


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return wheels.contents(wheels.wheel(source, tmp_path_factory.mktemp("wheel")))


def files_for_users(source: Path) -> dict[str, bytes]:
    """The repository's files for users, by their place in the wheel."""
    links = {source / name: f"rig/{name}" for name in LINKED}
    found = {}
    for folder, place in {source / "rig": "rig", **links}.items():
        for path in folder.rglob("*"):
            if path.is_file() and not any(part.is_symlink() for part in (path, *path.parents)):
                found[f"{place}/{path.relative_to(folder)}"] = path.read_bytes()
    return found


def test_the_wheel_holds_what_the_repository_has_for_users_and_nothing_else(
    built: dict[str, bytes], source: Path
) -> None:
    info = {name for name in built if name.partition("/")[0].endswith(".dist-info")}
    expected = files_for_users(source)
    assert expected == {name: content for name, content in built.items() if name not in info}
    # Some names are checked explicitly, because an empty repository would make an empty wheel.
    assert {
        "rig/vm-images/init",
        "rig/vm-images/base.toml",
        "rig/vm-images/kernels/generic.toml",
        "rig/analysis/show/templates/report.css",
        "rig/py.typed",
        "rig/faults/models/powercut.py",
    } <= set(expected)
    assert 1 == len({name.partition("/")[0] for name in info})


def test_a_wheel_built_from_the_sdist_is_the_same(built: dict[str, bytes], source: Path, tmp_path: Path) -> None:
    again = wheels.contents(wheels.wheel(wheels.from_sdist(source, tmp_path / "sdist"), tmp_path / "wheel"))
    assert built == again
