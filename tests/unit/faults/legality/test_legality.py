"""The independent checker against the brute-force disk, in both directions, and against every generator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rig.faults import CrashState, Fault, WriteLog, epochs
from rig.faults.legality.legality import Checker, Legality, Rule
from rig.faults.log.arrays import ByteArray
from rig.faults.states.state import landable, make_state
from tests.unit.faults.disks import (
    DISK_SECTORS,
    ONE_DISK,
    SECTOR,
    Content,
    Disk,
    Moment,
    Op,
    emit,
    everything,
    passes_self_check,
    rebuild_device,
    run_of,
    some_ops,
)

FLUSH = [Op("flush-begin"), Op("flush-end")]
HONEST = [fault for fault in ONE_DISK if fault.rule]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("legality") / "log"


@dataclass
class Watched(Disk):
    """A disk that knows for each of its moments how much had been logged."""

    positions: list[int] = field(default_factory=list)

    def _remember(self, in_flight: Op | None = None) -> None:
        super()._remember(in_flight)
        self.positions.append(len(self.log))

    def by_position(self, moments: list[Moment]) -> dict[int, list[Moment]]:
        found: dict[int, list[Moment]] = defaultdict(list)
        for position, moment in zip(self.positions, moments, strict=True):
            found[position].append(moment)
        return found


def watch(path: Path, ops: list[Op]) -> Watched:
    disk = Watched()
    disk.run(ops)
    emit(path, disk.log, 1)
    return disk


def watched_in_log_order(disk: Watched, path: Path) -> Watched:
    """The run in log order; it gives the same log."""
    again = watch(path, [one for op in disk.log[:-1] for one in (FLUSH if op.kind == "flush" else [op])])
    assert again.log == disk.log
    return again


def device(content: Content) -> ByteArray:
    return np.repeat(np.array(content, dtype="<u4"), SECTOR // 4).view(np.uint8)


def whole(moments: Iterable[Moment]) -> set[Content]:
    return {content for moment in moments for content in moment.whole_contents()}


# Many choices are drawn at once, by a seed: hypothesis takes longer to draw each than the checker takes to judge it.
SEEDS = st.integers(0, 2**32 - 1)


def some_contents(chosen: Random, known: set[Content]) -> list[Content]:
    """Contents that the disk had at some time, and mixtures of these by sector."""
    pool = sorted(known)
    found = set(pool if len(pool) <= 40 else chosen.sample(pool, 30))
    for _ in range(10):
        one, other = chosen.choice(pool), chosen.choice(pool)
        cut = chosen.randint(0, 6)
        found.add(one[:cut] + other[cut:])
    return sorted(found)


def could_be(log: list[Op], position: int) -> set[Content]:
    """Every content with all that is durable and any choice of what may have been submitted."""
    flushes = [i for i, op in enumerate(log) if op.kind == "flush"]
    begin = max((i for i in flushes if i < position), default=-1)
    later = [i for i in flushes if i >= position] + [len(log), len(log)]
    writes = []
    for i, op in enumerate(log[: later[1]]):
        is_durable = i < begin or (op.kind == "fua" and i < position)
        if op.kind in {"write", "fua"}:
            writes.append((op, is_durable))
    return Moment(tuple(writes), 0).whole_contents()


@settings(max_examples=150)
@given(ops=some_ops(4, 0, 3, writes_max=4), seed=SEEDS)
def test_what_a_disk_can_hold_is_never_illegal_and_what_it_cannot_hold_is_never_legal(
    place: Path, ops: list[Op], seed: int
) -> None:
    disk = watch(place, ops)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR, is_replay=passes_self_check(log, disk))
        contents = some_contents(Random(seed), whole(disk.moments))
        for position, moments in disk.by_position(disk.moments).items():
            possible = whole(moments)
            for content in {*contents, *sorted(possible)[:20]}:
                answer = checker.check(device(content), position, Rule.WHOLE)
                expected = Legality.ILLEGAL if content in possible else Legality.LEGAL
                assert answer.legality is not expected, (position, content, str(answer))


@settings(max_examples=150)
@given(ops=some_ops(4, 2, 2, writes_max=4), seed=SEEDS)
def test_where_the_log_leaves_no_order_open_exactly_what_it_proves_is_legal_and_the_rest_is_told_apart(
    place: Path, ops: list[Op], seed: int
) -> None:
    disk = watched_in_log_order(watch(place, ops), place)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR)
        contents = some_contents(Random(seed), whole(disk.moments))
        for position, moments in disk.by_position(disk.moments).items():
            sure, possible = whole(moments), could_be(disk.log, position)
            for content in contents:
                answer = checker.check(device(content), position, Rule.WHOLE)
                decided = Legality.UNDECIDED if content in possible else Legality.ILLEGAL
                expected = Legality.LEGAL if content in sure else decided
                assert expected is answer.legality, (position, content, str(answer))


@settings(max_examples=80)
@given(ops=some_ops(16, 0, 12, writes_max=3), seed=SEEDS, unit_sectors=st.sampled_from([1, 8]))
def test_torn_contents_are_legal_only_if_each_unit_has_a_version_that_the_disk_can_hold(
    place: Path, ops: list[Op], seed: int, unit_sectors: int
) -> None:
    disk = watch(place, ops)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR, is_replay=passes_self_check(log, disk))
        chosen = Random(seed)
        pools = [sorted({v for m in disk.moments for v in m.versions(unit_sectors)[u]}) for u in (0, 1, 2)]
        for position, moments in disk.by_position(disk.moments).items():
            versions = [moment.versions(unit_sectors) for moment in moments]
            for _ in range(6):
                base = chosen.choice(versions)
                drawn = [chosen.choice(unit) for unit in base]
                if chosen.random() < 0.5:
                    rank = chosen.randint(0, 2)
                    drawn[rank] = chosen.choice(pools[rank])
                content = tuple(sector for unit in drawn for sector in unit)
                possible = any(all(d in v for d, v in zip(drawn, one, strict=True)) for one in versions)
                answer = checker.check(device(content), position, Rule.TORN, unit_bytes=unit_sectors * SECTOR)
                assert answer.legality is not (Legality.ILLEGAL if possible else Legality.LEGAL), str(answer)


@settings(max_examples=100)
@given(ops=some_ops(4, 0, 3, writes_max=3), seed=SEEDS)
def test_discards_make_zeros_legal_where_a_disk_may_show_them_and_nowhere_else(
    place: Path, ops: list[Op], seed: int
) -> None:
    disk = watch(place, ops)
    assume(sum(op.count for op in ops if op.kind == "discard") <= 6)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR, is_replay=passes_self_check(log, disk))
        contents = some_contents(Random(seed), whole(disk.discard_moments))
        for position, moments in disk.by_position(disk.discard_moments).items():
            possible = whole(moments)
            for content in contents:
                answer = checker.check(device(content), position, Rule.DISCARDS)
                expected = Legality.ILLEGAL if content in possible else Legality.LEGAL
                assert answer.legality is not expected, (position, content, str(answer))


@settings(max_examples=100)
@given(ops=some_ops(4, 2, 2, writes_max=5))
def test_a_protected_disk_holds_a_prefix_and_a_crash_of_the_system_leaves_what_was_seen(
    place: Path, ops: list[Op]
) -> None:
    disk = watched_in_log_order(watch(place, ops), place)
    views: dict[int, set[Content]] = defaultdict(set)
    for position, (count, _, _) in zip(disk.positions, disk.counts, strict=True):
        views[position] |= Moment(tuple((op, True) for op in disk.order[:count]), 0).whole_contents()
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for position, seen in views.items():
            # A FUA write in flight may be there before its completion is known.
            in_flight = disk.log[position : position + 1] and disk.log[position].kind == "fua"
            allowed = seen | (views[position + 1] if in_flight else set())
            for content in set().union(*views.values()):
                is_legal = checker.check(device(content), position, Rule.ORDERED).legality is Legality.LEGAL
                assert (content in seen) <= is_legal <= (content in allowed), (position, content)


@pytest.mark.parametrize("fault", HONEST)
@settings(max_examples=60)
@given(ops=some_ops(4, 0, 3, writes_max=4))
def test_every_state_that_a_generator_plans_is_legal_when_it_is_judged(
    place: Path, fault: Fault, ops: list[Op]
) -> None:
    disk = run_of(place, ops)
    assert fault.rule
    with WriteLog.open(place) as log:
        assume(passes_self_check(log, disk))
        checker = Checker(log, DISK_SECTORS * SECTOR)
        for state in everything(fault, log).states:
            answer = checker.check(rebuild_device(log, state), state.instant, fault.rule)
            assert answer.legality is Legality.LEGAL, (state.id, str(answer))


def judge(log: WriteLog, state: CrashState, *, instant: int | None = None, rule: Rule = Rule.WHOLE) -> str:
    content = rebuild_device(log, state)
    return str(Checker(log, len(content)).check(content, state.instant if instant is None else instant, rule))


TWO_EPOCHS = [
    Op("write", 0, 2, 1), Op("write", 4, 2, 1), *FLUSH, Op("mark"), Op("write", 0, 2, 2), Op("write", 8, 2, 2), *FLUSH,
]  # fmt: skip


def test_a_flushed_write_that_is_gone_is_illegal_and_its_first_sector_is_named(place: Path) -> None:
    run_of(place, TWO_EPOCHS)
    with WriteLog.open(place) as log:
        second = epochs(log)[1]
        assert "legal" == judge(log, make_state(second, 0))
        content = rebuild_device(log, make_state(second, 0))
        content[4 * SECTOR : 6 * SECTOR] = 0
        answer = Checker(log, len(content)).check(content, second.end, Rule.WHOLE)
        assert (Legality.ILLEGAL, 4 * SECTOR) == (answer.legality, answer.offset_bytes)
        assert "sector 4" in str(answer)
        assert "holds zeros" in str(answer)
        assert "entry 1 was durable there" in str(answer)


def test_a_write_of_the_next_epoch_is_not_proven_and_one_of_the_epoch_after_is_illegal(place: Path) -> None:
    run_of(place, [*TWO_EPOCHS, Op("write", 12, 1, 3), *FLUSH])
    with WriteLog.open(place) as log:
        first, second, third, _ = epochs(log)
        landed = make_state(second, 0, whole=landable(second))
        assert judge(log, landed, instant=first.end).startswith("undecided: sector 0 ")
        late = make_state(third, 0, whole=landable(third))
        assert judge(log, late, instant=first.end).startswith("illegal: sector 12 ")


def test_half_a_write_is_torn_and_no_whole_write(place: Path) -> None:
    run_of(place, TWO_EPOCHS)
    with WriteLog.open(place) as log:
        second = epochs(log)[1]
        content = rebuild_device(log, make_state(second, 0))
        content[8 * SECTOR : 9 * SECTOR] = rebuild_device(log, make_state(second, 0, whole=landable(second)))[
            8 * SECTOR : 9 * SECTOR
        ]
        checker = Checker(log, len(content))
        assert "illegal: sector 8 " in str(checker.check(content, second.end, Rule.WHOLE))
        assert "legal" == str(checker.check(content, second.end, Rule.TORN))
        assert "illegal: sector 8 " in str(checker.check(content, second.end, Rule.TORN, unit_bytes=8 * SECTOR))


def test_one_flipped_bit_is_illegal_under_every_rule(place: Path) -> None:
    run_of(place, TWO_EPOCHS)
    with WriteLog.open(place) as log:
        last = epochs(log)[-1]
        content = rebuild_device(log, make_state(last, 0))
        checker = Checker(log, len(content))
        for rule in Rule:
            assert "legal" == str(checker.check(content, last.end, rule)), rule
        content[9 * SECTOR + 7] ^= 1
        for rule in Rule:
            answer = str(checker.check(content, last.end, rule))
            assert answer.startswith("illegal: sector 9 "), rule
            assert "holds what no write of the log holds" in answer


def test_zeros_where_a_discard_was_are_legal_only_for_a_disk_that_applies_them(place: Path) -> None:
    run_of(place, [Op("write", 0, 4, 1), *FLUSH, Op("discard", 1, 2), *FLUSH, Op("write", 2, 1, 2), *FLUSH])
    with WriteLog.open(place) as log:
        last = epochs(log)[-1]
        content = rebuild_device(log, make_state(last, 0))
        content[SECTOR : 2 * SECTOR] = 0
        checker = Checker(log, len(content))
        assert "legal" == str(checker.check(content, last.end, Rule.DISCARDS))
        assert str(checker.check(content, last.end, Rule.WHOLE)).startswith("illegal: sector 1 ")
        # Sector 2 was written after the discard.
        content[2 * SECTOR : 3 * SECTOR] = 0
        assert str(checker.check(content, last.end, Rule.DISCARDS)).startswith("illegal: sector 2 ")


def test_an_open_order_is_undecided_and_a_proven_one_is_not(place: Path) -> None:
    # The FUA write is logged first, whenever it came; the last write of the sector shows at the end.
    run_of(place, [Op("write", 3, 1, 2), Op("fua", 3, 1, 1), *FLUSH, Op("mark"), *FLUSH])
    with WriteLog.open(place) as log:
        last = epochs(log)[-1]
        for fill in (1, 2):
            content = np.zeros(DISK_SECTORS * SECTOR, dtype=np.uint8)
            content[3 * SECTOR : 4 * SECTOR] = device((fill * 32 + 1,))
            unproven = Checker(log, len(content), is_replay=False)
            assert unproven.check(content, last.end, Rule.WHOLE).legality is Legality.UNDECIDED
            proven = Checker(log, len(content)).check(content, last.end, Rule.WHOLE)
            assert proven.legality is (Legality.LEGAL if fill == 2 else Legality.ILLEGAL)


def test_a_content_of_another_length_and_an_entry_behind_the_log_are_refused(place: Path) -> None:
    run_of(place, TWO_EPOCHS)
    with WriteLog.open(place) as log:
        checker = Checker(log, DISK_SECTORS * SECTOR)
        with pytest.raises(ValueError, match="the device has"):
            checker.check(np.zeros(SECTOR, dtype=np.uint8), 0, Rule.WHOLE)
        with pytest.raises(ValueError, match="not in this log"):
            checker.check(np.zeros(DISK_SECTORS * SECTOR, dtype=np.uint8), log.entry_count + 1, Rule.WHOLE)


def test_garbage_is_legal_behind_the_head_of_one_unflushed_write_in_one_block_only(place: Path) -> None:
    run_of(place, [Op("write", 0, 8, 1), *FLUSH, Op("write", 2, 12, 2)])
    with WriteLog.open(place) as log:
        tail = epochs(log)[-1]
        landed = rebuild_device(log, make_state(tail, 0, whole=landable(tail)))
        checker = Checker(log, len(landed))
        for garbage, is_legal in (
            ([7], True), ([3, 4, 5, 6, 7], True), ([9, 13], True), ([], True),
            # The head, both blocks, before the write, after it.
            ([2], False), ([8], False), ([7, 9], False), ([1], False), ([14], False),
        ):  # fmt: skip
            content = landed.copy()
            for sector in garbage:
                content[sector * SECTOR + 1] ^= 0x55
            assert is_legal is (checker.check(content, tail.end, Rule.SHORN).legality is Legality.LEGAL), garbage
            assert checker.check(content, tail.end, Rule.TORN).legality is (
                Legality.ILLEGAL if garbage else Legality.LEGAL
            )


def test_what_no_prefix_explains_is_named_where_the_nearest_prefix_fails(place: Path) -> None:
    run_of(place, [Op("write", 0, 4, 1), *FLUSH, Op("write", 2, 4, 2), Op("write", 8, 2, 2)])
    with WriteLog.open(place) as log:
        tail = epochs(log)[-1]
        for rule in (Rule.ORDERED, Rule.SEEN):
            content = rebuild_device(log, make_state(tail, 0, whole=landable(tail)))
            content[12 * SECTOR] ^= 1
            answer = Checker(log, len(content)).check(content, tail.end, rule)
            assert (Legality.ILLEGAL, 12 * SECTOR) == (answer.legality, answer.offset_bytes), rule


def test_a_prefix_after_a_crash_of_the_system_answers_for_no_mark_that_may_be_later(place: Path) -> None:
    run_of(place, [Op("fua", 9, 1, 1), Op("mark"), Op("write", 0, 1, 1), Op("write", 1, 1, 1), *FLUSH])
    with WriteLog.open(place) as log:
        first = epochs(log)[0]
        prefix = make_state(first, 1, whole=first.batch[:1])
        assert "legal" == judge(log, prefix, instant=first.fuas[0], rule=Rule.SEEN)
        for instant in range(first.fuas[0] + 2, first.end + 1):
            assert judge(log, prefix, instant=instant, rule=Rule.SEEN).startswith("undecided: sector 1 ")
        assert "legal" == judge(log, make_state(first, 1, whole=first.batch), rule=Rule.SEEN)


def test_a_fua_write_that_may_be_under_way_may_be_covered_in_part(place: Path) -> None:
    """It is open which of the two came last, so the content does not prove the disk wrong."""
    run_of(place, [Op("mark"), Op("mark"), Op("fua", 0, 2, 1), Op("write", 0, 1, 2), *FLUSH])
    with WriteLog.open(place) as log:
        content = np.zeros(DISK_SECTORS * SECTOR, dtype=np.uint8)
        content[: 2 * SECTOR] = device((2 * 32 + 1, 32 + 2))
        checker = Checker(log, len(content))
        assert checker.check(content, 0, Rule.WHOLE).legality is Legality.UNDECIDED
        content[SECTOR : 2 * SECTOR] = 0
        assert checker.check(content, 0, Rule.WHOLE).legality is Legality.UNDECIDED
        content[: 2 * SECTOR] = device((32 + 1, 0))
        assert checker.check(content, 0, Rule.WHOLE).legality is Legality.ILLEGAL
