"""Crash states of the power cut and of torn writes against a brute-force model of a disk with a volatile cache."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.faults import (
    ContentIndex,
    CrashState,
    Epoch,
    Fault,
    Logs,
    WriteLog,
    epochs,
    everything_unflushed_lost,
    parse_state,
    plan,
)
from rig.faults.states.state import Draw, Tear, landable, make_state
from tests.unit.faults.disks import (
    DISK_SECTORS,
    ONE_DISK,
    Content,
    Disk,
    Moment,
    Op,
    alike_transactions,
    everything,
    marks_claimed,
    passes_self_check,
    rebuild,
    run_of,
    some_ops,
)

FLUSH = [Op("flush-begin"), Op("flush-end")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states") / "log"


@settings(max_examples=150)
@given(ops=some_ops(4, 0, 3, writes_max=5))
def test_every_powercut_state_is_reachable_with_its_acknowledgements_seen(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        reachable: dict[Content, int] = {}
        for moment in disk.moments:
            for content in moment.whole_contents():
                reachable[content] = max(reachable.get(content, 0), moment.marks_seen)
        for state in everything(Fault.POWERCUT, log).states:
            assert reachable.get(rebuild(log, state), -1) >= marks_claimed(log, state), state.id


@settings(max_examples=100)
@given(data=st.data(), align=st.sampled_from([1, 8]))
def test_every_torn_state_is_reachable_with_its_acknowledgements_seen(
    place: Path, data: st.DataObject, align: int
) -> None:
    ops = data.draw(some_ops(DISK_SECTORS, 0, 12 if align == 1 else 2, writes_max=4, align=align))
    disk = run_of(place, ops, align)
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        versions = {unit: [(m.versions(unit), m.marks_seen) for m in disk.moments] for unit in (1, 8)}
        chosen = plan(Fault.TORN, Logs(log), first_entry=-1, states_max=60, seed=1)
        for state in chosen.states:
            content, claimed = rebuild(log, state), marks_claimed(log, state)
            sizes = {tear.unit_bytes for tear in state.tears} | ({state.draw.unit_bytes} if state.draw else set())
            unit = 8 if sizes == {4096} else 1
            parts = [content[begin : begin + unit] for begin in range(0, DISK_SECTORS, unit)]
            assert any(
                seen >= claimed and all(part in possible for part, possible in zip(parts, units, strict=True))
                for units, seen in versions[unit]
            ), state.id


def provable(disk: Disk, *, is_torn: bool) -> Iterator[tuple[Content, int]]:
    """Yield what GROUND.md calls provable, with the number of marks before the cut, straight from the emitted log."""
    log = disk.log
    durable: list[Op] = []
    marks = 0
    flushes = [index for index, op in enumerate(log) if op.kind == "flush"]
    begin = 0
    for end in [*flushes, len(log) - 1]:
        part = log[begin:end]
        for op in part:
            if op.kind == "fua":
                moment = Moment((*((done, True) for done in durable), (op, False)), marks)
                yield from ((content, marks) for content in (_units(moment) if is_torn else moment.whole_contents()))
                durable.append(op)
            marks += op.kind == "mark"
        batch = [op for op in part if op.kind == "write"]
        moment = Moment((*((done, True) for done in durable), *((op, False) for op in batch)), marks)
        yield from ((content, marks) for content in (_units(moment) if is_torn else moment.whole_contents()))
        durable += batch
        begin = end + 1


def _units(moment: Moment) -> Iterator[Content]:
    for choice in itertools.product(*moment.versions(1)):
        yield tuple(value for (value,) in choice)


def check_complete(place: Path, ops: list[Op], fault: Fault) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        found = everything(fault, log)
        expected: dict[Content, int] = {}
        for content, seen in provable(disk, is_torn=fault == Fault.TORN):
            expected[content] = max(expected.get(content, 0), seen)
        assert expected == {rebuild(log, state): marks_claimed(log, state) for state in found.states}
        assert len(expected) == len(found.states)
        assert (len(epochs(log)), 0) == (found.epoch_count, found.epochs_sampled)


@settings(max_examples=100)
@given(ops=some_ops(6, 4, 3, writes_max=5))
def test_a_powercut_plan_without_limit_holds_every_provable_content(place: Path, ops: list[Op]) -> None:
    check_complete(place, ops, Fault.POWERCUT)


@settings(max_examples=60)
@given(ops=some_ops(7, 4, 2, writes_max=3))
def test_a_torn_plan_without_limit_holds_every_provable_content(place: Path, ops: list[Op]) -> None:
    check_complete(place, ops, Fault.TORN)


@settings(max_examples=60)
@given(
    ops=some_ops(6, 0, 3, writes_max=4), fault=st.sampled_from(ONE_DISK), states_max=st.integers(1, 40), data=st.data()
)
def test_ids_give_the_states_back_and_a_plan_is_sorted_and_repeatable(
    place: Path, ops: list[Op], fault: Fault, states_max: int, data: st.DataObject
) -> None:
    disk = run_of(place, ops)
    first_entry = data.draw(st.integers(-1, len(disk.log)))
    with WriteLog.open(place) as log:
        split = epochs(log)
        chosen = plan(fault, Logs(log), split, first_entry=first_entry, states_max=states_max, seed=3)
        assert chosen == plan(fault, Logs(log), split, first_entry=first_entry, states_max=states_max, seed=3)
        assert len(chosen.states) <= states_max
        assert list(chosen.states) == sorted(chosen.chosen, key=lambda state: (state.base_end, state.id))
        assert chosen.epoch_count == chosen.epochs_exhaustive + chosen.epochs_sampled
        assert chosen.epoch_count + chosen.epochs_doubtful == sum(epoch.end > first_entry for epoch in split)
        for state in chosen.states:
            assert first_entry < state.instant
            again = parse_state(state.id, log, split)
            assert again == state
            for name in ("epoch", "fua_count", "whole", "tears", "draw"):
                assert getattr(state, name) == getattr(again, name)
            assert state.id.isascii()
            assert not set(state.id) - set("abcdefghijklmnopqrstuvwxyz0123456789.,:-")


def any_states(split: tuple[Epoch, ...]) -> Iterator[CrashState]:
    for epoch in split:
        members = landable(epoch)
        for fua_count in range(len(epoch.fuas)):
            yield make_state(epoch, fua_count)
        for size in range(len(members) + 1):
            for whole in itertools.combinations(members, size):
                yield make_state(epoch, len(epoch.fuas), whole=whole)
        for seed, unit_bytes in itertools.product(range(4), (0, 512, 4096)):
            yield make_state(epoch, len(epoch.fuas), draw=Draw(seed, 50, unit_bytes))


@settings(max_examples=60)
@given(ops=some_ops(16, 0, 12, writes_max=4))
def test_digests_are_equal_exactly_where_the_contents_are(place: Path, ops: list[Op]) -> None:
    run_of(place, ops)
    with WriteLog.open(place) as log:
        index = ContentIndex(log)
        pairs = {(index.digest(state), rebuild(log, state)) for state in any_states(epochs(log))}
        assert len(pairs) == len({digest for digest, _ in pairs}) == len({content for _, content in pairs})
        assert all(len(digest) == 32 for digest, _ in pairs)


@settings(max_examples=60)
@given(ops=some_ops(6, 0, 3, writes_max=4))
def test_all_unflushed_lost_is_the_durable_content_at_every_instant(place: Path, ops: list[Op]) -> None:
    disk = run_of(place, ops)
    with WriteLog.open(place) as log:
        split = epochs(log)
        for entry in range(log.entry_count + 1):
            state = everything_unflushed_lost(log, split, entry)
            assert state.unflushed_lost
            assert state.base_end <= entry <= state.instant
            last_flush = max((i for i in range(entry) if disk.log[i].kind == "flush"), default=-1)
            durable = [op for i, op in enumerate(disk.log[:entry]) if i < last_flush or op.kind == "fua"]
            writes = tuple((op, True) for op in durable if op.kind in {"write", "fua"})
            assert Moment(writes, 0).whole_contents() == {rebuild(log, state)}


def test_a_small_budget_is_drawn_and_spread_over_the_epochs(place: Path) -> None:
    ops = [op for n in range(40) for op in (Op("write", n % 30, 1, n + 1), Op("flush-begin"), Op("flush-end"))]
    run_of(place, ops)
    with WriteLog.open(place) as log:
        one, other = (plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=10, seed=seed) for seed in (1, 2))
    numbers = [state.epoch.number for state in one.states]
    assert 10 == len(set(numbers))
    # Of two phases, new data and data written again, each is spread over its part of the log.
    assert 3 <= sum(number < 20 for number in numbers) <= 7
    assert numbers != [state.epoch.number for state in other.states]
    assert 41 == one.epoch_count == one.epochs_exhaustive + one.epochs_sampled


@given(seed=st.integers(0, 2**32 - 1), period=st.integers(1, 6))
@settings(max_examples=20)
def test_choices_differ_over_epochs_that_are_alike(place: Path, seed: int, period: int) -> None:
    """Forty transactions of the same five writes, each followed by as many other epochs: four states of each."""
    count, batch = 40, 5
    run_of(place, alike_transactions(count, batch, period))
    with WriteLog.open(place) as log:
        chosen = plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=4 * count * period, seed=seed)
    subsets = {
        frozenset(state.epoch.batch.index(member) for member in state.whole)
        for state in chosen.states
        if len(state.epoch.batch) == batch
    }
    pairs = {(here, gone) for subset in subsets for here in subset for gone in range(batch) if gone not in subset}
    assert batch * (batch - 1) == len(pairs)
    assert 15 <= len(subsets) <= 32


@pytest.mark.parametrize("period", [2, 3, 4])
def test_alike_epochs_are_torn_at_either_end_whatever_their_numbers(place: Path, period: int) -> None:
    """Ten transactions of one long write, each followed by as many other epochs: two states of each write."""
    others = [op for other in range(period - 1) for op in (Op("write", 24 + other, 1, 1), *FLUSH)]
    run_of(place, [op for number in range(10) for op in (Op("write", 0, 24, 1 + number), *FLUSH, *others)])
    with WriteLog.open(place) as log:
        alike = [epoch for epoch in epochs(log)[:-1] if epoch.number % period == 0]
        chosen = plan(Fault.TORN, Logs(log), alike, first_entry=-1, states_max=20, seed=1)
    has_beginning = Counter(tear.units[0] == 0 for state in chosen.states for tear in state.tears)
    assert min(has_beginning[True], has_beginning[False]) >= 4


@pytest.mark.parametrize(("fault", "state_count"), [(Fault.POWERCUT, 8), (Fault.TORN, 64)])
def test_an_epoch_is_exhaustive_only_if_all_its_states_were_taken(place: Path, fault: Fault, state_count: int) -> None:
    run_of(place, [Op("write", sector, 2, sector + 1) for sector in (0, 2, 4)])
    with WriteLog.open(place) as log:
        for states_max, exhaustive in ((state_count - 1, 0), (state_count, 1), (state_count + 1, 1)):
            chosen = plan(fault, Logs(log), first_entry=-1, states_max=states_max, seed=1)
            assert min(states_max, state_count) == len(chosen.states)
            assert (exhaustive, 1 - exhaustive) == (chosen.epochs_exhaustive, chosen.epochs_sampled)


def test_doubtful_epochs_are_counted_and_not_cut_where_an_open_sector_shows(place: Path) -> None:
    flush = [Op("flush-begin"), Op("flush-end")]
    run_of(place, [Op("write", 3, 1, 2), Op("fua", 3, 1, 1), *flush, Op("mark"), *flush, Op("write", 3, 1, 5), *flush])
    with WriteLog.open(place) as log:
        chosen = plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=50, seed=1)
    assert (2, 2) == (chosen.epoch_count, chosen.epochs_doubtful)
    assert {0, 3} == {state.epoch.number for state in chosen.states}
    assert not any(state.whole for state in chosen.states)


@pytest.mark.parametrize("fault", [Fault.POWERCUT, Fault.TORN])
def test_a_large_batch_is_sampled_by_the_seed_up_to_the_budget(place: Path, fault: Fault) -> None:
    ops = [Op("write", n % 30, 2, n + 1) for n in range(300)]
    run_of(place, [*ops, Op("flush-begin"), Op("flush-end")])
    with WriteLog.open(place) as log:
        one, again, other = (plan(fault, Logs(log), first_entry=-1, states_max=200, seed=seed) for seed in (1, 1, 2))
        assert (200, 1) == (len(one.states), one.epochs_sampled)
        assert one == again
        assert one != other
        assert max(len(state.id) for state in one.states) < 64
        split = epochs(log)
        for state in one.states:
            assert parse_state(state.id, log, split) == state
        assert 200 == len({rebuild(log, state) for state in one.states})
        assert any(state.tears for state in one.states) is (fault == Fault.TORN)


@pytest.mark.parametrize(("member_count", "states_max"), [(6, 28), (10, 60)])
def test_the_corners_of_a_batch_come_within_their_budget(place: Path, member_count: int, states_max: int) -> None:
    run_of(place, [Op("write", n, 1, n + 1) for n in range(member_count)])
    with WriteLog.open(place) as log:
        (tail,) = epochs(log)
        chosen = plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=states_max, seed=1)
        taken = {state.whole for state in chosen.states}
    members = tail.batch
    assert {(), members} <= taken
    assert {(member,) for member in members} <= taken
    assert {tuple(other for other in members if other != member) for member in members} <= taken
    assert {members[:count] for count in range(member_count + 1)} <= taken
    assert {members[count:] for count in range(member_count + 1)} <= taken


@settings(max_examples=60)
@given(block_counts=st.lists(st.integers(1, 9), min_size=1, max_size=4), is_odd=st.booleans())
def test_of_every_long_write_each_end_lands_without_its_beginning_and_the_shortest_soon(
    place: Path, block_counts: list[int], *, is_odd: bool
) -> None:
    """A log that restarts with one write: its end may land first, after the old beginning."""
    # A small epoch would be listed whole.
    block_counts = [*block_counts, 2]
    begins = [8 * sum(block_counts[:rank]) for rank in range(len(block_counts))]
    writes = [
        Op("write", begin, 8 * count, rank + 1)
        for rank, (begin, count) in enumerate(zip(begins, block_counts, strict=True))
    ]
    run_of(place, [*FLUSH * is_odd, *writes, *FLUSH])
    with WriteLog.open(place) as log:
        epoch = epochs(log)[is_odd]
        wanted = {
            Tear(member, 4096, tuple(range(begin, count)))
            for member, count in zip(epoch.batch, block_counts, strict=True)
            for begin in range(1, count)
        }
        for states_max, expected in (
            (20 * len(wanted) + 40, wanted),
            (5 * len(block_counts), {tear for tear in wanted if len(tear.units) == 1}),
        ):
            chosen = plan(Fault.TORN, Logs(log), [epoch], first_entry=-1, states_max=states_max, seed=1)
            assert expected <= {tear for state in chosen.states for tear in state.tears}


def test_an_entry_behind_the_log_has_no_state(place: Path) -> None:
    run_of(place, [Op("mark")])
    with WriteLog.open(place) as log:
        for entry in (-1, log.entry_count + 1):
            with pytest.raises(ValueError, match="not in this log"):
                everything_unflushed_lost(log, epochs(log), entry)


def test_a_plan_without_budget_is_refused(place: Path) -> None:
    run_of(place, [])
    with WriteLog.open(place) as log, pytest.raises(ValueError, match="states_max"):
        plan(Fault.POWERCUT, Logs(log), first_entry=-1, states_max=0, seed=1)
