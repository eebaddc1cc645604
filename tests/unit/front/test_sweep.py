"""The command `rig sweep` without a machine: what can be varied, where runs lie, and what table and page show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.judging.outcome import summarise
from rig.analysis.show.sweep import Sweep, page_html, rows, steps, tables
from rig.contract.errors import UsageError
from rig.contract.results import Verdict, VerdictKind
from rig.front import cli
from rig.front.rundirs import finished_runs
from rig.front.terminal import standard_output
from rig.front.verbs.sweep import _axis, _digest, _worse
from rig.planning import matrix
from tests.unit.samples import SECOND_NS, measured_scenario, sqlite, verdict

Here = Callable[..., Result]
WAL_NORMAL = "sqlite-ext4-wal_normal_powercut"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli.main, ["sweep", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((WAL_NORMAL, "--over", "wal_autocheckpoint=10"), "at least two values"),
        ((WAL_NORMAL, "--over", "wal_autocheckpoint=10,,20"), "at least two values"),
        ((WAL_NORMAL, "--over", "wal_autocheckpoint"), "at least two values"),
        ((WAL_NORMAL, "--over", "wal_autochekpoint=1,2"), "did you mean wal_autocheckpoint?"),
        ((WAL_NORMAL, "--over", "pause-ms=1,x"), "takes whole milliseconds, not 'x'"),
        ((WAL_NORMAL, "--over", "fs=ext4,ext5"), "unknown file system 'ext5'"),
        (("*wal_normal_powercut", "--over", "fs=ext4,xfs"), "needs whole ids"),
        ((WAL_NORMAL, "--over", "device=none,floppy"), "floppy"),
        (("sqlite-ext4-wal_normal_torn", "--over", "pause-ms=1,2"), "has no cut instants"),
    ],
)
def test_what_cannot_be_varied_is_a_usage_error_before_anything_is_measured(
    here: Here, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    result = here(*words)
    assert 2 == result.exit_code, result.output
    assert said in result.output
    assert not list(tmp_path.iterdir())


@given(st.text(max_size=20))
def test_any_text_is_a_name_with_values_or_a_usage_error(over: str) -> None:
    try:
        name, values = _axis(over)
    except UsageError:
        return
    assert name
    assert 2 <= len(values) == len(set(values))
    assert over.startswith(f"{name}={values[0]},")


def test_another_look_at_the_same_scenarios_has_another_folder() -> None:
    wanted = {"10": matrix.select([WAL_NORMAL])}
    quick = matrix.profile("quick")
    assert _digest(wanted, quick) == _digest(wanted, matrix.profile("quick"))
    assert _digest(wanted, quick) != _digest(wanted, replace(quick, instants=quick.instants + 1))
    assert _digest(wanted, quick) != _digest({"20": wanted["10"]}, quick)


def test_a_broken_promise_is_worse_than_an_inconclusive_result() -> None:
    assert [0, 3, 1, 1] == [_worse(0, 0), _worse(0, 3), _worse(3, 1), _worse(1, 0)]


def test_finished_runs_of_sweeps_are_evidence_for_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "sweep-ab12/fs=ext4", "sweep-ab12/fs=xfs"):
        path = Path("runs", folder)
        path.mkdir(parents=True)
        (path / "manifest.json").touch()
        if not folder.endswith("xfs"):
            (path / "report.html").touch()
    assert ["runs/one", "runs/sweep-ab12/fs=ext4"] == list(map(str, finished_runs()))


def sweep_sample() -> Sweep:
    """Two settings at two values; one of them was not measured at the second."""
    found = []
    for value, losing in (("10", 1), ("1000", 19)):
        scenarios = [
            measured_scenario(sqlite("wal", "normal"), [_instant(place, place >= 20 - losing) for place in range(20)])
        ]
        if value == "10":
            scenarios.append(measured_scenario(sqlite("wal", "full"), [_instant(place, False) for place in range(20)]))
        scenarios.append(measured_scenario(sqlite("wal", "full"), [_instant(0, True)], shim="eatmydata"))
        found += steps(value, summarise(scenarios, 1), lambda row: row.outcome.settings_name)
    return Sweep("wal_autocheckpoint", ("10", "1000"), found)


def _instant(place: int, is_lost: bool) -> Verdict:
    kind, lost = (VerdictKind.LOST_SUFFIX, 3) if is_lost else (VerdictKind.DURABLE, 0)
    return verdict(kind, lost, f"e{place}", entry=place, instant_weight_ns=SECOND_NS)


def test_each_value_shows_its_own_loss_with_an_interval_and_what_was_not_measured_is_left_out() -> None:
    sweep = sweep_sample()
    assert ["wal_full", "wal_normal"] == sorted(sweep.names)
    first, last = rows(sweep, "wal_normal")
    assert ("10", "1000") == (first[0], last[0])
    assert first[2].startswith("5.0 % (")
    # Two independent stretches are needed for an interval, and here one run loses the same all along.
    assert "95.0 % (too short a run for an interval)" == last[2]
    (full,) = rows(sweep, "wal_full")
    assert full[2].startswith("0.0 % (<= ")


def test_the_page_has_a_curve_for_each_question_and_the_table_holds_every_row() -> None:
    sweep = sweep_sample()
    text = page_html(sweep, {"device": "ssd-sata <&>"})
    assert 3 == text.count("<svg")
    assert "ssd-sata &lt;&amp;&gt;" in text
    assert text == page_html(sweep, {"device": "ssd-sata <&>"})
    console = standard_output()
    with console.capture() as capture:
        for table in tables(sweep):
            console.print(table)
    for word in ("wal_normal", "wal_full", "1000", "95.0 %"):
        assert word in capture.get()
