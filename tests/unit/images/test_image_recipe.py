"""Recipes of guest images: read as written; an invalid one is reported with its field."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from rig.contract.errors import UsageError
from rig.images import image
from rig.images import recipes as module
from rig.images.recipes import Recipe, recipe

GOOD = """
name = "small"
suite = "trixie"
kernel = "linux"
root_disk_mib = 64
packages = ["one", "two"]
modules = []
modules_on_demand = ["brd"]
exclude = []
wheels = ["three==3.1"]
"""


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes in place of our own."""
    shutil.copy(module.RECIPES / "init", tmp_path / "init")
    (tmp_path / "small.toml").write_text(GOOD)
    monkeypatch.setattr(module, "RECIPES", tmp_path)
    return tmp_path


def test_a_recipe_is_read_field_by_field_and_can_be_hashed(recipes: Path) -> None:
    assert recipes.is_dir()
    expected = Recipe("small", "trixie", "linux", 64, ("one", "two"), (), ("brd",), (), ("three==3.1",))
    assert {expected} == {recipe("small")}


def test_our_own_recipes_fit_and_bear_the_name_of_their_file() -> None:
    names = [path.stem for path in module.RECIPES.glob("*.toml")]
    assert "base" in names
    assert names == [recipe(name).name for name in names]
    assert recipe() == recipe("base")


@pytest.mark.parametrize("name", [field.name for field in fields(Recipe)])
def test_a_missing_field_is_named_with_the_file(recipes: Path, name: str) -> None:
    kept = [line for line in GOOD.splitlines() if not line.startswith(f"{name} ")]
    (recipes / "small.toml").write_text("\n".join(kept))
    with pytest.raises(UsageError, match=rf"small\.toml: .*{name}"):
        recipe("small")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("colour = 'red'", "colour"),
        ("name = ", "small.toml: Invalid value"),
        ("packages = 'busybox'", "packages"),
        ("modules = [1]", "modules"),
        ("root_disk_mib = '64'", "root_disk_mib"),
        ("suite = 13", "suite"),
        ("wheels = ['three>=3']", "three>=3"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_the_file(recipes: Path, line: str, reason: str) -> None:
    kept = [other for other in GOOD.splitlines() if not other.startswith(line.split(" ", maxsplit=1)[0] + " ")]
    (recipes / "small.toml").write_text("\n".join([*kept, line]))
    with pytest.raises(UsageError, match=reason) as caught:
        recipe("small")
    assert "small.toml" in str(caught.value)


def test_the_digest_follows_from_the_recipe_and_the_init_that_goes_in(recipes: Path) -> None:
    first = recipe("small")
    assert first.digest == recipe("small").digest
    other = {"name": "other", "suite": "sid", "root_disk_mib": 65, "packages": ("one",), "wheels": ()}
    for name, value in other.items():
        assert first.digest != replace(first, **{name: value}).digest  # type: ignore[arg-type]
    before = first.digest
    (recipes / "init").write_bytes((recipes / "init").read_bytes() + b"# changed\n")
    assert before != first.digest


def test_only_finished_images_of_the_cache_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    for name in ("base-0123", "two-words-4567", "base-half"):
        (tmp_path / "images" / name).mkdir(parents=True)
    for name in ("base-0123", "two-words-4567"):
        (tmp_path / "images" / name / "packages.txt").touch()
    assert [("base", "0123"), ("two-words", "4567")] == [(found.name, found.digest) for found in image.images()]
    assert [tmp_path / "images" / "two-words-4567"] == image.remove("two-words")
    assert [("base", "0123")] == [(found.name, found.digest) for found in image.images()]
