"""The guest image: built once, kept under a digest of its recipe, listed and removed by name."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.errors import UsageError
from rig.machines import image as vm_image
from rig.machines.image import Image


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.iterdir())}


def test_building_twice_changes_nothing_and_takes_no_time(image: Image) -> None:
    before = stamps(image.folder)
    begin_s = time.monotonic()
    again = vm_image.build(vm_image.recipe())
    assert time.monotonic() - begin_s < 0.5
    assert image == again
    assert image.digest == vm_image.recipe().digest
    assert before == stamps(image.folder)
    assert {"vmlinuz", "initrd.cpio", "root.img", "packages.txt"} == set(before)


def test_packages_lists_the_kernel_and_what_the_recipe_asks_for(image: Image) -> None:
    lines = (image.folder / "packages.txt").read_text().splitlines()
    versions = dict(line.split("\t") for line in lines)
    assert any(name.startswith("linux-image-6.") for name in versions)
    assert {"python3", "libsqlite3-0", *vm_image.recipe().packages} <= {name.split(":")[0] for name in versions}
    assert all(versions.values())


def test_a_changed_recipe_has_another_digest_and_the_same_one_the_same() -> None:
    recipe = vm_image.recipe()
    changed = [
        replace(recipe, packages=(*recipe.packages, "strace")),
        replace(recipe, modules=recipe.modules[:-1]),
        replace(recipe, suite="forky"),
        replace(recipe, root_disk_mib=recipe.root_disk_mib + 1),
    ]
    assert recipe.digest == vm_image.recipe().digest
    assert len({recipe.digest, *(each.digest for each in changed)}) == 1 + len(changed)


def test_another_init_gives_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = vm_image.recipe().digest
    folder = tmp_path / "recipes"
    shutil.copytree(vm_image.RECIPES, folder)
    monkeypatch.setattr(vm_image, "RECIPES", folder)
    assert before == vm_image.recipe().digest
    with (folder / "init").open("a") as file:
        file.write("# changed\n")
    assert before != vm_image.recipe().digest


def test_images_are_listed_and_removed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    assert vm_image.images() == []
    for name in ("base-1111", "base-2222", "with-dash-3333"):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        (folder / "packages.txt").write_text("python3\t3.13\n")
    (tmp_path / "images" / "base-4444").mkdir()
    assert [("base", "1111"), ("base", "2222"), ("with-dash", "3333")] == [
        (each.name, each.digest) for each in vm_image.images()
    ]
    assert ["base-1111", "base-2222"] == [folder.name for folder in vm_image.remove("base")]
    assert ["with-dash"] == [each.name for each in vm_image.images()]
    assert [] == vm_image.remove("base")


def test_an_unknown_image_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown image 'nosuch'; there are: .*base"):
        vm_image.recipe("nosuch")
