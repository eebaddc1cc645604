"""Plans of injections: deterministic, within the transactions, and every target occurs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract import faultspecs
from rig.contract.injections import ERRORS, Injection
from rig.guest.programs.injections import Stage, strikes
from rig.workloads import ledger

INJECTIONS = st.sampled_from(sorted(ERRORS))


def test_every_fault_of_the_error_arm_is_an_injection_that_the_guest_plans() -> None:
    assert {faultspecs.SPECS[fault].injection for fault in faultspecs.ERROR_FAULTS} == ERRORS
    assert all(faultspecs.SPECS[fault].injection == fault for fault in faultspecs.ERROR_FAULTS)


@given(injection=INJECTIONS, seed=st.integers(0, 1 << 40), count=st.integers(0, 200))
def test_strikes_are_a_function_of_the_seed_in_order_and_within_the_transactions(
    injection: Injection, seed: int, count: int
) -> None:
    found = strikes(injection, seed, count)
    assert strikes(injection, seed, count) == found
    numbers = [strike.number for strike in found]
    assert all(1 <= number <= count for number in numbers)
    assert all(before < after for before, after in pairwise(numbers))
    assert bool(found) or count < 4
    for strike in found:
        assert strike.attempts_max >= 1
        assert 0 <= strike.share <= 1
        assert strike.free_blocks >= 0


@given(injection=INJECTIONS, seed=st.integers(0, 1 << 40), shorter=st.integers(0, 100), longer=st.integers(0, 100))
def test_a_longer_recording_has_the_strikes_of_a_shorter_one_and_then_more(
    injection: Injection, seed: int, shorter: int, longer: int
) -> None:
    few, many = strikes(injection, seed, shorter), strikes(injection, seed, shorter + longer)
    assert few == many[: len(few)]


@pytest.mark.parametrize("injection", Injection)
@given(seed=st.integers(0, 1 << 40))
def test_forty_transactions_meet_every_place_and_both_ways_to_go_on(injection: Injection, seed: int) -> None:
    found = strikes(injection, seed, 40)
    assert 5 <= len(found) <= 8
    stages = {strike.stage for strike in found}
    if injection in {Injection.WRITE, Injection.FSYNC, Injection.FSYNCS}:
        assert set(Stage) == stages
    elif injection is Injection.READ:
        # In the middle of a transaction there is nothing to read again.
        assert {Stage.BEGIN, Stage.CHECKPOINT} == stages
    assert {False, True} == {strike.reopens for strike in found}


@given(seed=st.integers(0, 1 << 40))
def test_space_ends_for_the_database_while_it_still_grows_and_comes_back_block_by_block(seed: int) -> None:
    found = strikes(Injection.DISKFULL_DATA, seed, 120)
    assert all(strike.number <= ledger.ENTRY_LIFE for strike in found)
    assert {(0, 1)} == {(strike.free_blocks, strike.free_blocks_step) for strike in found}
    assert {0} == {strike.free_blocks_step for strike in strikes(Injection.DISKFULL_LOG, seed, 120)}


def test_another_seed_strikes_elsewhere() -> None:
    plans = {strikes(injection, seed, 120) for injection in ERRORS for seed in range(5)}
    assert 5 * len(ERRORS) == len(plans)
