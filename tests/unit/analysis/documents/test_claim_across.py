"""A document's row about two file systems needs a measurement on each, on one modelled disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.documents.across import ROWS, Across, across
from rig.analysis.documents.page import page_html
from rig.analysis.documents.replications import replications
from rig.speed.speeds import WHOLE, Speeds
from tests.unit.analysis.documents.test_claim_evidence import answer_page
from tests.unit.analysis.show.test_speed import speeds_of

ROW = Across("a", "speed", "ext3", "ext4", 16, 1.0, 4.0)


def on(word: str, value: float, device: str = "d", load: str = WHOLE) -> Speeds:
    found = speeds_of({"a": [value, value, value]})
    virtual = {"filesystem": word, "device": device, "delays": "1 ms", "clock": "c", "qemu": "1"}
    return replace(found, virtual=virtual, arms={"a": replace(found.arms["a"], load=load)})


def test_a_row_stands_beside_each_variant_on_the_same_disk() -> None:
    without, with_barriers, base = on("ext3.nobarrier", 20), on("ext3", 75), on("ext4", 80)
    found = across([ROW], [without, base, with_barriers])
    assert [("ext3.nobarrier", 0.25, False), ("ext3", 75 / 80, True)] == [
        (one.filesystem, one.ratio, one.deviates) for one in found
    ]


@pytest.mark.parametrize(
    "other",
    [
        on("ext3", 20, device="e"),
        on("ext3", 20, load="scale 0.1"),
        on("xfs", 20),
        replace(on("ext3", 20), virtual={}),
        replace(on("ext3", 20), arms={}),
    ],
)
def test_what_is_not_comparable_is_left_out(other: Speeds) -> None:
    assert [] == across([ROW], [other, on("ext4", 80)])


def test_the_page_shows_the_row_of_the_feed_reader() -> None:
    (row,) = ROWS["S2"]
    assert (16, 1 / 6.7) == (row.line, row.ratio)
    arms = [
        replace(
            speeds_of({row.arm: [value]}), experiment="S2",
            virtual={"filesystem": word, "device": "hdd7200", "delays": "1 ms", "clock": "c", "qemu": "1"},
        )
        for word, value in (("ext3.nobarrier", 1.0), ("ext4", 5.0))
    ]  # fmt: skip
    timed = [
        replace(
            one, arms={row.arm: replace(one.arms[row.arm], load=WHOLE)},
            trials=[replace(each, metrics={"seconds": each.metrics["speed"]}) for each in one.trials],
        )
        for one in arms
    ]  # fmt: skip
    document = answer_page()
    page = page_html([replace(document, document=replace(document.document, id="S2"))], timed, [])
    assert "Line 16: seconds of wal-32k-full on ext3 is 0.149 of that on ext4 (1 / 6.7)." in page
    assert "Here it is 0.2, ext3.nobarrier over ext4 on the modelled disk hdd7200: apart by more than a third." in page


def test_the_rows_are_of_arms_that_are_carried_out() -> None:
    of = {one.name: one for one in replications() if one.engine == "sqlite"}
    for name, rows in ROWS.items():
        for row in rows:
            assert row.arm in of[name].arms
            assert row.metric in {metric.name for metric in of[name].metrics}
            # The figure of the document's other row, which the replication has as a ratio to its own base.
            assert row.base_value in {figure.value for figure in of[name].figures if figure.arm == row.arm}
