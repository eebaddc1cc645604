"""The stored form of a measurement of speed: what was saved is read, of every format, and nothing else is."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.errors import StoreError
from rig.speed import speeds
from rig.speed.trials.replication import Figure
from tests.unit.analysis.show.test_speed import speeds_of
from tests.unit.speed.test_speed import Told, on_this_disk, small


def test_what_is_stored_is_what_was_measured_in_the_order_of_the_arms(tmp_path: Path) -> None:
    found = on_this_disk(small("wal_off", "delete_off", rows=2), tmp_path, 1, 1, Told())
    speeds.save(found, tmp_path / "speed.json")
    back = speeds.load(tmp_path / "speed.json")
    assert list(found.arms) == list(back.arms)
    speeds.save(back, tmp_path / "again.json")
    assert (tmp_path / "speed.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    assert str(tmp_path) not in (tmp_path / "speed.json").read_text()


@given(
    st.one_of(st.binary(max_size=80), st.recursive(st.none() | st.integers(), st.lists).map(json.dumps).map(str.encode))
)
def test_what_is_no_measurement_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("stored") / "speed.json"
    path.write_bytes(data)
    with pytest.raises(StoreError, match="measure again: rig speed"):
        speeds.load(path)


def _spoil(message: Any, *path: str | int, value: Any) -> None:
    """Put a value at a place of a stored measurement."""
    *above, last = path
    for step in above:
        message = message[step]
    message[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("trials",), [], "slow has rounds [], not 0 to 3, each once"),
        (("trials", 3, "round"), 1, "slow has rounds [0, 1, 1, 3]"),
        (("trials", 3, "metrics"), {}, "the rounds of slow have different metrics"),
        (("trials", 3, "metrics", "speed"), "fast", "'fast' is no float"),
        (("trials", 3, "metrics", "speed"), float("nan"), "nan is no float"),
        (("trials", 3, "latencies_ns"), [None], "latencies_ns: None is no int"),
        (("trials", 3, "disk", "flush_count"), "x", "'x' is no int"),
        (("trials", 0, "space"), {"peak_bytes": 1, "files": {"a": "x"}, "groups": {}}, "'x' is no int"),
        (("trials", 0, "live_bytes"), "x", "'x' is no int"),
        (("trials", 0, "allocated_bytes"), True, "True is no int"),
        (("probe", "sync_s"), None, "None is no float"),
        (("seed",), "x", "'x' is no int"),
        (("metrics",), [], "it has no metric"),
        (("arms", "fast", "base"), "gone", "the base of fast is 'gone', which is no arm"),
        (("figures", 0, "arm"), "gone", "line 12 of the document is about no arm"),
        (("figures", 0, "ratio"), 0, "or its ratio is not above 0"),
    ],
)
def test_a_measurement_that_was_cut_or_edited_is_refused_with_the_reason(
    tmp_path: Path, path: tuple[str | int, ...], value: Any, words: str
) -> None:
    figure = Figure("fast", "slow", "speed", 2.0, 12)
    speeds.save(speeds_of({"slow": [10, 11, 12], "fast": [30, 33, 36]}, (figure,)), tmp_path / "speed.json")
    message = json.loads((tmp_path / "speed.json").read_text())
    _spoil(message, *path, value=value)
    (tmp_path / "speed.json").write_text(json.dumps(message))
    with pytest.raises(StoreError, match=re.escape(words)):
        speeds.load(tmp_path / "speed.json")


def test_what_was_stored_before_there_were_virtual_disks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    speeds.save(replace(speeds_of({"a": [1.0]}), virtual={"device": "hdd7200"}), path)
    message = json.loads(path.read_text())
    assert {"device": "hdd7200"} == speeds.load(path).virtual
    del message["place"]["virtual"]
    path.write_text(json.dumps(message | {"format": "powercut-rig speed 1"}))
    assert {} == speeds.load(path).virtual


@pytest.mark.parametrize(
    ("number", "absent"),
    [(2, ("reads",)), (3, ("space", "busy_ns", "live_bytes", "allocated_bytes"))],
    ids=["readers", "space"],
)
def test_what_was_stored_before_there_were_such_figures_is_read(
    tmp_path: Path, number: int, absent: tuple[str, ...]
) -> None:
    path = tmp_path / "speed.json"
    one = speeds_of({"a": [1.0]})
    speeds.save(one, path)
    message = json.loads(path.read_text())
    for trial, name in itertools.product(message["trials"], absent):
        del trial[name]
    path.write_text(json.dumps(message | {"format": f"powercut-rig speed {number}"}))
    assert one.trials == speeds.load(path).trials


def test_the_spread_is_that_of_the_arm_whose_runs_differ_most() -> None:
    one = speeds_of({"a": [1.0], "b": [1.0]})
    assert 0 == one.spread
    first, *others = one.trials
    times = [replace(first, wall_ns=first.wall_ns * 3 // 2), *others]
    assert pytest.approx(0.5) == replace(one, trials=times).spread
    assert 2 == one.run_count
    watched = [replace(times[0], space=speeds.Space(5, {}, {})), *others]
    assert (0, 1) == (replace(one, trials=watched).spread, replace(one, trials=watched).run_count)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    path.write_text(json.dumps({"format": "powercut-rig speed 5"}))
    with pytest.raises(StoreError, match="not of the format 'powercut-rig speed 4'"):
        speeds.load(path)
