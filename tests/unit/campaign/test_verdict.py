"""Findings become verdicts: acknowledged transactions that are gone are lost, and contradictions are never green."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.campaign.verdicts import verdict
from rig.contract.findings import Finding, FindingKind
from rig.contract.results import Verdict, VerdictKind
from rig.faults import CrashState, Epoch, Mark
from rig.planning.cuts import Cut
from rig.recordings.timeline import Timeline

COUNT = 6
STATE = CrashState("e9.f0", Epoch(0, 0, 9, 9, (), ()), 0)


def marks(gaps: list[int]) -> list[Mark]:
    """Return the marks of `COUNT` transactions with this many other entries between them; a mark takes 10 ns."""
    turns = [f"{kind}-{number}" for number in range(1, COUNT + 1) for kind in ("begin", "ack")]
    entry, found = 0, []
    for rank, (text, gap) in enumerate(zip(["setup", *turns, "end"], gaps, strict=True)):
        found.append(Mark(entry, f"{text}-{10 * rank}"))
        entry += 1 + gap
    return found


mark_lists = st.lists(st.integers(0, 3), min_size=2 * COUNT + 2, max_size=2 * COUNT + 2).map(marks)


def judge(finding: Finding, entry: int, timeline: Timeline) -> Verdict:
    return verdict(Cut("scenario", STATE, "digest", entry, 70), finding, timeline)


@given(found=mark_lists, recovered=st.one_of(st.none(), st.integers(0, COUNT)), data=st.data())
def test_a_prefix_is_durable_only_if_it_holds_all_that_was_acknowledged_and_nothing_that_was_not_begun(
    found: list[Mark], recovered: int | None, data: st.DataObject
) -> None:
    entry = data.draw(st.integers(1, found[-1].entry_index + 1))
    before = [mark for mark in found if mark.entry_index < entry]
    acked = sum(mark.text.startswith("ack") for mark in before)
    begun = sum(mark.text.startswith("begin") for mark in before)
    told = judge(Finding(FindingKind.PREFIX, recovered, "", {}), entry, Timeline(found))
    assert (acked, recovered) == (told.acked, told.recovered)
    assert ("scenario", "e9.f0", "digest", 70) == (told.scenario, told.state, told.content, told.instant_weight_ns)
    if recovered is None or recovered > begun:
        assert (VerdictKind.INCONCLUSIVE, 0, 0) == (told.kind, told.lost, told.lost_virtual_ns)
        assert "had begun" in told.detail
    elif recovered < acked:
        assert (VerdictKind.LOST_SUFFIX, acked - recovered) == (told.kind, told.lost)
        # Marks are 10 ns apart: transaction n is acknowledged at 20 n; `before` ends at the last one before the cut.
        assert 10 * (len(before) - 1) - 20 * (recovered + 1) == told.lost_virtual_ns
        assert f"transactions {recovered + 1} to {acked} " in told.detail
    else:
        assert (VerdictKind.DURABLE, 0, 0, "") == (told.kind, told.lost, told.lost_virtual_ns, told.detail)


@pytest.mark.parametrize(("acked", "kind", "lost"), [(5, VerdictKind.KEPT_OPEN, 0), (6, VerdictKind.LOST_SUFFIX, 1)])
def test_files_kept_open_are_told_and_hide_no_loss(acked: int, kind: VerdictKind, lost: int) -> None:
    words = "the engine kept files open"
    told = judge(Finding(FindingKind.KEPT_OPEN, 5, words), 2 * acked + 1, Timeline(marks([0] * (2 * COUNT + 2))))
    assert (acked, kind, lost) == (told.acked, told.kind, told.lost)
    assert words in told.detail
    assert not VerdictKind.KEPT_OPEN.is_damage
    assert not VerdictKind.KEPT_OPEN.is_infrastructure


@pytest.mark.parametrize("kind", [kind for kind in VerdictKind if kind.is_damage or kind.is_infrastructure])
def test_any_other_finding_keeps_its_kind_and_words_and_counts_no_loss(kind: VerdictKind) -> None:
    told = judge(Finding(FindingKind(kind), None, "the engine's words", {}), 9, Timeline(marks([0] * (2 * COUNT + 2))))
    assert (kind, 0, 0, None, "the engine's words") == (
        told.kind, told.lost, told.lost_virtual_ns, told.recovered, told.detail
    )  # fmt: skip
    assert 4 == told.acked


@pytest.mark.parametrize(("recovered", "lost"), [(4, 0), (3, 1), (1, 3)])
def test_a_split_has_lost_what_the_shorter_database_lacks(recovered: int, lost: int) -> None:
    told = judge(Finding(FindingKind.SPLIT, recovered, "words"), 9, Timeline(marks([0] * (2 * COUNT + 2))))
    assert (VerdictKind.SPLIT, 4, recovered, lost, "words") == (
        told.kind, told.acked, told.recovered, told.lost, told.detail
    )  # fmt: skip
    # Transaction n is acknowledged at 20 ns times n, and the fourth is the last before the cut.
    assert told.lost_virtual_ns == (80 - 20 * (recovered + 1) if lost else 0)
    assert VerdictKind.SPLIT.is_damage


@pytest.mark.parametrize(("recovered", "lost", "shown"), [(2, 0, 0), (1, 1, 1), (0, 2, 1)])
def test_of_a_loss_it_is_told_what_had_only_been_shown_after_a_restart(recovered: int, lost: int, shown: int) -> None:
    texts = ["setup-0", "begin-1-1", "ack-1-2", "begin-2-3", "fail-2-4", "recovered-2-5", "end-9"]
    told = judge(Finding(FindingKind.PREFIX, recovered), 6, Timeline([Mark(*pair) for pair in enumerate(texts)]))
    assert (2, lost, shown) == (told.acked, told.lost, told.lost_shown)
    assert (shown > 0) is told.detail.endswith("the last 1 had only been shown, after a restart")


# The second of two clients is two transactions ahead; 3 is in flight before the last ack.
OF_CLIENTS = [
    "setup",
    "clients-2",
    "begin-1",
    "begin-2",
    "ack-2",
    "begin-4",
    "ack-4",
    "ack-1",
    "begin-3",
    "ack-3",
    "end",
]


@pytest.mark.parametrize(
    ("of_clients", "kind", "lost", "lost_ns", "words"),
    [
        ((1, 2), VerdictKind.DURABLE, 0, 0, ""),
        ((2, 2), VerdictKind.DURABLE, 0, 0, ""),
        ((1, 1), VerdictKind.LOST_SUFFIX, 1, 2, "acknowledged and gone of 2 clients: 4"),
        ((2, 1), VerdictKind.LOST_SUFFIX, 1, 2, "acknowledged and gone of 2 clients: 4"),
        ((0, 1), VerdictKind.LOST_SUFFIX, 2, 2, "acknowledged and gone of 2 clients: 1, 4"),
        ((), VerdictKind.LOST_SUFFIX, 3, 4, "acknowledged and gone of 2 clients: 1, 2, 4"),
        ((1, 3), VerdictKind.INCONCLUSIVE, 0, 0, "it has transaction 6, which had not begun"),
        ((3, 1), VerdictKind.INCONCLUSIVE, 0, 0, "it has transaction 5, which had not begun"),
    ],
)
def test_of_several_clients_each_must_have_what_was_acknowledged_to_it(
    of_clients: tuple[int, ...], kind: VerdictKind, lost: int, lost_ns: int, words: str
) -> None:
    timeline = Timeline([Mark(rank, f"{text}-{rank}") for rank, text in enumerate(OF_CLIENTS)])
    finding = Finding(FindingKind.PREFIX, sum(of_clients), "torn 3", of_clients=of_clients)
    told = judge(finding, 9, timeline)
    assert (kind, lost, lost_ns) == (told.kind, told.lost, told.lost_virtual_ns)
    assert (3, sum(of_clients)) == (told.acked, told.recovered)
    assert words in told.detail
    assert told.detail.endswith("torn 3")


def test_of_several_clients_any_other_finding_keeps_its_kind_and_words() -> None:
    timeline = Timeline([Mark(rank, f"{text}-{rank}") for rank, text in enumerate(OF_CLIENTS)])
    told = judge(Finding(FindingKind.HOLE, None, "transaction 1 is missing"), 9, timeline)
    assert (VerdictKind.HOLE, 0, None, "transaction 1 is missing") == (
        told.kind, told.lost, told.recovered, told.detail
    )  # fmt: skip
