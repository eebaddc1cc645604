"""What broke leads: in the report before any table, in a terminal in ten lines, and never because of a shim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.explain.drawing import Drawing, Fate, RowOfTime, svg
from rig.analysis.explain.story import Narrative, Telling
from rig.analysis.judging.outcome import Summary, summarise
from rig.analysis.show.broken import breaks, lines
from rig.analysis.show.report import report_html
from rig.contract.results import VerdictKind
from tests.unit.samples import SECOND_NS, controls_that_fire, durable, measured_scenario, sqlite, verdict

LOST, TORN = VerdictKind.LOST_SUFFIX, VerdictKind.TORN
FULL = "sqlite-ext4-wal_full_powercut"


def story(name: str = "test.db-wal") -> Narrative:
    """Return an explanation with a drawing of realistic size."""
    writes = [RowOfTime(1000 * n, name, f"a write, 4120 bytes: {name}", Fate.DURABLE) for n in range(14)]
    rows = (
        RowOfTime(-5000, "", "transaction 7 begins"), *writes, RowOfTime(20_000, "", "transaction 7 is ACKNOWLEDGED"),
        RowOfTime(30_000, name, f"a write, 4120 bytes: {name}", Fate.CULPRIT),
        RowOfTime(31_000, "file system", "3 writes, 12288 bytes: file system", Fate.LOST),
        RowOfTime(40_000, "", "POWER CUT, the state that is explained"),
    )  # fmt: skip
    words = f"It is enough that the write of 4120 bytes at 32 of {name}: a frame of transaction 7 is lost. " * 3
    return Narrative(
        "sqlite: lost-suffix", words.strip(), ("enough to be lost: a write",), ("engine: 1",), Drawing("x", rows)
    )


def summary() -> Summary:
    lost = [verdict(LOST, 2, "late", acked=30, instant_weight_ns=SECOND_NS), verdict(LOST, 3, "most", acked=12)]
    torn = [verdict(TORN, 0, "torn", acked=7, detail="row 3 is half there")]
    other = [*durable(90), verdict(LOST, 9, "nine")]
    return summarise(
        [
            *controls_that_fire(),
            measured_scenario(sqlite("wal", "full"), [*durable(90), *lost, *torn]),
            measured_scenario(sqlite("wal", "extra"), other),
            measured_scenario(sqlite("wal", "full"), other, shim="eatmydata"),
        ],
        5,
    )


def test_damage_comes_before_loss_the_largest_loss_first_and_no_shim_is_among_them() -> None:
    seen = [(each.kind, each.row.outcome.settings_name, each.worst.state) for each in breaks(summary())]
    assert [(TORN, "wal_full", "torn"), (LOST, "wal_extra", "nine"), (LOST, "wal_full", "most")] == seen


def test_a_break_says_how_many_contents_how_much_and_when() -> None:
    *_, lost = breaks(summary())
    assert "Acknowledged transactions are gone (lost-suffix) in 2 of 93 file contents" in lost.extent
    assert "up to 3 acknowledged transactions lost" in lost.extent
    assert lost.instants.startswith("The power had gone after 12 to 30 acknowledged transactions; all of the cuts")
    (torn, *_) = breaks(summary())
    assert torn.instants == "The power had gone after 7 acknowledged transactions"


def test_a_database_that_shows_nothing_has_lost_what_it_acknowledged() -> None:
    mute = [verdict(VerdictKind.UNOPENABLE, state=f"e{acked}", acked=acked) for acked in (0, 39)]
    (only,) = breaks(summarise([measured_scenario(sqlite("wal", "full"), [*durable(90), *mute])], 5))
    assert ("e39", True) == (only.worst.state, only.extent.endswith("up to 39 acknowledged transactions lost"))


def test_what_is_explained_leads() -> None:
    told = {FULL: Telling("late", story())}
    first = breaks(summary(), told)[0]
    assert (LOST, "late") == (first.kind, first.worst.state)
    assert "rig replay sqlite-ext4-wal_full_powercut late" == first.replay_line
    untold = {FULL: Telling("late", None, "the machine was lost")}
    assert "torn" == breaks(summary(), untold)[0].worst.state


@pytest.mark.parametrize("state", ["torn", "nobody's"])
def test_a_terminal_gets_ten_lines_at_most(state: str) -> None:
    text = lines(breaks(summary(), {FULL: Telling(state, story())}), 100)
    assert len(text) <= 10
    assert text[0].startswith("WHAT BROKE: sqlite wal_full on ext4 under powercut: The database has a part of")
    assert any("rig replay sqlite-ext4-wal_full_powercut torn" in line for line in text)
    assert ("It is enough that the write" in " ".join(text)) is (state == "torn")
    assert ("rig explain sqlite-ext4-wal_full_powercut torn" in " ".join(text)) is (state != "torn")
    assert text[-1].startswith("and 2 more: ")


def test_a_long_story_keeps_its_conclusion() -> None:
    conclusion = "With a sync of the log added, 0 of 12 contents show this; without it, 9 of 12."
    middle = "It is enough that a write is lost. " * 30
    told = replace(story(), paragraph=f"{middle}{conclusion}", conclusion=conclusion)
    text = lines(breaks(summary(), {FULL: Telling("torn", told)}), 100)
    assert len(text) <= 10
    assert f"(the report has the rest) {conclusion} rig replay" in " ".join(" ".join(text).split())


def test_why_nothing_is_explained_is_told_in_a_line() -> None:
    text = lines(breaks(summary(), {FULL: Telling("torn", None, "it took longer than 120 s")}))
    assert "  Not explained: it took longer than 120 s" in text


def test_a_picture_says_how_much_of_the_middle_it_leaves_out() -> None:
    drawn = replace(story().drawing, left_out_count=3)
    assert ">... 3 more ...</text>" in svg(drawn)
    assert "more ...</text>" not in svg(story().drawing)


def test_nothing_is_said_where_nothing_broke() -> None:
    kept = summarise([*controls_that_fire(), measured_scenario(sqlite("wal", "full"), durable(90))], 5)
    assert [] == lines(breaks(kept))
    assert 'id="broken"' not in report_html(kept, {})


def test_the_report_begins_with_what_broke_its_drawing_and_the_replay_line() -> None:
    told = {FULL: Telling("torn", story())}
    page = report_html(summary(), {}, tellings=told, why_pages={FULL: "scenarios/x/explanation.html"})
    opening = page[page.index("<h1") : page.index('<h2 id="settings"')]
    parts = [
        '<h2 id="broken">What broke: sqlite wal_full on ext4 under powercut', "in 1 of 93 file contents", "Promised: ",
        "<title>Timeline since", "It is enough that the write", 'href="scenarios/x/explanation.html"',
        "<pre>rig replay sqlite-ext4-wal_full_powercut torn</pre>", "One of each other kind",
        "rig replay sqlite-ext4-wal_extra_powercut nine", "rig replay sqlite-ext4-wal_full_powercut most",
    ]  # fmt: skip
    places = [opening.find(part) for part in parts]
    assert -1 not in places, dict(zip(parts, places, strict=True))
    assert sorted(places) == places


def test_a_report_of_few_settings_has_no_picture_of_speed_and_no_ring_for_a_broken_promise() -> None:
    broken = [*durable(90), verdict(LOST, 1, "gone")]
    levels = ("off", "normal", "full", "extra")
    wal = [measured_scenario(sqlite("wal", level), broken if level == "full" else durable(90)) for level in levels]
    page = report_html(summarise(wal, 5), {})
    assert "wal_full (broken)" in page
    kept = report_html(summarise([each for each in wal if each.scenario.settings["synchronous"] != "full"], 5), {})
    assert 'id="speed"' not in kept
