"""What a transaction costs: virtual figures once for each setting, and real ones only of the same work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.judging.outcome import Summary, summarise
from rig.analysis.show.costs import costs
from rig.analysis.show.report import report_html
from rig.contract.errors import StoreError
from rig.speed import speeds
from rig.speed.speeds import ArmFacts, Speeds
from rig.store import Run
from tests.unit.analysis.show.test_speed import speeds_of
from tests.unit.samples import changed, matrix

SETTINGS = {"journal_mode": "wal", "synchronous": "full"}


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise([*matrix("torn"), *matrix("powercut")], 100)


def real(engine: str = "sqlite", load: str = "ledger", **tuning: str) -> Speeds:
    """Return a measurement of one arm, with the settings of wal_full."""
    facts = ArmFacts(engine, SETTINGS | tuning, load, "mine", {})
    found = speeds_of({"mine": [90.0, 100.0, 110.0]})
    trials = [replace(one, metrics={"transactions_per_s": one.metrics["speed"]}) for one in found.trials]
    metrics = [replace(found.metrics[0], name="transactions_per_s")]
    return replace(found, arms={"mine": facts}, trials=trials, metrics=metrics)


def test_each_setting_is_shown_once_and_controls_by_a_shim_too(summary: Summary) -> None:
    found = costs(summary, None)
    assert len(found) == len({cost.name for cost in found}) == 17
    assert all(cost.outcome.latencies and cost.real is None for cost in found)


def test_a_real_figure_stands_beside_the_same_settings_and_workload_only(summary: Summary) -> None:
    beside = [cost for cost in costs(summary, real()) if cost.real]
    assert ["wal_full, ext4 on ssd-sata"] == [cost.name for cost in beside]
    assert 100 == beside[0].real_per_s


@pytest.mark.parametrize("changes", [{"engine": "lmdb"}, {"load": "1 row"}, {"page_size": "65536"}])
def test_real_figures_of_something_else_are_left_out(summary: Summary, changes: dict[str, str]) -> None:
    assert not any(cost.real for cost in costs(summary, real(**changes)))


def test_a_tuned_scenario_has_the_figures_of_the_same_tuning_only() -> None:
    small = [changed(one, tuning={"page_size": "512"}) for one in matrix()]
    tuned = summarise(small, 100)
    assert not any(cost.real for cost in costs(tuned, real()))
    assert any(cost.real for cost in costs(tuned, real(page_size="512")))


def test_engines_that_share_a_word_are_shown_both(summary: Summary) -> None:
    (one, *_) = [row.outcome.measured for row in summary.rows]
    nosync = [changed(one, engine=engine) for engine in ("lmdb", "rocksdb")]
    both = summarise([changed(each, settings={"writes": "nosync"}) for each in nosync], 100)
    assert ["lmdb-nosync, ext4 on ssd-sata", "rocksdb-nosync, ext4 on ssd-sata"] == [
        cost.name for cost in costs(both, None)
    ]


def test_the_report_shows_virtual_and_real_side_by_side(summary: Summary) -> None:
    without = report_html(summary, {})
    assert "What a transaction costs" in without
    assert "real tx" not in without
    with_real = report_html(summary, {}, speeds=real())
    assert '<td class="n" data-label="real tx per s">100</td>' in with_real
    assert "a sync takes 4 ms" in with_real
    assert "hot" in with_real


def test_the_report_of_a_run_takes_the_figures_that_lie_in_its_directory(tmp_path: Path) -> None:
    run = Run.create(tmp_path, {"profile": "quick"})
    assert speeds.beside(run.folder) is None
    speeds.save(real(), tmp_path / "speed.json")
    found = speeds.beside(run.folder)
    assert found
    assert ["mine"] == list(found.arms)
    speeds.save(replace(real(), virtual={"device": "hdd7200"}), tmp_path / "speed.json")
    with pytest.raises(StoreError, match=r"speed.json is from a virtual machine, and a run has virtual figures"):
        speeds.beside(run.folder)
    (tmp_path / "speed.json").write_text("{}")
    with pytest.raises(StoreError, match="measure again: rig speed --json"):
        speeds.beside(run.folder)
