"""`rig explain`, `rig export` and `rig shell` on finished runs, as a user calls them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig.contract.results import Verdict, VerdictKind
from rig.store import Run
from tests.vm.conftest import MadeOnce
from tests.vm.test_program import build_program

DELETE_FULL = "sqlite-ext4-delete_full_powercut"
CARELESS = "program-ext4-durable_powercut"
_LIMIT_S = 900


@dataclass(frozen=True)
class Finished:
    """A folder with finished runs, and what the run of the careless program printed."""

    cache: Path
    folder: Path
    printed: str = ""

    def rig(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("rig"), *words], cwd=self.folder, input=typed,
            env={**os.environ, "RIG_CACHE": str(self.cache), "COLUMNS": "140"},
            capture_output=True, text=True, check=False, timeout=_LIMIT_S,
        )  # fmt: skip

    def worst(self, scenario: str) -> str:
        """Return a state of a scenario that lost something."""
        losses = [one for one in self._verdicts(scenario) if one.lost or one.kind.is_damage]
        return max(losses, key=lambda one: one.lost).state

    def best(self, scenario: str) -> str:
        """Return a state of a scenario that kept what was acknowledged."""
        kept = [one for one in self._verdicts(scenario) if one.kind is VerdictKind.DURABLE]
        return max(kept, key=lambda one: one.acked).state

    def _verdicts(self, scenario: str) -> list[Verdict]:
        (run,) = [folder for folder in (self.folder / "runs").iterdir() if (folder / "scenarios" / scenario).exists()]
        return Run.open(run).verdicts(scenario)[0]


@pytest.fixture(scope="session")
def finished(made_once: MadeOnce, cache: Path) -> Finished:
    def fill(folder: Path) -> None:
        made = Finished(cache, folder)
        done = made.rig("run", DELETE_FULL, "--no-controls", "--profile", "smoke")
        assert done.returncode in {0, 3}, done.stdout + done.stderr
        build_program("kvlog_careless", folder)
        words = ("--fs", "ext4", "--workload", "own", "--no-controls", "--profile", "smoke")
        done = made.rig("run", "--program", "./kvlog_careless", *words)
        assert done.returncode == 1, done.stdout + done.stderr
        (folder / "printed").write_text(done.stdout)

    folder = made_once("finished", fill)
    return Finished(cache, folder, (folder / "printed").read_text())


def test_a_run_that_breaks_a_promise_explains_its_worst_state_in_terminal_and_report(finished: Finished) -> None:
    told = finished.printed[finished.printed.index("WHAT BROKE: program durable on ext4 under powercut") :]
    assert "write(data/values, 900 bytes" in told, told
    assert "no sync of data/values follows" in " ".join(told.split())
    (explained,) = (finished.folder / "runs").glob(f"*/scenarios/{CARELESS}/explanation.json")
    folder = explained.parents[2]
    again = finished.rig("report")
    assert told.splitlines()[:-1] == again.stdout[again.stdout.index("WHAT BROKE") :].splitlines()[:-1]
    page = (folder / "report.html").read_text()
    opening = page[: page.index('id="settings"')]
    assert "<title>Timeline since" in opening
    (address,) = re.findall(r'href="([^"#]+)"', opening)
    assert "write(data/values, 900 bytes" in (folder / address).read_text()


def test_a_state_is_explained_in_files_and_calls(finished: Finished) -> None:
    done = finished.rig("explain", DELETE_FULL, finished.worst(DELETE_FULL))
    assert 0 == done.returncode, done.stdout + done.stderr
    # If the next transaction has made the file again, the old one is freed and its name stays.
    assert re.search(r"(removes the name|frees) test\.db-journal", done.stdout), done.stdout
    assert "unlink(test.db-journal)" in done.stdout
    assert re.search(r"With a sync of the directory added, 0 of \d+ contents show this", done.stdout), done.stdout
    assert f"rig replay {DELETE_FULL}" in done.stdout


def test_the_careless_program_lacks_a_sync_of_its_values(finished: Finished) -> None:
    done = finished.rig("explain", CARELESS, "--worst")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "write(data/values, 900 bytes" in done.stdout, done.stdout
    assert "no sync of data/values follows" in done.stdout
    assert re.search(r"stack of write\(data/values, 900 bytes at \d+\): \w+, run, main, ", done.stdout), done.stdout
    assert re.search(r"With a sync of values added, 0 of \d+ contents show this", done.stdout), done.stdout


def test_an_explanation_is_a_page_for_an_issue_tracker(finished: Finished) -> None:
    done = finished.rig("explain", DELETE_FULL, finished.worst(DELETE_FULL), "--format", "markdown")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert done.stdout.startswith("## sqlite: lost-suffix after a power cut (delete_full on ext4)")
    for heading in ("What is enough", "Timeline", "Versions and settings", "How to reproduce"):
        assert f"### {heading}\n" in done.stdout
    assert "`journal_mode=delete`" in done.stdout
    assert "may lose the last, atomic" in done.stdout


def reproduce(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "reproduce.sh"], cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip


def test_an_exported_state_shows_its_loss_without_the_rig(finished: Finished, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    done = finished.rig("export", DELETE_FULL, finished.worst(DELETE_FULL), str(folder), "--fixture")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "PRAGMA integrity_check: ok" in done.stdout
    assert "NOT AS ACKNOWLEDGED" in done.stdout
    again = reproduce(folder)
    assert 0 == again.returncode, again.stdout + again.stderr
    assert done.stdout.startswith(again.stdout)
    with tarfile.open(folder / "files.tar.gz") as packed:
        names = sorted(name for name in packed.getnames() if name.startswith("test.db"))
    assert names == sorted(path.name for path in (folder / "fixture").glob("test.db*"))
    disk = subprocess.run(["gunzip", "-c", "disk.img.gz"], cwd=folder, capture_output=True, check=True, timeout=60)
    (folder / "disk.img").write_bytes(disk.stdout)
    # An ordinary user's PATH has no system directories.
    found = subprocess.run(
        ["/usr/sbin/e2fsck", "-fy", "disk.img"], cwd=folder, capture_output=True, check=False, timeout=60
    )
    assert found.returncode in {0, 1}, found.stdout
    # The disk has what landed in the state: once recovered, it has the same files.
    for path in (folder / "fixture").glob("test.db*"):
        dump = ["/usr/sbin/debugfs", "-R", f"dump /{path.name} dumped", "disk.img"]
        subprocess.run(dump, cwd=folder, capture_output=True, check=True, timeout=60)
        assert path.read_bytes() == (folder / "dumped").read_bytes(), path.name
    again = finished.rig("export", DELETE_FULL, finished.worst(DELETE_FULL), str(folder))
    assert 2 == again.returncode
    assert "not empty" in again.stderr


@pytest.mark.parametrize("scenario", [DELETE_FULL, CARELESS])
def test_an_exported_state_that_lost_nothing_says_so(finished: Finished, tmp_path: Path, scenario: str) -> None:
    done = finished.rig("export", scenario, finished.best(scenario), str(tmp_path / "exported"))
    assert 0 == done.returncode, done.stdout + done.stderr
    # A program is run in machines only, unless its user wants it here.
    assert ("reproduce.sh was not run" in done.stderr) is (scenario == CARELESS)
    again = reproduce(tmp_path / "exported")
    assert 1 == again.returncode, again.stdout + again.stderr
    assert "nothing is lost" in again.stdout


def test_an_exported_program_shows_its_loss_and_not_that_of_the_host(finished: Finished, tmp_path: Path) -> None:
    done = finished.rig("export", CARELESS, finished.worst(CARELESS), str(tmp_path / "exported"), "--run-program")
    assert 0 == done.returncode, done.stdout + done.stderr
    again = reproduce(tmp_path / "exported")
    assert 0 == again.returncode, again.stdout + again.stderr
    assert done.stdout.startswith(again.stdout)
    assert "NOT AS ACKNOWLEDGED" in again.stdout
    assert re.search(r"^< have \d+$", again.stdout, re.MULTILINE), again.stdout
    other = reproduce(tmp_path / "exported", PROGRAM=str(tmp_path / "exported" / "program" / "kvlog_careless"))
    assert (0, again.stdout) == (other.returncode, other.stdout)
    lacking = reproduce(tmp_path / "exported", PROGRAM="/nowhere/kvlog_careless")
    assert 2 == lacking.returncode, lacking.stdout + lacking.stderr
    assert "THIS HOST CANNOT SHOW IT" in lacking.stdout


def test_a_shell_sees_the_files_of_the_state(finished: Finished) -> None:
    done = finished.rig("shell", DELETE_FULL, finished.worst(DELETE_FULL), typed="ls -l\nexit 7\n")
    assert 7 == done.returncode, done.stdout + done.stderr
    assert "test.db" in done.stdout


def test_a_shell_whose_output_nobody_reads_ends(finished: Finished) -> None:
    words = [str(Path(sys.executable).with_name("rig")), "shell", DELETE_FULL, finished.worst(DELETE_FULL)]
    environment = {**os.environ, "RIG_CACHE": str(finished.cache)}
    with subprocess.Popen(
        words, cwd=finished.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.close()
        assert 3 == process.wait(_LIMIT_S)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((DELETE_FULL,), "name a scenario and a state, or give --worst"),
        ((DELETE_FULL, "e1.f9"), "is no state that"),
        ((DELETE_FULL, "e1.f9", "--worst"), "name a scenario and a state, or give --worst"),
    ],
)
def test_what_cannot_be_explained_is_told_in_a_line(finished: Finished, words: tuple[str, ...], says: str) -> None:
    done = finished.rig("explain", *words)
    assert 2 == done.returncode
    assert says in done.stderr


def test_a_state_that_no_recording_has_is_no_state_to_export(finished: Finished, tmp_path: Path) -> None:
    done = finished.rig("export", DELETE_FULL, "e1.f9", str(tmp_path / "folder"))
    assert 2 == done.returncode
    assert "is not a crash state" in done.stderr
