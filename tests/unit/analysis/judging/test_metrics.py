"""The metrics of a scenario: losses, shares of instants, speed and cost, exposure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.judging.metrics import outcome, worst_first
from rig.analysis.judging.outcome import Result, judge
from rig.analysis.judging.promises import promise_for
from rig.contract.results import VerdictKind
from tests.unit.samples import durable, measured_scenario, sqlite, verdict

GOODNESS = {Result.BROKEN: 0, Result.INCONCLUSIVE: 1, Result.NOT_JUDGED: 2, Result.KEPT: 2}
WAL_FULL = sqlite("wal", "full")


def test_of_databases_that_show_nothing_the_one_that_held_most_is_the_worst() -> None:
    rows = [verdict(VerdictKind.UNOPENABLE, state=f"e{acked}", acked=acked) for acked in (0, 39, 12)]
    assert ["e39", "e12", "e0"] == [row.state for row in worst_first(rows)]


def test_a_promise_that_allows_refusals_is_not_kept_by_refusals_alone() -> None:
    promised = promise_for("rocksdb", {"writes": "sync-absolute"}, "powercut", "none")
    assert promised
    refused = [verdict(VerdictKind.UNOPENABLE, state=f"u{number}") for number in range(60)]
    results = [
        judge(outcome(measured_scenario(WAL_FULL, [*durable(count), *refused])), promised, 5).result
        for count in (0, 59, 60)
    ]
    assert [Result.INCONCLUSIVE, Result.INCONCLUSIVE, Result.KEPT] == results


def test_losses_are_counted_over_states_that_a_prefix_explains() -> None:
    rows = [
        *durable(6),
        verdict(VerdictKind.LOST_SUFFIX, 4, "a"),
        verdict(VerdictKind.LOST_SUFFIX, 2, "b"),
        verdict(VerdictKind.TORN, 9, "c"),
        verdict(VerdictKind.HANG, 9, "d"),
    ]
    result = outcome(measured_scenario(WAL_FULL, rows))
    assert (10, 9, 9) == (result.state_count, result.database_count, result.content_count)
    assert (4, 6 / 8, {0: 6, 2: 1, 4: 1}) == (result.lost_max, result.lost_mean, result.lost_counts)
    assert result.lost_virtual_ns_max == 2_000_000_000
    assert (1, 9) == (result.damage.count, result.damage.total)
    assert result.losing_count == 3
    assert {VerdictKind.DURABLE: 6, VerdictKind.LOST_SUFFIX: 2, VerdictKind.TORN: 1, VerdictKind.HANG: 1} == dict(
        result.kind_counts
    )


def test_the_share_of_instants_is_weighted_by_virtual_time() -> None:
    rows = [
        verdict(state="a", instant_weight_ns=300),
        verdict(VerdictKind.LOST_SUFFIX, 1, "b", instant_weight_ns=100),
        verdict(VerdictKind.LOST_SUFFIX, 1, "c"),
    ]
    result = outcome(measured_scenario(WAL_FULL, rows))
    assert (2, 0.25) == (result.instant_count, result.instant_share_losing)


def test_without_instants_busy_time_or_states_there_is_no_figure() -> None:
    result = outcome(measured_scenario(WAL_FULL, [], busy_virtual_ns=0))
    assert (None, None, None, None) == (
        result.instant_share_losing,
        result.transactions_per_s,
        result.lost_max,
        result.lost_mean,
    )


def test_speed_and_cost_are_per_virtual_second_transaction_and_user_byte() -> None:
    result = outcome(measured_scenario(WAL_FULL, durable(3), busy_virtual_ns=500_000_000, flush_count=60))
    assert (80, 1.5, 32) == (result.transactions_per_s, result.flush_per_transaction, result.write_amplification)
    assert 0.75 == result.fua_per_transaction
    assert result.latencies
    assert pytest.approx((500 / 44, 1000 / 44, 1000 / 44)) == (
        result.latencies.p50_ms, result.latencies.p95_ms, result.latencies.max_ms,
    )  # fmt: skip


def test_a_recording_whose_time_is_not_its_own_has_no_latencies() -> None:
    assert outcome(measured_scenario(WAL_FULL, durable(3), "processkill")).latencies is None
    assert outcome(measured_scenario(WAL_FULL, durable(3))).latencies


def test_states_of_equal_content_are_one_content() -> None:
    rows = [verdict(VerdictKind.CORRUPT, state=str(index), content="same") for index in range(9)]
    result = outcome(measured_scenario(WAL_FULL, rows))
    assert (1, 1, 1) == (result.content_count, result.damage.count, result.damage.total)


@pytest.mark.parametrize("kind", [VerdictKind.UNOPENABLE, VerdictKind.DIED, VerdictKind.STUCK])
def test_a_database_of_which_nothing_can_be_read_has_lost_all_that_was_acknowledged(kind: VerdictKind) -> None:
    seen = outcome(measured_scenario(WAL_FULL, [*durable(3), replace(verdict(kind, state="bad"), acked=7)]))
    assert (7, 1) == (seen.lost_max, seen.lost_counts[7])
    damaged = outcome(
        measured_scenario(WAL_FULL, [*durable(3), replace(verdict(VerdictKind.TORN, state="bad"), acked=7)])
    )
    assert 0 == damaged.lost_max
