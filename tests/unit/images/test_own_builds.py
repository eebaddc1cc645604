"""A recipe's version, processor and build; and wheels that come without what they need."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rig.contract.errors import UsageError
from rig.contract.orders import Processor
from rig.front import programs
from rig.host import wheels
from rig.images import recipes


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose build writes a program that names its version, and counts how often it is built."""
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "source").write_text("#!/bin/sh\n")
    command = f"cat source > mydb; echo $VERSION >> mydb; echo built > made.conf; echo >> {tmp_path}/count"
    (folder / "recipe.toml").write_text(
        f'version = "1.4"\nprocessor = "modern"\nfiles = ["made.conf"]\n[build]\ncommand = "{command}"\n'
    )
    return folder / "recipe.toml"


def test_a_recipe_builds_its_program_in_a_clean_copy_once_for_each_version(own: Path, tmp_path: Path) -> None:
    chosen = programs.select(str(own.parent / "mydb"), "ext4", (), None, own)
    assert "#!/bin/sh\n1.4\n" == chosen.build.path.read_text()
    assert {"made.conf": b"built\n"} == recipes.of_file(own).files
    assert ["recipe.toml", "source"] == sorted(path.name for path in own.parent.iterdir())
    scenario = chosen.scenarios[0]
    assert ("mydb 1.4", Processor.MODERN) == (scenario.measured_name, scenario.processor)
    own.write_text(own.read_text().replace("1.4", "1.5"))
    newer = programs.select(str(own.parent / "mydb"), "ext4", (), None, own)
    assert ("#!/bin/sh\n1.5\n", "mydb 1.5") == (newer.build.path.read_text(), newer.scenarios[0].measured_name)
    assert 2 == len((tmp_path / "count").read_text())
    assert recipes.of_file(own) == recipes.stored_needs(newer.build.image)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[build]\ncommand = 'echo no compiler >&2; exit 3'", r"the command of \[build\] failed: .*no compiler"),
        ("build = 'make'", "build is 'make'; it has one key"),
        ("[build]\ncommands = 'make'", "build is .*; it has one key"),
        ("version = 7", "version is 7, which is not a text"),
        ("processor = 'avx'", "processor is 'avx'; there are: plain, modern"),
    ],
)
def test_what_a_recipe_cannot_build_is_a_usage_error(own: Path, text: str, words: str) -> None:
    own.write_text(text)
    with pytest.raises(UsageError, match=rf"(?s)recipe\.toml: {words}"):
        recipes.of_file(own)


def test_words_and_variables_of_a_program_are_part_of_its_scenarios_and_not_of_its_build(own: Path) -> None:
    def tuned(**more: list[str]) -> tuple[str, str]:
        chosen = programs.select(str(own.parent / "mydb"), ["ext4", "xfs"], (), None, own, **more)  # type: ignore[arg-type]
        assert {"ext4", "xfs"} == {scenario.filesystem for scenario in chosen.scenarios}
        return chosen.build.name, chosen.scenarios[0].recording_key

    plain, other = tuned(), tuned(environment=["SYNC=no"], arguments=["--fast"])
    assert (True, False) == (plain[0] == other[0], plain[1] == other[1])
    with pytest.raises(UsageError, match="--env SYNC: a variable is NAME=VALUE"):
        tuned(environment=["SYNC"])


def wheel(folder: Path, name: str, *needs: str) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {need}" for need in needs)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    return path


def test_a_wheel_without_its_dependency_is_named_before_anything_runs(tmp_path: Path) -> None:
    crypto = wheel(
        tmp_path, "Crypto_Graphy", "cffi>=1.14", 'enum34; python_version < "3"', 'pytest; extra == "test"', "Six"
    )
    assert ["Crypto_Graphy needs cffi>=1.14"] == wheels.missing([crypto], ["python3-six"])
    assert not wheels.missing([crypto, wheel(tmp_path, "cffi"), wheel(tmp_path, "six")])


def test_the_whole_set_of_wheels_is_what_pip_chooses_for_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel(tmp_path, "store", "pages>=1", 'enum34; python_version < "3"')
    assert [] == wheels.whole_set(["store==1.0"])
    wheel(tmp_path, "pages")
    assert ["store==1.0", "pages==1.0"] == wheels.whole_set(["store==1.0"])
