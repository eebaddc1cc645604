"""`rig speed` on a real directory: trials, order, what is stored, and what is left behind. No test asserts a time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from rig.contract.errors import EngineError, HostError
from rig.contract.messages import decode
from rig.engines import engine_named
from rig.front import cli
from rig.speed import session, speeds
from rig.speed.arms import arms_of
from rig.speed.ondisk import on_disk
from rig.speed.trials.loads import Carried, Load
from rig.speed.trials.trial import TrialOrders
from rig.workloads.operations import apply

RIG = Path(sys.executable).with_name("rig")


class Told:
    """Progress, kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.planned_count = self.done_count = 0

    def says(self, text: str) -> None:
        self.lines.append(text)

    def expect(self, cut_count: int) -> None:
        self.planned_count += cut_count

    def advance(self, cut_count: int) -> None:
        self.done_count += cut_count


def small(
    *patterns: str, rows: int = 0, writers: int = 1, readers: int = 0, think_ms: int = 0, **changes: str
) -> session.SpeedPlan:
    return session.of_arms(arms_of(patterns, [Load(rows, 5, writers, 3, rows, readers, think_ms)], changes), 3)


def on_this_disk(plan: session.SpeedPlan, folder: Path, repeats: int, seed: int, told: Told) -> speeds.Speeds:
    with on_disk(folder, plan.needed_bytes) as bench:
        return session.measure(plan, bench, repeats, seed, told)


def test_every_arm_is_measured_in_every_round_and_nothing_is_left(tmp_path: Path) -> None:
    told = Told()
    found = on_this_disk(small("wal_full", "delete_off"), tmp_path, 3, 3, told)
    assert [] == list(tmp_path.iterdir())
    assert (8, 8) == (told.planned_count, told.done_count)
    rounds = [(one.round, one.arm) for one in found.trials]
    assert sorted((number, arm) for number in range(4) for arm in found.arms) == sorted(rounds)
    assert [0, 0, 1, 1, 2, 2, 3, 3] == [number for number, _ in rounds]
    for one in found.trials:
        assert (5, 5) == (one.transactions, len(one.latencies_ns))
        assert one.user_bytes > 0
        assert sum(one.latencies_ns) <= one.wall_ns
    assert "wal" == found.arms["wal_full"].read_back["journal_mode"]
    assert "off" == found.arms["delete_off"].read_back["synchronous"]
    assert {"wal_full"} == {one.base for one in found.arms.values()}


@dataclass(frozen=True)
class Uneven:
    """A bench that claims to be virtual; its trials are real, and take the given times in turn."""

    inner: session.Bench
    times_ns: Iterator[int]

    def survey(self) -> session.Survey:
        return replace(self.inner.survey(), virtual={"device": "none"})

    def obstacles(self, orders: Mapping[str, TrialOrders]) -> dict[str, str]:
        return self.inner.obstacles(orders)

    def carry_out(self, orders: TrialOrders) -> dict[str, Any]:
        return self.inner.carry_out(orders) | {"wall_ns": next(self.times_ns)}


@pytest.mark.parametrize(
    ("times_ns", "kept_ns"),
    [
        ([9, 5, 5], [9, 5, 5]),
        ([9, 7, 5, 5], [9, 5, 5]),
        ([9, 5, 7, 8, 7], [9, 7, 7]),
        # The first ones stand if no further run helps.
        (range(1, 12), [1, 2, 3]),
    ],
)
def test_a_virtual_run_that_differs_is_made_again_but_not_the_one_that_was_watched(
    tmp_path: Path, times_ns: Sequence[int], kept_ns: list[int]
) -> None:
    plan, told, left = small("wal_off"), Told(), iter(times_ns)
    with on_disk(tmp_path, plan.needed_bytes) as bench:
        found = session.measure(plan, Uneven(bench, left), 2, 1, told)
    assert kept_ns == [one.wall_ns for one in found.trials]
    assert [0, 1, 2] == [one.round for one in found.trials]
    assert [True, False, False] == [one.space is not None for one in found.trials]
    assert len(times_ns) - 3 == sum("differ, so it runs again" in line for line in told.lines)
    assert not list(left)


def test_the_order_comes_from_the_seed_and_is_not_always_the_same() -> None:
    orders = [list(session.schedule(["a", "b", "c"], 10, seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert 1 < len({tuple(arm for number, arm in orders[0] if number == one) for one in range(11)})


def test_a_setting_that_syncs_flushes_where_flushes_are_counted(tmp_path: Path) -> None:
    found = on_this_disk(small("delete_full"), tmp_path, 2, 1, Told())
    if not found.disks or not found.probe.flush_per_sync:
        # Where no disk counts flushes, no trial may claim any.
        assert not any(one.disk and one.disk.flush_count for one in found.trials)
        return
    for one in found.trials:
        assert one.disk
        assert (one.disk.flush_count or 0) >= 5


def test_the_space_of_each_file_is_watched_in_the_warm_up_alone_and_stored(tmp_path: Path) -> None:
    found = on_this_disk(small("wal_full", "delete_full"), tmp_path, 1, 1, Told())
    speeds.save(found, tmp_path / "speed.json")
    assert found.trials == speeds.load(tmp_path / "speed.json").trials
    spaces = {(one.round, one.arm): one.space for one in found.trials}
    assert {1} == {number for (number, _), space in spaces.items() if space is None}
    wal, journal = (spaces[0, arm] for arm in found.arms)
    assert wal
    assert journal
    (database,) = (name for name in wal.files if "-" not in name)
    assert {f"{database}-wal", f"{database}-shm"} <= set(wal.files)
    for one in (wal, journal):
        assert one.files == one.groups
        assert max(one.files.values()) <= one.peak_bytes <= sum(one.files.values())
        assert 4096 <= one.peak_bytes < 4 << 20
    for trial in found.trials:
        assert (trial.live_bytes or 0) > 0
        # The file system takes whole blocks.
        assert (trial.live_bytes or 0) < (trial.allocated_bytes or 0) == (trial.allocated_bytes or 0) // 512 * 512
        if trial.space:
            assert (trial.allocated_bytes or 0) <= trial.space.peak_bytes


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(0, 6), st.integers(0, 3))
def test_writers_insert_rows_that_nobody_else_inserts(
    rows: int, transactions: int, writers: int, filled: int, seed: int
) -> None:
    carried = Carried(Load(rows, transactions, writers, seed, filled), engine_named("sqlite").spec)
    content: dict[str, dict[int, tuple[int | str, ...]]] = {table.name: {} for table in carried.tables}
    apply(content, carried.initial)
    for writer in range(writers):
        for operations in carried.transactions(writer):
            assert rows == len(operations)
            apply(content, operations)
    assert {rows * transactions * writers + filled} == {len(table) for table in content.values()}


# The ledger deletes what is older than 24 transactions.
@example(0, 60, 0, 1)
@given(st.integers(0, 3), st.integers(1, 40), st.integers(0, 6), st.integers(0, 3))
def test_the_data_that_is_there_at_the_end_is_what_all_transactions_leave(
    rows: int, transactions: int, filled: int, seed: int
) -> None:
    carried = Carried(Load(rows, transactions, 2 if rows else 1, seed, filled), engine_named("sqlite").spec)
    work = [carried.transactions(writer) for writer in range(carried.load.writers)]
    content: dict[str, dict[int, tuple[int | str, ...]]] = {table.name: {} for table in carried.tables}
    for operations in (carried.initial, *(one for part in work for one in part)):
        apply(content, operations)
    sizes = [
        8 if isinstance(value, int) else len(value)
        for table in content.values()
        for row in table.values()
        for value in row
    ]
    assert sum(sizes) + 8 * sum(map(len, content.values())) == carried.live_bytes(work)


def test_several_writers_write_all_that_they_were_told(tmp_path: Path) -> None:
    (one, *_) = on_this_disk(small("wal_off", rows=3, writers=3), tmp_path, 1, 1, Told()).trials
    assert (15, 45, 15) == (one.transactions, one.rows, len(one.latencies_ns))


@given(st.integers(0, 9), st.integers(0, 100), st.text(max_size=5))
def test_orders_arrive_as_they_were_sent(seed: int, rows: int, value: str) -> None:
    for load in (None, Load(rows, 5, 1, seed), Load(rows, 5, 1, seed, 9, 3, 20)):
        sent = TrialOrders("rig.engines.sqlite", seed, {"page_size": value}, load)
        assert sent == decode(TrialOrders, json.loads(json.dumps(asdict(sent))))


def test_without_names_all_settings_that_differ_are_measured_the_strict_one_first() -> None:
    names = [arm.name for arm in arms_of((), [Load(0, 1, 1, 1)], {})]
    assert "wal_full" == names[0]
    assert {"delete_off", "delete_extra", "truncate_full", "persist_normal"} <= set(names)
    assert not {"wal_extra", "memory_off", "off_full"} & set(names)
    assert len(set(names)) == len(names)


def test_names_may_have_an_engine_and_each_load_has_its_own_base() -> None:
    loads = [Load(rows, 5, 1, 1) for rows in (1, 10)]
    plan = session.of_arms(arms_of(("sqlite-wal_*", "lmdb-nosync"), loads, {}), 1)
    assert {"sqlite-wal_off, 1 row", "sqlite-wal_off, 10 rows"} == {facts.base for _, facts in plan.arms.values()}
    assert "lmdb-nosync, 10 rows" in plan.arms


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wal_ful"], "no settings of sqlite match 'wal_ful'; there are: delete_off"),
        (["oracle-fast"], "unknown engine 'oracle' in 'oracle-fast'; there are:"),
        (["files-append"], "the transactions of files are its own"),
        (["--rows", "1,x"], "--rows takes numbers above 0"),
        (["--rows", "0"], "--rows takes numbers above 0"),
        (["--writers", "2"], "--filled, --writers and --readers go with --rows"),
        (["--readers", "2"], "--filled, --writers and --readers go with --rows"),
        (["--rows", "1", "--readers", "2"], "--readers look up rows that are there before: give --filled too"),
        (
            ["rocksdb-sync", "--rows", "1", "--writers", "2"],
            "rocksdb takes no --writers above 1 and no --readers: its binding for Python carries out one write",
        ),
        (["--document", "S0", "--pause-ms", "1"], "--document brings its own load"),
        (["--tune", "page_size"], "--tune page_size: a tuning is NAME=VALUE"),
        (["--tune", "journal_mode=wal"], "journal_mode is part of the name of an arm"),
        (["--document", "S0", "--scale", "nan"], "'nan' is not a finite number"),
        (["--document", "S99"], "unknown document 'S99'; there are:"),
        (["--document", "S0", "wal_full"], "S0 has no arm 'wal_full'"),
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(tmp_path: Path, words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli.main, ["speed", "--dir", str(tmp_path), *words])
    assert (2, True) == (result.exit_code, message in result.output), result.output
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say where: --dir DIRECTORY for your own disk, or --fs WORD"),
        (["--dir", ".", "--fs", "ext4"], "say where: --dir DIRECTORY for your own disk, or --fs WORD"),
        (["--dir", ".", "--device", "hdd7200"], "--device goes with --fs"),
        (["--fs", "ext5"], "ext5"),
        (["--fs", "btrfs.raid1"], "rig speed measures on one disk, and btrfs.raid1 lies on two"),
        (["--fs", "ext4.raid1"], "rig speed measures on one disk, and ext4.raid1 lies on two"),
        (["--fs", "ext4", "--device", "floppy"], "unknown device 'floppy'; there are: none, hdd7200"),
        (["--fs", "ext4", "wal_full", "--rows", "2000", "--transactions", "9999"], "a virtual one has at most 640"),
    ],
)
def test_where_to_measure_is_said_once_and_exists(words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli.main, ["speed", *words])
    assert (2, True) == (result.exit_code, message in result.output), result.output


def test_a_file_that_cannot_be_stored_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "speed.json"
    words = ["speed", "--dir", str(tmp_path), "wal_off", "--transactions", "1", "--repeats", "1", "--json", str(file)]
    result = CliRunner().invoke(cli.main, words)
    assert (2, True) == (result.exit_code, "there is no directory" in result.output), result.output


def test_memory_is_refused_by_the_command() -> None:
    result = CliRunner().invoke(cli.main, ["speed", "--dir", "/dev/shm", "wal_full"])  # noqa: S108
    assert 2 == result.exit_code
    assert "tmpfs" in result.output


def test_settings_that_the_engine_does_not_take_measure_nothing(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="page_size=777 was asked for, 4096 was read back"):
        on_this_disk(small("wal_full", page_size="777"), tmp_path, 1, 1, Told())
    assert [] == list(tmp_path.iterdir())


def test_a_setting_that_the_engine_does_not_know_measures_nothing(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="pagesize=512 was asked for, nothing was read back"):
        on_this_disk(small("wal_full", pagesize="512"), tmp_path, 1, 1, Told())


def test_an_engine_whose_package_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"lmdb-default could not be measured: it needs the Python package lmdb"):
        on_this_disk(small("lmdb-default"), tmp_path, 1, 1, Told())


def test_a_disk_without_space_is_named_before_anything_is_written(tmp_path: Path) -> None:
    plan = replace(small("wal_full"), needed_bytes=1 << 62)
    with pytest.raises(HostError, match=r"measuring speed needs .* Nothing was written"):
        on_this_disk(plan, tmp_path, 1, 1, Told())


def test_the_command_prints_the_table_and_stores_every_measurement(tmp_path: Path) -> None:
    words = ["speed", "--dir", str(tmp_path), "wal_full", "wal_off", "--transactions", "4", "--repeats", "2"]
    result = CliRunner().invoke(cli.main, [*words, "--json", str(tmp_path / "s.json")], env={"COLUMNS": "140"})
    assert 0 == result.exit_code, result.output
    assert "wal_off" in result.output
    assert "intervals need at least 10 rounds" in result.output
    assert 6 == len(json.loads((tmp_path / "s.json").read_text())["trials"])
    assert ["s.json"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_measurement_that_is_stopped_leaves_nothing(tmp_path: Path, sent: signal.Signals) -> None:
    with subprocess.Popen(
        # Tests that run in the background of a shell ignore SIGINT, and so would the command.
        ["env", "--default-signal=INT", RIG, "speed", "--dir", tmp_path, "delete_full", "--transactions", "100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        end_s = time.monotonic() + 60
        while not list(tmp_path.glob("rig-speed-*/trial/*.db")) and time.monotonic() < end_s:
            time.sleep(0.01)
        (child,) = _children(process.pid)
        process.send_signal(sent)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert 3 == process.returncode, errors
    assert "stopped; nothing is kept, and nothing is left in" in errors
    assert [] == list(tmp_path.iterdir())
    assert not Path(f"/proc/{child}").exists()


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_what_a_trial_keeps_in_its_temporary_folder_is_removed_with_it(tmp_path: Path) -> None:
    with on_disk(tmp_path, 0) as bench:
        elsewhere = Path(bench.environment["TMPDIR"])
        assert elsewhere.is_dir()
        assert tmp_path not in elsewhere.parents
        (elsewhere / "socket").touch()
    assert not elsewhere.exists()
