"""Planning in rounds: more states until enough file contents were seen, and never without saying why it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.faults import Logs, WriteLog
from rig.filesystems.ext import DISK_MIB
from rig.planning.audit import Auditor
from rig.planning.cuts import Cut
from rig.planning.matrix import PROFILES
from rig.planning.planner import Planned, Planner, PlanningEnd
from rig.recordings.timeline import Timeline
from tests.unit.faults.log.test_log import FLUSH, MARK, Entry, encode

POWERCUT = Scenario("sqlite", "ext4", {"journal_mode": "wal", "synchronous": "full"}, "powercut")
PROFILE = replace(PROFILES["quick"], states_max=8, instants=0, exposure_min=20)
# Ten epochs of four writes: 160 states.
ENTRIES = [
    Entry(MARK, text="setup-1000"),
    *(
        entry
        for number in range(10)
        for entry in (*(Entry(0, 80 * number + 16 * rank, 8, 1 + 4 * number + rank) for rank in range(4)), Entry(FLUSH))
    ),
    Entry(MARK, text="end-1900"),
    Entry(MARK, text="dm-log-writes-end"),
]


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[Planner]:
    (tmp_path / "log").write_bytes(encode(ENTRIES))
    with WriteLog.open(tmp_path / "log") as log:
        logs = Logs(log)
        yield Planner(PROFILE, logs, Timeline(log.marks), Auditor(logs, [DISK_MIB]))


def judge(cuts: Sequence[Cut], file_count: int) -> list[Verdict]:
    """Verdicts on cuts that show these file contents, one after the other."""
    return [
        Verdict(
            cut.scenario, cut.address, cut.content, cut.entry, "", "", VerdictKind.DURABLE, 0, 0, 0, 0, cut.weight_ns,
            "", f"file {number % file_count}",
        )
        for number, cut in enumerate(cuts)
    ]  # fmt: skip


def rounds(planner: Planner, file_count: int) -> tuple[list[int], PlanningEnd | None]:
    """How many states there were after each round, and why there were no more."""
    found, one = [], planner.first(POWERCUT)
    while True:
        cuts = one.batches[0][1]
        found.append(len(cuts))
        more = planner.more(one, judge(cuts, file_count))
        if not isinstance(more, Planned):
            return found, more
        assert list(cuts) == list(more.batches[0][1][: len(cuts)]), "what was planned stays planned"
        assert len(more.batches[0][1]) == more.facts.state_count
        one = more


def test_states_are_planned_until_the_file_contents_are_enough(planner: Planner) -> None:
    counts, ending = rounds(planner, file_count=1000)
    assert 8 == counts[0]
    assert ending is None
    assert counts[-2] < 20 <= counts[-1]


def test_a_round_without_a_new_content_is_the_last_and_says_so(planner: Planner) -> None:
    counts, ending = rounds(planner, file_count=5)
    assert 2 == len(counts)
    assert PlanningEnd(f"the last of {counts[-1]} states showed no new one", is_saturated=True) == ending


def test_the_end_of_all_states_is_said(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(encode([*ENTRIES[:6], *ENTRIES[-2:]]))
    with WriteLog.open(tmp_path / "log") as log:
        logs = Logs(log)
        planner = Planner(PROFILE, logs, Timeline(log.marks), Auditor(logs, [DISK_MIB]))
        counts, ending = rounds(planner, file_count=1000)
    assert PlanningEnd(f"there are no more than these {counts[-1]} states", is_saturated=True) == ending


def test_a_scenario_without_a_promise_gets_the_states_of_its_profile_and_no_more(planner: Planner) -> None:
    one = planner.first(replace(POWERCUT, settings={"journal_mode": "wal", "synchronous": "off"}))
    assert planner.more(one, judge(one.batches[0][1], 1)) is None


def test_a_run_that_goes_on_plans_what_it_would_have_planned(planner: Planner) -> None:
    first = planner.first(POWERCUT)
    second = planner.more(first, judge(first.batches[0][1], 1000))
    assert isinstance(second, Planned)
    # All verdicts of both rounds are there when the first is planned again.
    again = planner.more(planner.first(POWERCUT), judge(second.batches[0][1], 1000))
    assert second == again


def test_the_facts_count_what_all_rounds_have_tried_of_each_phase(planner: Planner) -> None:
    first = planner.first(POWERCUT)
    second = planner.more(first, judge(first.batches[0][1], 1000))
    assert isinstance(second, Planned)
    (few,), (more,) = first.facts.phases, second.facts.phases
    assert ("new data x4", 10, 4) == (few.what, few.epoch_count, few.write_count)
    # The eight states that part all pairs come first.
    assert 12 == few.pairs_tried == few.pair_count == more.pairs_tried
    assert few.lost_alone_count + few.landed_alone_count < more.lost_alone_count + more.landed_alone_count
    (torn,) = planner.first(replace(POWERCUT, fault="torn")).facts.phases
    assert (0, 8) == (torn.pair_count, torn.tear_count)
    assert 0 < torn.tears_tried < 8
    assert () == planner.first(replace(POWERCUT, fault="plp")).facts.phases
