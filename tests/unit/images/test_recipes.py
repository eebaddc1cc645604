"""Which image a scenario is measured in: the base image, what `image.toml` of its engine adds, and another kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.contract.errors import HostError, UsageError
from rig.contract.orders import Processor
from rig.engines import Engine, engine_named
from rig.filesystems import filesystems
from rig.images import guestcode, image, recipes
from rig.machines import guests
from rig.planning import matrix
from tests.unit.engines import outside as engines


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """The folder of an engine's package, which a test gives an image."""
    engines.write(tmp_path, "mylog")
    with engines.install(tmp_path):
        yield tmp_path / "mylog"


def engine() -> Engine:
    return engine_named("mylog")


def test_an_engine_without_a_recipe_has_the_base_image(own: Path) -> None:
    assert own.is_dir()
    assert recipes.recipe() == recipes.of_engine(engine()) == recipes.of_engine(engine_named("sqlite"))


def test_a_recipe_adds_to_the_base_image_and_never_takes_away(own: Path) -> None:
    words = 'packages = ["liblog1"]\nwheels = ["log==1.2"]\nexclude = ["/usr/lib/log/*"]\nroot_disk_mib = 64\n'
    (own / recipes.FILE).write_text(words)
    base, found = recipes.recipe(), recipes.of_engine(engine())
    assert "mylog" == found.name
    assert (*base.packages, "liblog1") == found.packages
    assert (*base.wheels, "log==1.2") == found.wheels
    assert (*base.exclude, "/usr/lib/log/*") == found.exclude
    assert base.root_disk_mib == found.root_disk_mib
    assert (base.kernel, base.modules) == (found.kernel, found.modules)
    assert base.digest != found.digest
    assert {base, found, recipes.of_engine(engine_named("lmdb"))} <= set(recipes.recipes())
    assert found == recipes.recipe_named("mylog")


def test_two_packages_can_share_an_image(own: Path, tmp_path: Path) -> None:
    (own / recipes.FILE).write_text('name = "logs"\npackages = ["liblog1"]\n')
    engines.write(tmp_path, "otherlog")
    (tmp_path / "otherlog" / recipes.FILE).write_text('like = "mylog"\n')
    assert "logs" == recipes.of_engine(engine()).name
    with engines.install(tmp_path):
        assert recipes.of_engine(engine()) == recipes.of_engine(engine_named("otherlog"))


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
    base, found = recipes.recipe(), recipes.of_engine(engine_named("rocksdb"))
    assert ("rocksdb", base.packages) == (found.name, found.packages)
    (wheel,) = found.wheels
    assert "--hash=sha256:" in wheel


def test_another_kernel_is_an_image_of_its_own_for_each_image_of_an_engine(own: Path) -> None:
    assert own.is_dir()
    base, found = recipes.recipe(), recipes.of_engine(engine_named("sqlite"), "generic")
    assert ("base-generic", "linux-image-amd64") == (found.name, found.kernel)
    for field in ("packages", "modules", "modules_on_demand"):
        assert getattr(base, field) == getattr(found, field)[: len(getattr(base, field))]
    assert set(found.packages) > set(base.packages)
    assert found == recipes.of_engine(engine(), "generic") == recipes.recipe_named("base-generic")
    both = recipes.recipe_named("embedded-generic")
    assert (found.kernel, recipes.recipe_named("embedded").wheels) == (both.kernel, both.wheels)
    assert set(both.packages) == set(found.packages) | set(recipes.recipe_named("embedded").packages)


def test_a_scenario_is_measured_in_the_image_that_has_its_engine_and_the_driver_of_its_file_system() -> None:
    for word, name in (("ext4", "base"), ("xfs", "base"), ("f2fs", "base-generic"), ("f2fs.strict", "base-generic")):
        (scenario,) = matrix.select([f"sqlite-{word}-wal_full_powercut"])
        assert name == recipes.recipe_of(scenario).name == guests.name_of(scenario)
    (scenario,) = matrix.select(["lmdb-f2fs-default_powercut"])
    assert "embedded-generic" == recipes.recipe_of(scenario).name


def test_no_file_system_needs_a_kernel_that_has_no_recipe() -> None:
    kernels = {path.stem for path in (recipes.RECIPES / "kernels").glob("*.toml")}
    assert kernels == {one.kernel for one in filesystems()} - {""}


def test_an_unknown_image_names_those_of_the_engines() -> None:
    with pytest.raises(UsageError, match=r"unknown image 'nosuch'; there are: base, .*embedded"):
        recipes.recipe_named("nosuch")


def test_a_guest_has_the_engines_of_its_image_only(own: Path) -> None:
    (own / recipes.FILE).write_text('packages = ["liblog1"]\n')
    base, alone = recipes.recipe(), recipes.of_engine(engine())
    served = {
        recipe.name: [each.name for each in guestcode._engines_of(recipe.digest, [], Processor.MODERN)]
        for recipe in (base, alone, *map(recipes.recipe_named, ("embedded", "base-generic", "embedded-generic")))
    }
    of_base, of_embedded = ["files", "sqlite"], ["leveldb", "lmdb"]
    of_generic = {"base-generic": of_base, "embedded-generic": of_embedded}
    assert {"base": of_base, "mylog": ["mylog"], "embedded": of_embedded, **of_generic} == served


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
