"""Disk space, watched in real directories by a real process: what files take, at most, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rig.speed.trials.space import Peak, Watcher, allocated_bytes, group_of

MIB = 1 << 20
NAMES = st.sampled_from(["a.db", "a.db-wal", "7.log", "12.log", "base/5/1259", "base/5/16", "LOG"])
SEEN = st.lists(st.dictionaries(NAMES, st.integers(0, 9 * MIB)), min_size=1, max_size=8)


def test_a_file_takes_its_blocks_and_no_holes_and_counts_once_under_two_names(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    sizes = {"full": MIB, "deep/er/full": 2 * MIB}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.write(b"x")
    (tmp_path / "deep" / "link").symlink_to(tmp_path / "full")
    found = allocated_bytes(tmp_path)
    assert {"full", "deep/er/full", "sparse", "deep/link"} == set(found)
    for name, size in sizes.items():
        assert size <= found[name] < size + MIB // 2
    assert 0 < found["sparse"] < MIB
    assert found["deep/link"] < MIB // 2
    (tmp_path / "again").hardlink_to(tmp_path / "full")
    assert sum(found.values()) == sum(allocated_bytes(tmp_path).values())


def test_a_folder_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert {} == allocated_bytes(tmp_path / "gone")


@given(SEEN)
def test_a_peak_is_the_most_of_each_file_of_each_group_and_of_all(seen: list[dict[str, int]]) -> None:
    peak = Peak()
    for one in seen:
        peak.add(one)
    names = {name for one in seen for name in one}
    found = peak.message
    assert max(sum(one.values()) for one in seen) == found["peak_bytes"]
    assert {name: max(one.get(name, 0) for one in seen) for name in names} == found["files"]
    logs = sorted(names & {"7.log", "12.log"})
    if logs:
        group = "*.log" if len(logs) == 2 else logs[0]
        assert max(sum(one.get(name, 0) for name in logs) for one in seen) == found["groups"][group]
    assert names & {"a.db", "a.db-wal", "LOG"} <= set(found["groups"])


@given(st.text(st.sampled_from("abxyz-._/"), max_size=9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_names_that_differ_in_numbers_only_are_of_one_group(text: str, first: int, second: int) -> None:
    assert group_of(f"{text}{first:06}.sst") == group_of(f"{text}{second:06}.sst") == f"{text}*.sst"
    assert group_of(f"{text}{first:024X}") == group_of(f"{text}{second:024X}")
    assert text == group_of(text)


def test_what_was_removed_meanwhile_was_seen_and_so_is_what_stays(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"x" * MIB)
    with Watcher(tmp_path) as watcher:
        pid = watcher._process.pid
        assert pid
        watcher.begin()
        (tmp_path / "journal").write_bytes(b"x" * 2 * MIB)
        # It pauses after each look.
        _wait_for_pauses(pid, 4)
        (tmp_path / "journal").unlink()
        (tmp_path / "late").write_bytes(b"x" * MIB)
        found = watcher.end()
    assert found
    assert {"before", "journal", "late"} == set(found["files"])
    assert 2 * MIB <= found["files"]["journal"] < 3 * MIB
    assert 3 * MIB <= found["peak_bytes"] < 4 * MIB
    assert not Path(f"/proc/{pid}").exists()


def test_a_watcher_that_was_never_told_to_begin_ends_too(tmp_path: Path) -> None:
    with Watcher(tmp_path) as watcher:
        pid = watcher._process.pid
    assert not Path(f"/proc/{pid}").exists()


def test_space_is_unknown_where_files_cannot_be_seen(tmp_path: Path) -> None:
    with Watcher(tmp_path / ("too long" * 99)) as watcher:
        watcher.begin()
        assert watcher.end() is None


def test_a_watcher_ends_with_the_process_that_it_watches_for(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from rig.speed.trials.space import Watcher\n"
        "with Watcher(Path(sys.argv[1])) as one: one.begin(); print(one._process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    end_s = time.monotonic() + 60
    while _is_alive(pid):
        assert time.monotonic() < end_s
        os.sched_yield()


def _wait_for_pauses(pid: int, count: int) -> None:
    end = _pauses(pid) + count
    end_s = time.monotonic() + 60
    while _pauses(pid) < end:
        assert time.monotonic() < end_s
        os.sched_yield()


def _pauses(pid: int) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["voluntary_ctxt_switches"])


def _is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
