"""What stood in the way of an adapter's author: a mistake, a reason that nobody saw, two file systems, AVX, wheels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.errors import UsageError
from rig.contract.orders import Processor
from rig.front import programs
from rig.host import processes, wheels
from rig.images.image import Image
from rig.machines.guests import guests
from rig.machines.template import Template
from tests.vm import caches
from tests.vm.test_program import ROOT, call

PAGE = ROOT / "docs" / "how-to" / "your-own-program.md"
# It acknowledges before it syncs if it is told to be hasty, and says why it finds less than it had.
_HASTY = """#!/usr/bin/python3
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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, image: Image, recorder: Template, verifier: Template) -> Path:
    return caches.furnish_cache(tmp_path_factory.mktemp("cache"), image, recorder, verifier)


def test_a_dry_run_of_the_page_answers_in_seconds_and_names_a_mistake(cache: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(#!/usr/bin/python3\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^\.venv/bin/rig (run .*--dry-run)$", PAGE.read_text(), re.MULTILINE)
    (tmp_path / "mydb").write_text(example)
    done = call(cache, tmp_path, "rig", *command.split())
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "recover: have 1 to 12, twice" in done.stdout
    assert "  log: made once, changed 12 times, synced 12 times" in done.stdout
    (tmp_path / "mydb").write_text(example.replace('print("".join', 'print("have 1" if True else "".join'))
    done = call(cache, tmp_path, "rig", *command.split())
    assert 3 == done.returncode, done.stdout + done.stderr
    assert "wrong: `recover`: it found transactions 1 to 1 where 1 to 12 were acknowledged" in done.stdout


def test_one_run_of_two_file_systems_without_controls_says_why_data_is_gone(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "hasty").write_text(_HASTY)
    words = ["--fs", "ext4", "--fs", "xfs", "--arg", "hasty", "--env", "LEVEL=1", "--states", "6", "--no-controls"]
    words.append("--no-explain")
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
    again = "recording program-ext4-durable.creation_powercut again, to see that it repeats: 2 of at most 2"
    assert again in done.stderr
    replayed = call(cache, tmp_path, "rig", "replay", *line.partition("#")[0].split()[2:])
    assert 0 == replayed.returncode, replayed.stdout + replayed.stderr
    assert "it said: the log ends after" in replayed.stdout
    assert "is the flush that closes the epoch of the cut" in replayed.stdout


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
