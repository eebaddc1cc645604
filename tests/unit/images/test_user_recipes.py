"""A user's own recipe: read like an engine's, kept with its files under one digest, refused with its file and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rig.contract.errors import StoreError, UsageError
from rig.contract.scenario import Scenario
from rig.engines import engine_named
from rig.front import cli, programs
from rig.images import guestcode, image, recipes
from rig.images.recipes import Needs
from rig.machines.guests import name_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A recipe with a file and a folder next to it, and a program."""
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "deep" / "er.js").write_bytes(b"deeper")
    (tmp_path / "own.conf").write_bytes(b"\xff\0")
    (tmp_path / "program").write_text("#!/usr/bin/node\n")
    (tmp_path / "mydb.toml").write_text('packages = ["nodejs"]\nroot_disk_mib = 700\nfiles = ["own.conf", "lib"]\n')
    return tmp_path / "mydb.toml"


def test_a_recipe_adds_to_the_base_image_and_is_named_after_its_file(own: Path) -> None:
    base, found = recipes.recipe(), recipes.of_file(own)
    assert replace(base, name="mydb", packages=(*base.packages, "nodejs"), root_disk_mib=700) == found.recipe
    assert {"own.conf": b"\xff\0", "lib/deep/er.js": b"deeper"} == found.files
    assert found.name.startswith("mydb-")
    own.write_text(f'name = "other"\n{own.read_text()}')
    assert "other" == recipes.of_file(own).recipe.name


def test_it_outlives_its_file_and_everything_in_it_is_part_of_its_name(own: Path) -> None:
    def changed() -> Needs:
        (own.parent / "own.conf").write_bytes(b"new")
        return recipes.of_file(own)

    first = recipes.of_file(own)
    names = {first.name, changed().name}
    own.write_text(own.read_text().replace("700", "701"))
    names.add(recipes.of_file(own).name)
    own.unlink()
    assert 3 == len(names)
    assert first == recipes.stored_needs(first.name)


def test_a_kept_recipe_that_is_gone_or_damaged_says_what_to_do(own: Path, tmp_path: Path) -> None:
    found = recipes.of_file(own)
    path = tmp_path / "cache" / "recipes" / found.name
    for content in (path.read_bytes().replace(b"700", b"100"), b"x", b"{}", b"[]"):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=f"{found.name} is damaged.*--image"):
            recipes.stored_needs(found.name)
    path.unlink()
    with pytest.raises(StoreError, match=f"the recipe {found.name} is no longer in the cache; .*--image"):
        recipes.stored_needs(found.name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("package = ['x']", r"unknown key 'package'; there are: name, packages, wheels, exclude, root_disk_mib, files"),
        ("kernel = 'x'", r"unknown key 'kernel'"),
        ("like = 'x'", r"unknown key 'like'"),
        ("packages = 'x'", r"packages is 'x', which is not a list of texts"),
        ("root_disk_mib = '9'", r"root_disk_mib is '9', which is not a number"),
        ("wheels = ['x']", r"the wheel 'x' is not NAME==VERSION"),
        ("name = 'a b'", r"name is 'a b'; give the image one of letters"),
        ("name = '../a'", r"name is '\.\./a'"),
        ("name = 7", r"name is 7, which is not a text"),
        ("files = 'x'", r"files is 'x', which is not a list of texts"),
        ("files = ['absent']", r"files has 'absent', which cannot be read: No such file"),
        ("files = ['../own']", r"files has '\.\./own', which is not below the folder of the recipe"),
        ("files = ['/etc/passwd']", r"files has '/etc/passwd', which is not below"),
        ("packages = ", r"Invalid value"),
    ],
)
def test_a_recipe_that_is_wrong_is_a_usage_error_with_its_file_and_key(text: str, reason: str, own: Path) -> None:
    own.write_text(text)
    with pytest.raises(UsageError, match=rf"mydb\.toml: .*{reason}|mydb\.toml: {reason}"):
        recipes.of_file(own)


def test_a_recipe_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the recipe .*absent\.toml cannot be read: No such file"):
        recipes.of_file(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'\n")
    with pytest.raises(UsageError, match=r"latin\.toml: 'utf-8'"):
        recipes.of_file(tmp_path / "latin.toml")


def choose(own: Path, image_of: Path | None) -> tuple[Scenario, programs.Chosen]:
    found = programs.select(str(own.with_name("program")), "ext4", (), None, image_of)
    return next(one for one in found.scenarios if one.shim == "none" and one.workload_name == "own"), found


def test_a_scenario_carries_its_recipe_is_recorded_apart_and_measured_in_its_image(own: Path) -> None:
    (bare, _), (made, found) = choose(own, None), choose(own, own)
    recipe = recipes.of_file(own)
    assert {recipe.name} == {one.tuning["image"] for one in found.scenarios}
    assert made.orders.settings["image"] == recipe.name == found.build.image
    assert (bare.id, True) == (made.id, bare.recording_key != made.recording_key)
    assert ("base", "mydb") == (name_of(bare), name_of(made))
    assert (recipe.recipe, True) == (
        recipes.recipe_of(made),
        recipes.serves(recipe.recipe.digest, engine_named("program"), found.build.image),
    )
    assert recipes.recipe() == recipes.of_engine(engine_named("program")) == recipes.recipe_of(bare)
    assert not recipes.serves(recipes.recipe().digest, engine_named("program"), found.build.image)


def test_the_guest_has_the_files_beside_the_program_and_the_name_of_the_recipe(own: Path) -> None:
    build = choose(own, own)[1].build
    digest = recipes.of_file(own).recipe.digest
    archive = guestcode.addition(digest, [build])
    for path in (build.name, "own.conf", "lib/deep/er.js"):
        assert f"code/libraries/{path}\0".encode() in archive
    assert b"deeper" in archive
    assert b"code/image\0" in archive
    assert build.image.encode() in archive
    assert b"code/image\0" not in guestcode.addition(recipes.recipe().digest, [choose(own, None)[1].build])
    # All of our own engines can be measured without it.
    assert b"code/rig/engines/sqlite" not in guestcode.common(digest)


def test_a_stored_scenario_gets_its_recipe_back_and_no_other(own: Path) -> None:
    stored, found = choose(own, own)
    stored = replace(stored, tuning={**stored.tuning, "library": found.build.name})
    assert found.build == programs.of_run(stored, None, None) == programs.of_run(stored, None, str(own))
    own.write_text("")
    with pytest.raises(UsageError, match=f"made with the recipe {found.build.image}; .*mydb.toml is mydb-.* now"):
        programs.of_run(stored, None, str(own))
    without = replace(stored, tuning={"library": found.build.name})
    with pytest.raises(UsageError, match="made without a recipe"):
        programs.of_run(without, None, str(own))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--image", "mydb.toml"], "--image only with --program"),
        (["run", "--program", "program", "--fs", "ext4", "--image", "absent.toml"], "absent.toml cannot be read"),
        (["image", "build", "absent.toml"], "absent.toml cannot be read"),
    ],
)
def test_a_wrong_use_of_a_recipe_is_a_usage_error(
    words: list[str], message: str, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own.parent)
    done = CliRunner().invoke(cli.main, words)
    assert (2, True) == (done.exit_code, message in done.output), done.output


def test_the_list_tells_an_image_of_the_users_own_from_an_old_one(tmp_path: Path) -> None:
    for name in ("base-0123", "mydb-4567", f"base-{recipes.recipe().digest}"):
        (tmp_path / "cache" / "images" / name).mkdir(parents=True)
        (tmp_path / "cache" / "images" / name / "packages.txt").touch()
    lines = CliRunner().invoke(cli.main, ["image", "list"]).output.splitlines()
    told = {line.split()[2]: line.rpartition("  ")[2] for line in lines if "MiB" in line}
    assert "of another version of its recipe" == told["0123"]
    assert "of a recipe of your own" == told["4567"]
    assert told[recipes.recipe().digest].endswith(recipes.recipe().digest)


def test_packages_that_do_not_fit_on_the_root_disk_say_which_key_is_too_small(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "big").write_bytes(b"1" * (3 << 20))
    small = replace(recipes.recipe(), root_disk_mib=2)
    with pytest.raises(UsageError, match="needs more than root_disk_mib = 2"):
        image._make_root_disk(tmp_path, tmp_path / "root", small)
