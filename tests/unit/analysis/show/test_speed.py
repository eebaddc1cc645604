"""Medians, intervals, latencies and a document's ratios, from stored measurements."""

from __future__ import annotations

import io
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rig.analysis.judging import speed
from rig.analysis.judging.latencies import Latencies, percentile
from rig.analysis.show.speedtable import print_speeds
from rig.speed.speeds import ArmFacts, Reads, Space, Speeds, Trial
from rig.speed.trials.disks import Counters, Disk
from rig.speed.trials.probe import SyncProbe
from rig.speed.trials.replication import Figure, Metric

POSITIVE = st.floats(0.01, 1e6, allow_nan=False)
ROUNDS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=12)


def trial(number: int, arm: str, value: float, flushes: int | None = 30) -> Trial:
    latencies = [1_000_000, 2_000_000, 3_000_000, 40_000_000]
    disk = Counters(50, 4096, flushes, 1)
    return Trial(number, arm, 10**9, 10, 20, 1000, {"speed": value}, {"faults": 2.0}, latencies, disk, 4000, 0.02, {})


def speeds_of(values: dict[str, list[float]], figures: tuple[Figure, ...] = ()) -> Speeds:
    base = next(iter(values))
    return Speeds(
        experiment="S9", document="doc.txt", metrics=[Metric("speed", "tx/s", more_is_better=True)], versions={},
        filesystem="fs", options=(), disks=[Disk("sda", "", "", "")], probe=SyncProbe(0.004, 0.003, 1.0),
        warnings=("hot",), seed=7, repeats=max(map(len, values.values())), made="2000-01-01T00:00:00+00:00",
        figures=figures, arms={name: ArmFacts("e", {}, "l", base, {}) for name in values},
        trials=[trial(0, name, 1e9) for name in values]
        + [trial(number, name, value) for name, row in values.items() for number, value in enumerate(row, 1)],
    )  # fmt: skip


@settings(max_examples=20)
@given(ROUNDS, st.integers(0, 9))
def test_an_interval_lies_within_what_was_measured_and_repeats(rounds: list[tuple[float, float]], seed: int) -> None:
    values, bases = [one for one, _ in rounds], [one for _, one in rounds]
    found = speed.bootstrap(values, bases, seed)
    assert statistics.median(values) / statistics.median(bases) == found.value
    assert min(values) / max(bases) <= found.low * (1 + 1e-9)
    assert found.low <= found.high <= max(values) / min(bases) * (1 + 1e-9)
    assert speed.bootstrap(values, bases, seed) == found


@settings(max_examples=20)
@given(st.lists(POSITIVE, min_size=1, max_size=12), st.floats(0.1, 10))
def test_a_factor_that_every_round_has_is_certain(values: list[float], factor: float) -> None:
    found = speed.bootstrap([value * factor for value in values], values, 1)
    assert [pytest.approx(factor)] * 3 == [found.low, found.value, found.high]


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    hits = 0
    for seed in range(60):
        values = draw.lognormal(np.log(3), 0.2, 15)
        found = speed.bootstrap(list(values), list(draw.lognormal(0, 0.2, 15)), seed)
        hits += found.low <= 3 <= found.high
    assert 50 <= hits


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[int], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < share * len(ordered) + 1e-6


def test_the_warm_up_is_not_counted_and_arms_keep_their_order() -> None:
    first, second = speed.arm_speeds(speeds_of({"slow": [10, 11, 12], "fast": [30, 33, 36]}))
    assert ("slow", "fast") == (first.name, second.name)
    assert (11, 33) == (first.figures["speed"].value, second.figures["speed"].value)
    assert (1, 3) == (first.ratios["speed"].value, second.ratios["speed"].value)
    assert second.ratios["speed"].excludes_one
    assert not first.ratios["speed"].excludes_one
    assert Latencies(2, 40, 40, 40) == first.latencies
    assert (3, 4, 2) == (first.flush_per_transaction, first.write_amplification, first.cpu_ms_per_transaction)
    assert {"faults": 2} == first.counts


def test_instructions_are_the_busy_time_of_a_machine_whose_clock_counts_them() -> None:
    speeds = speeds_of({"slow": [10.0, 10.0]})
    busy = replace(speeds, trials=[replace(one, busy_ns=3_000_000 * one.round) for one in speeds.trials])
    per_s = {"instructions_per_s": "500000000"}
    found = [speed.arm_speeds(one)[0].instructions_per_transaction for one in (busy, replace(busy, virtual=per_s))]
    # Rounds of 3 and 6 ms, and ten transactions.
    assert [None, 225_000] == found
    assert speed.arm_speeds(replace(speeds, virtual=per_s))[0].instructions_per_transaction is None


def test_the_table_has_instructions_where_the_clock_counts_them_and_elsewhere_processor_time() -> None:
    speeds = speeds_of({"slow": [10.0, 10.0]})
    speeds = replace(speeds, trials=[replace(one, busy_ns=3_000_000) for one in speeds.trials])
    said = {"filesystem": "fs", "device": "none", "delays": "", "clock": "", "instructions_per_s": "500000000"}
    for virtual, heading, figure in (({}, "CPU ms", "2.00"), (said, "instr.", "150,000")):
        output = io.StringIO()
        print_speeds(replace(speeds, virtual=virtual), Console(file=output, width=80))
        _, costs = (line.split() for line in output.getvalue().splitlines() if line.startswith("slow "))
        assert heading in output.getvalue()
        assert figure == costs[-1]


def test_the_space_of_the_trial_that_was_watched_stands_beside_each_arm_with_its_largest_files() -> None:
    one = speeds_of({"slow": [10.0], "fast": [20.0]})
    groups = {"a.db": 3 << 20, "a.db-wal": 5 << 19, "*.log": 1 << 18, "empty": 0}
    spaces = {"slow": Space(5 << 20, groups, groups), "fast": Space(1 << 20, {}, {f"f{n}": n + 1 for n in range(10)})}
    trials = [each if each.round else replace(each, space=spaces[each.arm]) for each in one.trials]
    output = io.StringIO()
    print_speeds(replace(one, trials=trials), Console(file=output, width=80))
    text = output.getvalue()
    assert "peak" in text
    _, costs = (line.split() for line in text.splitlines() if line.startswith("slow "))
    assert "5.00" == costs[-1]
    assert "  slow: a.db 3.00, a.db-wal 2.50, *.log 0.250\n" in text
    assert "  fast: f9 " in text
    assert "f2 2.86e-06, and 2 more\n" in text


def test_the_space_of_all_files_is_held_against_the_data_that_is_there_and_not_against_what_was_written() -> None:
    one = speeds_of({"slow": [10.0, 10.0, 10.0]})
    (found,) = speed.arm_speeds(one)
    assert found.space_amplification is None
    assert "space" not in _print(one)
    trials = [replace(each, live_bytes=250, allocated_bytes=500 * each.round) for each in one.trials]
    (found,) = speed.arm_speeds(replace(one, trials=trials))
    assert (4, 4) == (found.write_amplification, found.space_amplification)
    assert "space amplification: disk space of all files" in _print(replace(one, trials=trials))
    empty = [replace(each, live_bytes=0) for each in trials]
    assert speed.arm_speeds(replace(one, trials=empty))[0].space_amplification is None


@pytest.mark.parametrize(("count", "words"), [(1, "1 counted run of each arm: whether"), (2, "all 2 runs of each arm")])
def test_virtual_runs_agree_only_if_there_are_two_that_were_not_watched(count: int, words: str) -> None:
    one = speeds_of({"slow": [10.0] * count})
    said = dict.fromkeys(("filesystem", "device", "delays", "clock"), "")
    trials = [each if each.round else replace(each, space=Space(1, {}, {})) for each in one.trials]
    assert words in _print(replace(one, trials=trials, virtual=said))


def test_without_anyone_who_watched_no_space_is_shown() -> None:
    assert "peak" not in _print(speeds_of({"slow": [10.0]}))


def _print(speeds: Speeds) -> str:
    output = io.StringIO()
    print_speeds(speeds, Console(file=output, width=120))
    return output.getvalue()


@pytest.mark.parametrize("slow", [[0.0, 0.0, 0.0], [0.0, 10.0, 12.0]])
def test_nothing_is_compared_with_a_base_that_stood_still_and_a_line_says_so(slow: list[float]) -> None:
    speeds = speeds_of({"slow": slow, "fast": [30, 33, 36]}, (Figure("fast", "slow", "speed", 2.0, 12),))
    assert [{}, {}] == [arm.ratios for arm in speed.arm_speeds(speeds)]
    assert [] == speed.figure_comparisons(speeds)
    assert ["slow: speed is 0 in some round, so nothing is compared with it"] == speed.noises(speeds)
    print_speeds(speeds, Console(file=io.StringIO()))


def test_what_was_not_counted_is_absent_and_never_zero() -> None:
    speeds = speeds_of({"slow": [10.0]})
    unseen: dict[str, Any] = {"disk": None, "process_bytes": None, "cpu_s": None}
    blind = replace(speeds, trials=[replace(one, **unseen, latencies_ns=[]) for one in speeds.trials])
    (found,) = speed.arm_speeds(blind)
    assert (None, None, None) == (found.flush_per_transaction, found.write_amplification, found.latencies)
    assert (None, None) == (found.cpu_ms_per_transaction, found.instructions_per_transaction)


def test_a_document_that_differs_by_more_than_a_third_gets_a_sentence() -> None:
    figures = tuple(
        Figure("fast", "slow", "speed", ratio, line) for ratio, line in ((3.9, 1), (2.3, 2), (4.6, 3), (2.2, 4))
    )
    speeds = speeds_of({"slow": [10, 10], "fast": [30, 30]}, figures)
    assert [False, False, True, True] == [one.deviates for one in speed.figure_comparisons(speeds)]
    text = speed.sentences(speeds)
    expected = "doc.txt line 3: speed of fast is 4.6 of slow, here 3 (3 to 3): 3 flushes and 5 writes "
    assert expected + "per transaction against 3 flushes and 5 writes, and a sync takes 4 ms" == text[0]
    assert 2 == len(text)


def test_bytes_are_explained_by_their_parts_and_not_by_syncs() -> None:
    speeds = speeds_of({"slow": [10, 10], "fast": [30, 30]}, (Figure("fast", "slow", "speed", 1, 1),))
    written = Metric("speed", "x written", more_is_better=False)
    parts = [replace(one, counts={"speed without the log": 4.0, "seeds": 5.0}) for one in speeds.trials]
    (text,) = speed.sentences(replace(speeds, metrics=[written], trials=parts))
    assert text.endswith("here 3 (3 to 3); speed without the log 4 against 4")


def test_flushes_of_others_show_in_equal_trials() -> None:
    speeds = speeds_of({"slow": [1, 1, 1]})
    assert [] == speed.noises(speeds)
    last = replace(speeds.trials[-1], disk=Counters(1, 1, 90, 1))
    noisy = replace(speeds, trials=[*speeds.trials[:-1], last])
    assert ["slow: 3 to 9 flushes per transaction by round: other programs use this disk too"] == speed.noises(noisy)


def test_the_table_has_every_arm_the_disk_and_what_warns() -> None:
    output = io.StringIO()
    figure = Figure("fast", "slow", "speed", 9.0, 12)
    speeds = replace(speeds_of({"slow": [10, 10], "fast": [30, 30]}, (figure,)), absent={"third": "no such disk"})
    print_speeds(speeds, Console(file=output, width=120))
    text = output.getvalue()
    for expected in (
        "slow",
        "3.0 (3.0 to 3.0)",
        "fs on sda",
        "warning: hot",
        "faults 2",
        "differs",
        "third: no such disk",
    ):
        assert expected in text


def test_readers_stand_beside_the_writers_with_the_longest_read_of_all() -> None:
    one = speeds_of({"a": [10.0, 12.0], "b": [20.0, 22.0]})
    reads = {1: Reads(9, [1_000_000, 3_000_000], 70_000_000), 2: Reads(9, [5_000_000], 6_000_000)}
    metrics = [Metric("speed", "tx/s", more_is_better=True), Metric("reads_per_s", "reads/s", more_is_better=True)]
    trials = [
        replace(each, reads=reads.get(each.round, reads[1]), metrics={**each.metrics, "reads_per_s": 500.0})
        for each in one.trials
    ]
    both = replace(one, metrics=metrics, trials=trials)
    (first, _) = speed.arm_speeds(both)
    assert Latencies(3.0, 5.0, 5.0, 70.0) == first.reads
    assert 500 == first.figures["reads_per_s"].value
    shown = io.StringIO()
    print_speeds(both, Console(file=shown, width=160))
    (costs,) = (line.split() for line in shown.getvalue().splitlines() if line.startswith("a ") and "70.0" in line)
    assert ["3.00", "5.00", "5.00", "70.0"] == costs[-4:]
    assert [None, None] == [arm.reads for arm in speed.arm_speeds(one)]
