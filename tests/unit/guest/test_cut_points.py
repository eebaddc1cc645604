"""Where the rounds of a live cut are cut: spread over the transactions, and never in the first or the last two."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rig.contract.injections import LIVE_CUTS, Injection
from rig.guest.livecuts import cut_point, round_count
from rig.planning import matrix

ORDERS = matrix.select(["sqlite-ext4-wal_full_powercut"])[0].orders


@given(st.integers(0, 2**32), st.integers(4, 60), st.sampled_from(sorted(LIVE_CUTS)))
def test_the_rounds_of_a_recording_are_cut_one_after_the_other(
    seed: int, transaction_count: int, injection: Injection
) -> None:
    orders = replace(ORDERS, seed=seed, transaction_count=transaction_count, injection=injection)
    count = round_count(transaction_count, injection)
    points = [cut_point(orders, number) for number in range(1, count + 1)]
    numbers = [point.number for point in points]
    assert sorted(numbers) == numbers
    assert 2 <= numbers[0]
    assert numbers[-1] <= transaction_count - 2
    # Enough transactions for each to have its own.
    if injection is Injection.SERVERCRASH and transaction_count >= count + 3:
        assert len(set(numbers)) == count
    assert {True, False} == {point.in_commit for point in points}
