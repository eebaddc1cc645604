"""A user's program on real machines: the examples get the promised answers, and misconduct costs one state."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.explain.explanation import explain
from rig.analysis.explain.story import paragraph
from rig.campaign import evidence, verification
from rig.campaign.record import record
from rig.contract.errors import EngineError
from rig.contract.orders import ADD_EVERYTHING
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.engines import engine_named
from rig.engines.builds import Library, library_for
from rig.faults import CrashState, WriteLog, epochs
from rig.faults.states.state import make_state
from rig.front import programs
from rig.host import processes
from rig.images import image as vm_image
from rig.images import recipes
from rig.machines.guests import Machines, guests
from rig.planning import matrix
from rig.recordings.timeline import Timeline
from tests.vm.samples import findings, open_recording

ROOT = Path(__file__).resolve().parents[2]
GIT, REDIS = ROOT / "examples" / "git", ROOT / "examples" / "redis"
_LIMIT_S = 900
# Which transactions it finds decides what a recovery does; the seed decides what the run does.
_ODD = """#!/bin/sh
answer() { i=0; while [ $i -lt $n ]; do i=$((i + 1)); echo "have $i"; done; }
if [ "$1" = recover ]; then
    n=$(cat log 2>/dev/null | wc -l)
    case $n in
    1) kill -SEGV $$ ;;
    2) while :; do :; done ;;
    3) setsid sleep 1000 & answer ;;
    4) echo >> log; answer ;;
    5) yes 'have 1' ;;
    6) echo found > /tmp/kept || exit 6 ;;
    7) exec python3 -c 'taken = [b"1" * (1 << 24) for _ in range(99)]' ;;
    *) answer ;;
    esac
    exit
fi
i=0
while [ $i -lt "$5" ]; do
    i=$((i + 1))
    case $3$i in
    22) echo here > /tmp/elsewhere || exit 3 ;;
    32) cat /dev/zero > big || exit 4 ;;
    42) sleep 100000 ;;
    52) echo "ack 1" ;;
    62) for each in /*; do
            case $each in /proc | /sys | /dev | /run | /tmp | /mnt) ;; *) ls -alR "$each" && grep -r RIG "$each" ;; esac
        done > /dev/null 2>&1 ;;
    esac
    echo $i >> log
    sync -d log
    echo "ack $i"
    read -r ok
done
"""


def build_program(name: str, folder: Path) -> Path:
    source = ROOT / "examples" / "kvlog" / f"{name}.c"
    processes.run(["cc", "-static", "-Wall", "-Wextra", "-Werror", "-o", str(folder / name), str(source)], timeout_s=60)
    return folder / name


def call(cache: Path, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return _run(cache, folder, [str(Path(sys.executable).with_name(program)), *words])


def shell(cache: Path, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return _run(cache, folder, ["sh", "-c", command])


def _run(cache: Path, folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # Where this variable is set, as on hosts of nightly tests, the summary of pytest repeats each failure in full.
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        words, cwd=folder, env={**inherited, "RIG_CACHE": str(cache), "COLUMNS": "140"},
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip


_MADE = """#!/usr/bin/python3 -IS
import os, sys
def synced(path):
    os.fsync(os.open(path, os.O_RDONLY))
if sys.argv[1] == "run":
    name = "{name}"
    with open(name, "w") as file:
        synced(".")
        print("a header that every opening checks", file=file)
    {sync}
    os.rename(name, "db")
    with open("db", "a") as file:
        for number in range(1, int(sys.argv[5]) + 1):
            print(number, file=file, flush=True)
            os.fsync(file.fileno())
            synced(".")
            print("ack", number, flush=True)
            assert input() == "ok"
elif os.path.exists("db"):
    header, *lines = open("db").read().splitlines() or [""]
    if header != "a header that every opening checks":
        sys.exit("this is no database")
    print("".join("have " + line + chr(10) for line in lines), end="")
"""


@pytest.mark.parametrize(
    ("name", "sync", "code"), [("db", "pass", 1), ("new", "synced(name)", 0)], ids=["careless", "mended"]
)
def test_a_program_that_never_opens_again_when_it_is_cut_while_it_is_made_is_found_by_its_creations(
    cache: Path, tmp_path: Path, name: str, sync: str, code: int
) -> None:
    (tmp_path / "made").write_text(_MADE.format(name=name, sync=sync))
    (tmp_path / "test_made.py").write_text(
        "def test_creation(durability_of):\n"
        '    durability_of("./made", filesystem="ext4", workload="creation", promise="atomic").check()\n'
    )
    words = ("-q", "-p", "no:cacheprovider", "--rig-run-dir=run", "--rig-profile=smoke", "--rig-no-explain")
    done = call(cache, tmp_path, "pytest", *words, "test_made.py")
    assert code == done.returncode, done.stdout + done.stderr
    assert ("this is no database" in done.stdout) is bool(code)


def test_the_careless_example_fails_a_test_of_five_lines_with_states_to_replay(cache: Path, tmp_path: Path) -> None:
    build_program("kvlog_careless", tmp_path)
    (tmp_path / "test_kvlog.py").write_text(
        'def test_power_cut(durability_of):\n    durability_of("./kvlog_careless", filesystem="ext4").check()\n'
    )
    words = ("-q", "-p", "no:cacheprovider", "--rig-run-dir=run", "--rig-profile=smoke")
    done = call(cache, tmp_path, "pytest", *words, "test_kvlog.py")
    assert 1 == done.returncode, done.stdout + done.stderr
    assert "broken, expected kept" in done.stdout, done.stdout
    assert "the value does not have the checksum of its entry" in done.stdout
    assert "WHAT BROKE: program durable on ext4 under powercut: Acknowledged transactions are gone" in done.stdout
    assert "no sync of data/values" in done.stdout
    lines = [line for line in done.stdout.splitlines() if "rig replay program-ext4-durable_powercut" in line]
    assert len(lines) == len(set(lines)), "the table and the states to replay are shown once"
    replayed = call(cache, tmp_path, *shlex.split(lines[0], comments=True))
    assert 0 == replayed.returncode, replayed.stdout + replayed.stderr
    assert "lost-suffix" in replayed.stdout


@pytest.fixture(scope="module")
def odd(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Library, Machines]]:
    path = tmp_path_factory.mktemp("odd") / "odd"
    path.write_text(_ODD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIG_CACHE", str(cache))
        library = library_for({"program"}, str(path))
        with guests([library]) as source:
            yield library, source.of(scenario_of(library, 1))


def scenario_of(library: Library, seed: int) -> Scenario:
    offered = {one.id: one for one in matrix.scenarios_of([engine_named("program")])}
    workload = WorkloadSpec(transaction_count=9, think_ms=50, rest_ms=100, name="own")
    tuning = {"library": library.name, **({"image": library.image} if library.image else {})}
    return replace(offered["program-ext4-durable_powercut"], workload=workload, seed=seed, tuning=tuning)


def durable_at(log: WriteLog, entry: int) -> CrashState:
    """What is durable just before an entry, and nothing else."""
    epoch = next(one for one in epochs(log) if one.begin <= entry <= one.end)
    return make_state(epoch, sum(fua < entry for fua in epoch.fuas))


def test_a_recovery_that_goes_wrong_costs_its_own_state_and_leaves_nothing_behind(
    odd: tuple[Library, Machines], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second machine that waits for the program without an end waits as long as the first, not six times.
    monkeypatch.setattr(verification, "_PATIENCE", 1)
    library, machines = odd
    scenario = scenario_of(library, 1)
    with open_recording(record(scenario, machines.recorder, tmp_path)) as (_, log):
        states = [durable_at(log, ack.entry_index) for ack in Timeline(log.marks).acks]
        found = findings(scenario, machines.checker, log, states)
    told = [(one.kind, one.recovered, one.detail) for one in found]
    expected = [
        ("died", None, "it died by SIGSEGV"),
        ("stuck", None, "stuck while opening: it computed for "),
        ("kept-open", 3, "it left a process behind when it ended"),
        ("fickle", None, "it said first: have 1-4; asked again, it printed more than 1 MiB"),
        ("corrupt", None, "it printed more than 1 MiB, beginning with 'have 1"),
        ("unopenable", None, "it ended with exit code 6; it said: "),
        ("out-of-memory", None, ""),
        ("prefix", 8, ""),
        ("prefix", 9, ""),
    ]
    if "this host is too busy" in told[1][2]:
        # Its machine hardly had a processor, so nobody can tell that the program was stuck.
        expected[1] = ("hang", None, told[1][2])
    assert [one[:2] for one in expected] == [one[:2] for one in told], told
    assert all(text.startswith(words) for (_, _, words), (_, _, text) in zip(expected, told, strict=True)), told
    assert "Read-only file system" in told[5][2]


def test_a_run_may_read_all_of_the_guest(odd: tuple[Library, Machines], tmp_path: Path) -> None:
    library, machines = odd
    # It would be void if anything had to come from the host's disk: a file, a folder that was never listed, a link.
    record(scenario_of(library, 6), machines.recorder, tmp_path)


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (2, "ended with exit code 3 before it had said `ack 2`; it said: "),
        (3, "ended with exit code 4 before it had said `ack 2`; it said: cat: write error: No space left on device"),
        (4, "the engine got stuck: it computed for 0 s of 100"),
        (5, "said 'ack 1' where `ack 2` was due"),
    ],
)
def test_a_run_that_goes_wrong_is_an_error_of_one_line(
    seed: int, words: str, odd: tuple[Library, Machines], tmp_path: Path
) -> None:
    library, machines = odd
    with pytest.raises(EngineError) as caught:
        record(scenario_of(library, seed), machines.recorder, tmp_path)
    assert words in str(caught.value)


def test_redis_loses_what_exec_has_answered_only_if_its_log_is_synced_once_a_second(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))
    vm_image.build(recipes.of_file(REDIS / "recipe.toml").recipe)
    names = ("always", "everysec")
    builds = {name: programs.select(str(REDIS / name), "ext4", (), None, REDIS / "recipe.toml").build for name in names}
    recovered, explained = {}, []
    with guests(list(builds.values())) as source:
        for name, build in builds.items():
            scenario = scenario_of(build, 1)
            machines = source.of(scenario)
            recording = record(scenario, machines.recorder, tmp_path / name)
            with evidence.of_recording(scenario, recording, machines) as of_run:
                log = of_run.logs.first
                states = [durable_at(log, ack.entry_index + 1) for ack in of_run.timeline.acks[2::3]]
                verdicts = of_run.judge([(state, None) for state in states])
                recovered[name] = [verdict.recovered for verdict in verdicts]
                lost = [pair for pair in zip(states, verdicts, strict=True) if pair[1].lost]
                explained += [explain(of_run, *pair, 60) for pair in lost[:1]]
    assert [3, 6, 9] == recovered["always"]
    assert [3, 6, 9] != recovered["everysec"]
    (why,) = explained
    blame = why.blames[0]
    assert ("write", "redis-server", why.loss.subject) == (blame.call.name, blame.call.program, blame.call.number)
    assert re.fullmatch(r"data/appendonlydir/appendonly\.aof\.\d+\.incr\.aof", blame.call.path), blame
    assert blame.missing == "appendonlydir/appendonly.aof.N.incr.aof"
    # The sync mends most of it. On a slow host a sync of the second is under way when Redis has to write: then it
    # answers and writes later, which no sync mends.
    first, *others = why.checks
    assert (first.added, first.failure) == ((blame.missing,), "")
    assert any(check.is_gone for check in (first, *others)) or first.broken_after < first.broken_before, why.checks


def test_git_by_default_makes_no_sync_and_what_a_commit_has_named_may_be_empty(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(cache))
    vm_image.build(recipes.of_file(GIT / "recipe.toml").recipe)
    build = programs.select(str(GIT / "default"), "ext4", (), None, GIT / "recipe.toml").build
    # Several seconds, so that ext4 commits its journal in the middle of them.
    scenario = replace(scenario_of(build, 1), workload=WorkloadSpec(10, think_ms=1500, rest_ms=6000))
    with guests([build]) as source:
        machines = source.of(scenario)
        recording = record(scenario, machines.recorder, tmp_path)
        with evidence.of_recording(scenario, recording, machines) as of_run:
            verdicts = of_run.judge([(cut.state, None) for cut in of_run.plan((1, 9), 24)])
            damaged = [verdict for verdict in verdicts if verdict.kind.is_damage]
            assert damaged, verdicts
            why = explain(of_run, evidence.state_of(of_run, damaged[-1].state), damaged[-1], 60)
    assert not why.has_syncs
    assert "The workload makes no sync call at all (" in paragraph(why)
    changes = [change for writes in (*why.lost, *why.landed) for write in writes for change in write.changes]
    assert any(change.path.startswith("data/.git/") for change in changes), changes
    assert ((ADD_EVERYTHING,), True) == (why.checks[-1].added, why.is_proven), why.checks
