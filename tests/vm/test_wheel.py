"""The rig as a dependency: a stranger installs the wheel, measures with it, tests their own project, and removes it.

The folders have blanks, accents and an apostrophe in their names, LC_ALL is C, and local time is fourteen hours ahead
of UTC: none of this may make a difference.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rig.images.image import Image
from rig.machines.template import Template
from rig.store import Run
from tests.unit import wheels
from tests.vm import caches

SCENARIO = "sqlite-ext4-wal_full_powercut"
_LIMIT_S = 900
# The README's own example.
_EXAMPLE = re.compile(r"^```python\n(# test_durability\.py\n.*?)^```", re.MULTILINE | re.DOTALL)
_PINNED = re.compile(r"^[\w.-]+==[\w.]+", re.MULTILINE)


class Stranger:
    """A user with an empty environment, an empty folder and a cache, and no access to this clone."""

    def __init__(self, folder: Path, image: Image, *templates: Template) -> None:
        self.project = folder / "le projet d'été"
        self.environment = folder / "un venv à part"
        self.cache = folder / "le cache d'été"
        self.project.mkdir()
        # Other tests make these.
        caches.furnish_cache(self.cache, image, *templates)
        self.call(sys.executable, "-m", "venv", self.environment)

    @property
    def packages(self) -> Path:
        (found,) = self.environment.glob("lib/python3*/site-packages")
        return found

    def installed(self) -> set[str]:
        """Return all files in the environment except compiled Python."""
        found = (path for path in self.environment.rglob("*") if "__pycache__" not in path.parts)
        return {str(path.relative_to(self.environment)) for path in found}

    def call(self, program: str | Path, *words: str | Path, code: int = 0) -> str:
        """Run a program of the environment in the project and return what it printed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "RIG_"))}
        kept.pop("VIRTUAL_ENV", None)
        own = {"PATH": f"{self.environment / 'bin'}:/usr/bin:/bin", "LC_ALL": "C", "TZ": "Pacific/Kiritimati"}
        done = subprocess.run(
            [program, *words], cwd=self.project, env=kept | own | {"RIG_CACHE": str(self.cache), "COLUMNS": "140"},
            capture_output=True, text=True, check=False, timeout=_LIMIT_S,
        )  # fmt: skip
        assert code == done.returncode, f"{program} {words}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def python(self, *words: str | Path, code: int = 0) -> str:
        return self.call(self.environment / "bin" / "python", *words, code=code)

    def rig(self, *words: str, code: int = 0) -> str:
        return self.call(self.environment / "bin" / "rig", *words, code=code)

    def pip(self, *words: str | Path) -> None:
        self.python("-m", "pip", "--disable-pip-version-check", *words)


@pytest.fixture
def stranger(tmp_path: Path, image: Image, recorder: Template, verifier: Template) -> Stranger:
    return Stranger(tmp_path, image, recorder, verifier)


def install(stranger: Stranger, wheel: Path, folder: Path) -> set[str]:
    """Install the wheel's dependencies in the locked versions, then the wheel; return what was installed before it."""
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(_PINNED.findall((wheels.ROOT / "requirements.lock").read_text())))
    stranger.pip("install", "--only-binary=:all:", f"--constraint={constraints}", wheel)
    stranger.pip("check")
    stranger.pip("uninstall", "--yes", "powercut-rig")
    before = stranger.installed()
    stranger.pip("install", "--no-deps", "--no-index", wheel)
    return before


@pytest.mark.representative
def test_a_stranger_installs_the_wheel_measures_tests_their_project_and_removes_it(
    stranger: Stranger, tmp_path: Path
) -> None:
    clone = wheels.clone(tmp_path / "le clone d'été")
    wheel = wheels.wheel(clone, tmp_path / "dist")
    before = install(stranger, wheel, tmp_path)
    ours = stranger.installed()
    packages = str(stranger.packages.relative_to(stranger.environment))
    top = {name.removeprefix(f"{packages}/").partition("/")[0] for name in ours - before} - {"bin"}
    assert {"rig", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"} == top
    assert {"bin/rig"} == {name for name in ours - before if name.startswith("bin/")}
    place = "import rig, sys; print(rig.__file__, *sys.path, sep='\\n')"
    where = stranger.python("-c", place)
    assert where.startswith(str(stranger.packages / "rig"))
    assert str(wheels.ROOT) not in where

    assert "MISS" not in stranger.rig("doctor")
    assert stranger.rig("image", "build").startswith(str(stranger.cache / "images" / "base-"))
    assert "there are: base" in stranger.call("sh", "-c", "rig image build nosuch 2>&1", code=2)
    measures(stranger)
    guards_a_project(stranger)
    brings_an_engine(stranger, wheels.wheel(clone / "examples" / "appendlog", tmp_path / "engine"))

    assert ours == stranger.installed(), "a run wrote into the environment"
    assert {"runs", "test_durability.py"} == {path.name for path in stranger.project.iterdir()}
    stranger.pip("uninstall", "--yes", "powercut-rig")
    assert before == stranger.installed()
    assert not (stranger.packages / "rig").exists()


def measures(stranger: Stranger) -> None:
    said = stranger.rig("run", SCENARIO, "--profile", "smoke")
    assert "Every promise was kept: " in said
    (folder,) = (stranger.project / "runs").iterdir()
    assert f"report: runs/{folder.name}/report.html" in said.splitlines()
    # Runs are named after the user's local time.
    begun = datetime.strptime(folder.name, "%Y-%m-%d-%H%M%S").replace(tzinfo=UTC) - timedelta(hours=14)
    assert timedelta(0) < datetime.now(UTC) - begun < timedelta(seconds=_LIMIT_S)
    state = Run.open(folder).verdicts(SCENARIO)[0][0].state
    assert "durable" in stranger.rig("replay", SCENARIO, state)
    assert said == stranger.rig("report")


def guards_a_project(stranger: Stranger) -> None:
    """Run the README's test file with the command below it."""
    (example,) = _EXAMPLE.findall((wheels.ROOT / "README.md").read_text())
    (stranger.project / "test_durability.py").write_text(example)
    words = ["-p", "no:cacheprovider", "-k", "wal_normal_powercut", "-rA", "--rig-profile=smoke"]
    said = stranger.python("-B", "-m", "pytest", *words)
    assert "1 passed" in said
    assert "sqlite-ext4-wal_normal_powercut" in said
    assert "may lose a suffix" in said, "a test that passes shows its figures with -rA"


def brings_an_engine(stranger: Stranger, wheel: Path) -> None:
    """An engine in its own package has ids, controls, promises and mutants, with no change to the rig."""
    stranger.pip("install", "--no-deps", "--no-index", wheel)
    ids = stranger.rig("plan", "appendlog-*").splitlines()
    assert {"appendlog-ext4-always_torn", "appendlog-ext4-never_processkill"} < set(ids)
    wanted = ("appendlog-ext4-always_powercut", "appendlog-ext4-always+drop-log-commit_powercut")
    said = stranger.rig("run", *wanted, "--profile", "smoke")
    assert re.search(r"^ always .* loses nothing +kept", said, re.MULTILINE)
    assert "control never (powercut) fired" in said
    assert "control always+eatmydata (powercut) fired" in said
    assert "left out of appendlog always on ext4: 1 / 1 syncs that matter were noticed" in said
    refused = stranger.call("sh", "-c", "rig run appendlog-ext4-always_ioerror-write 2>&1", code=2)
    assert "cannot be measured under ioerror-write" in refused
    stranger.pip("uninstall", "--yes", "appendlog-for-the-rig")
    assert "no scenario matches 'appendlog-*'" in stranger.call("sh", "-c", "rig plan 'appendlog-*' 2>&1", code=2)
