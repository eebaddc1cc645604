"""Which image an engine is measured in: the base image, or what `image.toml` in its package adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.contract.errors import HostError, UsageError
from rig.contract.processors import Processor
from rig.engines import Engine, named
from rig.machines import image, recipes, template
from tests.unit import engines


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """The folder of an engine's package, which a test gives an image."""
    engines.write(tmp_path, "mylog")
    with engines.installed(tmp_path):
        yield tmp_path / "mylog"


def engine() -> Engine:
    return named("mylog")


def test_an_engine_without_a_recipe_has_the_base_image(own: Path) -> None:
    assert own.is_dir()
    assert image.recipe() == recipes.of_engine(engine()) == recipes.of_engine(named("sqlite"))


def test_a_recipe_adds_to_the_base_image_and_never_takes_away(own: Path) -> None:
    (own / recipes.FILE).write_text('packages = ["liblog1"]\nwheels = ["log==1.2"]\nroot_disk_mib = 64\n')
    base, found = image.recipe(), recipes.of_engine(engine())
    assert "mylog" == found.name
    assert (*base.packages, "liblog1") == found.packages
    assert (*base.wheels, "log==1.2") == found.wheels
    assert base.root_disk_mib == found.root_disk_mib
    assert (base.kernel, base.modules) == (found.kernel, found.modules)
    assert base.digest != found.digest
    assert {base, found, recipes.of_engine(named("lmdb"))} <= set(recipes.recipes())
    assert found == recipes.named("mylog")


def test_two_packages_can_share_an_image(own: Path, tmp_path: Path) -> None:
    (own / recipes.FILE).write_text('name = "logs"\npackages = ["liblog1"]\n')
    engines.write(tmp_path, "otherlog")
    (tmp_path / "otherlog" / recipes.FILE).write_text('like = "mylog"\n')
    assert "logs" == recipes.of_engine(engine()).name
    with engines.installed(tmp_path):
        assert recipes.of_engine(engine()) == recipes.of_engine(named("otherlog"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("packages = 'liblog1'", r"packages is 'liblog1'"),
        ("package = ['liblog1']", r"image\.toml: .*package"),
        ("wheels = ['log']", r"the wheel 'log' is not NAME==VERSION"),
        ("like = 'nowhere'", r"there is no package 'nowhere' with an image\.toml"),
        ("like = 'mylog'\npackages = []", r"`like` stands alone"),
        ("packages = ", r"image\.toml: Invalid value"),
    ],
)
def test_a_recipe_that_is_wrong_is_named_with_its_file(own: Path, text: str, reason: str) -> None:
    (own / recipes.FILE).write_text(text)
    with pytest.raises(UsageError, match=reason):
        recipes.of_engine(engine())


def test_an_image_of_a_wheel_has_no_more_of_debian_than_the_base_image() -> None:
    base, found = image.recipe(), recipes.of_engine(named("rocksdb"))
    assert ("rocksdb", base.packages) == (found.name, found.packages)
    (wheel,) = found.wheels
    assert "--hash=sha256:" in wheel


def test_an_unknown_image_names_those_of_the_engines() -> None:
    with pytest.raises(UsageError, match=r"unknown image 'nosuch'; there are: base, .*embedded"):
        recipes.named("nosuch")


def test_a_guest_has_the_engines_of_its_image_only(own: Path) -> None:
    (own / recipes.FILE).write_text('packages = ["liblog1"]\n')
    base, alone = image.recipe(), recipes.of_engine(engine())
    served = {
        recipe.name: [each.name for each in template._served([], Processor.MODERN, recipe.digest)]
        for recipe in (base, alone, recipes.named("embedded"))
    }
    assert {"base": ["files", "sqlite"], "mylog": ["mylog"], "embedded": ["leveldb", "lmdb"]} == served


def test_a_package_or_wheel_that_does_not_exist_is_named_with_the_image(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(own))
    (own / recipes.FILE).write_text('wheels = ["no-such-log==1.2"]\n')
    with pytest.raises(HostError, match=r"no-such-log 1\.2 could not be fetched from PyPI"):
        image.build(recipes.of_engine(engine()))
    assert not list((tmp_path / "cache" / "images").glob("mylog-*/"))
