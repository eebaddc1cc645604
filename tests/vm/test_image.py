"""The guest image: built once, kept under a digest of its recipe, listed and removed by name."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.host import processes
from rig.images import image as vm_image
from rig.images import recipes
from rig.images.image import Image
from rig.machines.argv import Accelerator, Role
from rig.machines.template import answers


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.iterdir())}


def test_building_twice_changes_nothing_and_takes_no_time(image: Image) -> None:
    before = stamps(image.folder)
    begin_s = time.monotonic()
    again = vm_image.build(recipes.recipe())
    assert time.monotonic() - begin_s < 0.5
    assert image == again
    assert image.digest == recipes.recipe().digest
    assert before == stamps(image.folder)
    assert {"vmlinuz", "initrd.cpio", "root.img", "packages.txt"} == set(before)


# Commands that run the build with fewer privileges; the test uses the first that works on this machine. Inside a user
# namespace any user is root and may forbid further namespaces. If the machine forbids them all, no prefix is needed.
NOTHING_ALLOWED: Sequence[list[str]] = (
    [
        "unshare", "--user", "--map-current-user", "--keep-caps",
        "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh",
        "setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--bounding-set=-all",
    ],
    [],
)  # fmt: skip
ROOT_OF_A_CONTAINER: Sequence[list[str]] = (
    ["setpriv", "--inh-caps=-sys_admin", "--bounding-set=-sys_admin"],
    ["unshare", "--user", "--map-root-user", "setpriv", "--inh-caps=-sys_admin", "--bounding-set=-sys_admin"],
    [],
)


@pytest.mark.parametrize("prefixes", [NOTHING_ALLOWED, ROOT_OF_A_CONTAINER], ids=["nothing", "root"])
def test_an_image_is_built_from_nothing_without_privileges_and_boots(
    prefixes: Sequence[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prefix, *_) = [words for words in prefixes if subprocess.run([*words, "true"], check=False).returncode == 0]
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    # This user's umask must not affect the guest, where not every program is root.
    command = [*prefix, str(Path(sys.executable).with_name("rig")), "image", "build"]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, umask=0o077)
    assert 0 == built.returncode, built.stderr
    (made,) = vm_image.images()
    assert f"{made.folder}\n" == built.stdout
    assert {made.folder, Path(f"{made.folder}.lock")} == set(made.folder.parent.iterdir())
    entries = listing(made, "/etc") + listing(made, "/usr/lib/python3.13/__pycache__")
    assert {"passwd", "ld.so.cache", "os.cpython-313.pyc"} <= {entry.split("/")[5] for entry in entries}
    assert [] == [entry for entry in entries if not int(entry.split("/")[2], 8) & stat.S_IROTH]
    answers(Role.VERIFIER, made, Accelerator.TCG, 120)


def listing(image: Image, folder: str) -> list[str]:
    """Return a line `/INODE/MODE/UID/GID/NAME/SIZE/` for each entry of a folder of the guest."""
    return processes.run(["debugfs", "-R", f"ls -p {folder}", str(image.root_disk)], timeout_s=60).decode().split()


def test_packages_lists_the_kernel_and_what_the_recipe_asks_for(image: Image) -> None:
    lines = (image.folder / "packages.txt").read_text().splitlines()
    versions = dict(line.split("\t") for line in lines)
    assert any(name.startswith("linux-image-6.") for name in versions)
    assert {"python3", "libsqlite3-0", *recipes.recipe().packages} <= {name.split(":")[0] for name in versions}
    assert all(versions.values())


def test_what_is_on_the_root_disk_is_found_there_through_links_too(image: Image) -> None:
    for path in ("/usr/bin/python3", "/bin/sh", "/usr/lib/x86_64-linux-gnu/libc.so.6"):
        assert image.contents.has(path), path
    for path in ("/usr/bin/node", "/usr/lib/x86_64-linux-gnu/libabsent.so.1", "/absent/sh"):
        assert not image.contents.has(path), path
    assert "libc6" in image.contents.packages


def test_a_changed_recipe_has_another_digest_and_the_same_one_the_same() -> None:
    recipe = recipes.recipe()
    changed = [
        replace(recipe, packages=(*recipe.packages, "strace")),
        replace(recipe, modules=recipe.modules[:-1]),
        replace(recipe, suite="forky"),
        replace(recipe, root_disk_mib=recipe.root_disk_mib + 1),
    ]
    assert recipe.digest == recipes.recipe().digest
    assert len({recipe.digest, *(each.digest for each in changed)}) == 1 + len(changed)


def test_another_init_gives_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipes.recipe().digest
    folder = tmp_path / "recipes"
    shutil.copytree(recipes.RECIPES, folder)
    monkeypatch.setattr(recipes, "RECIPES", folder)
    assert before == recipes.recipe().digest
    with (folder / "init").open("a") as file:
        file.write("# changed\n")
    assert before != recipes.recipe().digest


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
