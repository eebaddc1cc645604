"""What stood in the way of an adapter's author: a mistake, a reason that nobody saw, two file systems, AVX, wheels."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.outcome import Result
from rig.campaign.campaign import Silent
from rig.contract.errors import UsageError
from rig.contract.orders import Processor
from rig.front import programs
from rig.host import processes, wheels
from rig.machines.guests import guests
from tests.unit.docs.test_readme import commands
from tests.vm.programruns import measured_program
from tests.vm.test_program import ROOT, call, shell

_BLOCK = re.MULTILINE | re.DOTALL
PAGE = ROOT / "docs" / "how-to" / "your-own-program.md"
# With the word `hasty` it acknowledges before it syncs. Its recovery says why it finds less than was there.
_HASTY = """#!/usr/bin/python3 -IS
import os, sys
if sys.argv[1] == "run":
    assert "hasty" == sys.argv[-1] and "1" == os.environ["LEVEL"]
    with open("log", "a") as log:
        for number in range(1, int(sys.argv[5]) + 1):
            print(number, file=log, flush=True)
            if number % 4 == 0:
                os.fsync(log.fileno())
            print("ack", number, flush=True)
            assert input() == "ok"
else:
    lines = open("log", errors="replace").read().split(chr(10)) if os.path.exists("log") else []
    whole = [line for number, line in enumerate(lines, 1) if line == str(number)]
    if len(whole) < 40:
        print("the log ends after", len(whole), "lines", file=sys.stderr)
    print("".join("have " + line + chr(10) for line in whole), end="")
"""
_JVM = """#!/bin/sh
exec /usr/lib/jvm/java-21-openjdk-amd64/bin/java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \\
    -cp "$(dirname "$0")" RacingLog "$@"
"""
_AVX = """#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <stdlib.h>
int main(int count, char **words) {
    volatile int seed[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    __m256i two = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)seed), 1);
    int out[8];
    _mm256_storeu_si256((__m256i *)out, two);
    if (count > 5 && !strcmp(words[1], "run")) {
        FILE *log = fopen("log", "a");
        for (int i = out[0] / 2; i <= atoi(words[5]); i++) {
            char ok[9];
            fprintf(log, "%d\\n", i);
            fflush(log);
            fsync(fileno(log));
            printf("ack %d\\n", i);
            fflush(stdout);
            if (!fgets(ok, sizeof ok, stdin)) return 1;
        }
    }
    return 0;
}
"""


def test_an_empty_folder_comes_to_verdicts_by_the_page_alone(cache: Path, tmp_path: Path) -> None:
    page = PAGE.read_text()
    files = {name: text for text, name in re.findall(r"^```python\n((?:#![^\n]*\n)?# ([\w.]+)\n.*?)^```", page, _BLOCK)}
    assert {"mydb", "test_mydb.py", "groups"} == set(files)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    # What its tests say is tested with other programs.
    left_out = "--(image|promise)|pytest"
    plain = [command for command in commands(page) if "mydb" in command and not re.search(left_out, command)]
    synced = "  .: synced once\n  log: made once, changed 12 times, synced 12 times\n"
    expected = [
        ("--dry-run", f"{synced}recover: have 1 to 12, twice"),
        ("--fault powercut", "Every promise was kept: 2 scenarios"),
    ]
    for command, (word, answer) in zip(plain, expected, strict=True):
        assert word in command
        # The same with fewer states.
        done = shell(cache, tmp_path, command if word == "--dry-run" else f"{command} --profile smoke")
        assert 0 == done.returncode, done.stdout + done.stderr
        assert answer in done.stdout, done.stdout
    (tmp_path / "mydb").write_text(files["mydb"].replace('print("".join', 'print("have 1" if True else "".join'))
    done = shell(cache, tmp_path, plain[0])
    assert 3 == done.returncode, done.stdout + done.stderr
    assert "wrong: `recover`: it found transactions 1 to 1 where 1 to 12 were acknowledged" in done.stdout


def test_one_run_of_two_file_systems_without_controls_says_why_data_is_gone(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "hasty").write_text(_HASTY)
    words = ["--fs", "ext4", "--fs", "xfs", "--arg", "hasty", "--env", "LEVEL=1", "--states", "6", "--no-controls"]
    words += ["--no-explain", "--workload", "own"]
    done = call(cache, tmp_path, "rig", "run", "--program", "./hasty", *words, "--run-dir", "run")
    assert 1 == done.returncode, done.stdout + done.stderr
    for filesystem in ("ext4", "xfs"):
        assert f"hasty | {filesystem} | " in done.stdout
        assert f"broken program-{filesystem}-durable_powercut" in done.stdout
    # One state of each kind, with the reason that the recovery gave although it exits with 0.
    line, *_ = [line for line in done.stdout.splitlines() if "durable_powercut e" in line and "#" in line]
    words_of_line = r"# lost-suffix, lost (all )?\d+ (of \d+ )?acknowledged; \d+ such states?: .*it said: the log ends"
    assert re.search(words_of_line, line), line
    assert "starting the program or engine once in a recorder" in done.stderr
    # Of all scenarios the first one by its id is recorded again.
    again = "recording program-ext4-durable_powercut again, to see that it repeats: 2 of at most 2"
    assert again in done.stderr
    replayed = call(cache, tmp_path, "rig", "replay", *line.partition("#")[0].split()[2:])
    assert 0 == replayed.returncode, replayed.stdout + replayed.stderr
    assert "it said: the log ends after" in replayed.stdout
    assert "is the flush that closes the epoch of the cut" in replayed.stdout


class Sayings(Silent):
    """Progress that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def says(self, text: str) -> None:
        self.lines.append(text)


def test_a_jvm_program_with_racing_threads_is_recorded_twice_and_judged(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))
    example = (ROOT / "examples" / "javalog" / "recipe.toml").read_text()
    (tmp_path / "recipe.toml").write_text(example.replace("JavaLog", "RacingLog"))
    shutil.copy(Path(__file__).with_name("RacingLog.java"), tmp_path)
    sayings = Sayings()
    image = tmp_path / "recipe.toml"
    # A JVM is started twice for each state.
    summary = measured_program(
        tmp_path, _JVM, "powercut", "durable", image=image, progress=sayings, repeats="all", states=24
    )
    assert all(control.fired for control in summary.controls), summary.controls
    (row,) = (row for row in summary.rows if not row.is_sabotaged)
    assert Result.KEPT is row.judgement.result, row.judgement
    name = row.outcome.scenario.id
    assert any(f"recording {name} again, to see that it repeats: 2 of at most 2" in line for line in sayings.lines)
    assert f"{name} does not repeat: its 2 recordings differ; the last one is cut" in sayings.lines
    note = (
        "its two recordings differ, because the program does not repeat or the host was busy; a new run has other "
        "states, and each recording proves its own"
    )
    assert note in row.judgement.reasons


def test_a_program_for_a_newer_processor_is_measured_on_one_and_that_is_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))
    (tmp_path / "avx.c").write_text(_AVX)
    processes.run(
        ["cc", "-static", "-O1", "-mavx2", "-o", str(tmp_path / "avx"), str(tmp_path / "avx.c")], timeout_s=60
    )
    chosen = programs.select(str(tmp_path / "avx"), "ext4", (), None, controls=False, workload="own")
    scenarios = [replace(each, tuning={**each.tuning, "library": chosen.build.name}) for each in chosen.scenarios]
    said: list[str] = []
    with guests([chosen.build], said.append) as source:
        able = source.able(scenarios)
        assert [Processor.MODERN] == [each.processor for each in able]
        assert Processor.MODERN is source.of(able[0]).recorder.spec.processor
    assert [line for line in said if "died by SIGILL on the plain processor" in line]


def test_a_package_of_which_there_are_only_sources_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"PyPI has only the sources of docopt 0\.6\.2, and the guest builds nothing"):
        wheels.wheel("docopt", "0.6.2")
