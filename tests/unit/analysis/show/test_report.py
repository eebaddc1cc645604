"""The report and the table give the same answer, fetch nothing, and have a replay line for each counterexample."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rig.analysis.judging.outcome import Summary, summarise
from rig.analysis.show import pictures
from rig.analysis.show.pictures import Axis, Point, loss_bars, speed_against_loss
from rig.analysis.show.report import report_html, write_report
from rig.analysis.show.table import headline, share, table_text
from rig.contract.results import VerdictKind
from tests.unit.samples import changed, controls_that_fire, durable, matrix, measured_scenario, sqlite, verdict

EVIL = "<script>alert('&')</script>"


@pytest.fixture(scope="module")
def summary() -> Summary:
    broken = [verdict(VerdictKind.LOST_SUFFIX, 2, f"e0{index}:i4", detail=f"key {index}: {EVIL}") for index in range(7)]
    return summarise([*matrix("torn"), measured_scenario(sqlite("wal", "extra"), [*durable(150), *broken])], 100)


@pytest.fixture(scope="module")
def page(summary: Summary) -> str:
    return report_html(summary, {"command": f"rig run {EVIL}"})


def test_the_same_results_give_the_same_bytes(summary: Summary, page: str, tmp_path: Path) -> None:
    write_report(summary, {"command": f"rig run {EVIL}"}, tmp_path / "new" / "report.html")
    assert page == (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert ["report.html"] == [path.name for path in (tmp_path / "new").iterdir()]


def test_the_page_fetches_nothing(page: str) -> None:
    assert "<svg" in page
    references = re.findall(r"(?:src|href|action|data)\s*=\s*[\"']?([^\"'\s>]+)", page)
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"<(?:link|script|iframe|object|embed|img)\b|@import|url\((?![\"']?#)", page)


def test_every_counterexample_has_its_replay_line(summary: Summary, page: str) -> None:
    broken = [row for row in summary.rows if row.judgement.broken_by]
    assert len(broken) == 2
    for row in broken:
        for one in row.judgement.broken_by:
            assert f"<pre>rig replay {row.outcome.scenario.id} {one.state}</pre>" in page


def test_words_of_engines_and_users_are_text_and_no_markup(page: str) -> None:
    assert "<script" not in page
    assert html.escape(EVIL, quote=False).replace("'", "&#39;") in page


def test_ids_in_the_page_are_unique_and_every_reference_has_its_target(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert sorted(set(ids)) == sorted(ids)
    targets = re.findall(r'(?:href="#|url\(#|aria-labelledby=")([^")]+)', page)
    assert set(targets) <= set(ids)


def test_the_page_names_every_setting_digest_and_control(summary: Summary, page: str) -> None:
    for row in summary.rows:
        assert row.outcome.settings_name in page
        assert row.outcome.measured.recording.digest in page
    for control in summary.controls:
        assert control.word in page


def test_an_empty_run_renders_as_inconclusive() -> None:
    assert "Inconclusive" in report_html(summarise([], 5), {})
    assert "Inconclusive" in table_text(summarise([], 5))


def test_an_inconclusive_result_says_why_in_page_and_table() -> None:
    doubtful = summarise([measured_scenario(sqlite("wal", "full"), durable(2)), *controls_that_fire()], 5)
    for text in (report_html(doubtful, {}), table_text(doubtful)):
        assert "too little exposure: 2 distinct file contents, 5 asked for" in text


def test_the_page_has_the_loss_at_a_random_instant_of_every_setting_and_of_no_shim(summary: Summary, page: str) -> None:
    section = page.partition('<h2 id="random">')[2].partition("</section>")[0]
    names = re.findall(r'<th scope="row">(\S+)', section)
    plain = [row.outcome for row in summary.rows if row.outcome.scenario.shim == "none" and row.outcome.instant_count]
    assert sorted(one.settings_name for one in plain) == sorted(names)
    for one in plain:
        assert f">{share(one.instant_share_losing)}" in section


@pytest.mark.parametrize("width", [100, 110, 120])
def test_the_table_fits_its_width_and_cuts_no_word(summary: Summary, width: int) -> None:
    text = table_text(summary, width)
    own = [line for line in text.splitlines() if "rig replay" not in line and not line.startswith(("broken", "incon"))]
    assert max(map(len, own)) <= width
    assert "…" not in text
    assert "\x1b" not in text
    for row in summary.rows:
        assert row.outcome.settings_name in text
    assert "rig replay sqlite-ext4-wal_extra_powercut e00:i4" in text


def test_speed_against_loss_is_shown_apart_for_each_device() -> None:
    fast, slow = ([changed(one, device=device) for one in matrix()] for device in ("ssd-plp", "hdd5400"))
    slower = [replace(one, recording=replace(one.recording, busy_virtual_ns=10**11)) for one in slow]
    shown = report_html(summarise([*fast, *slower], 100), {})
    captions = re.findall(r"<figcaption>How much is lost: ([^<]*)", shown)
    assert ["hdd5400", "ssd-plp"] == [re.findall(r"device (\S+)\. ", caption)[0] for caption in captions]


CROWD = [Point(f"setting_{index}", 100 * 1.08**index, float(index % 2), index % 3 == 0) for index in range(12)]


def test_labels_of_a_picture_cover_no_point_and_no_other_label() -> None:
    figure = Figure(figsize=(10.4, 4.7), dpi=72, layout="constrained")
    axes = figure.add_subplot()
    pictures._draw_axes(axes, CROWD, Axis("lost", is_share=False))
    taken = pictures._label(figure, axes, CROWD)
    points, labels = taken[: len(CROWD)], taken[len(CROWD) :]
    assert len(CROWD) == len(labels)
    for index, label in enumerate(labels):
        assert not any(label.overlaps(other) for other in [*points, *labels[:index]])


def test_a_picture_has_a_title_and_every_name_whatever_the_order_of_points() -> None:
    svg = speed_against_loss(CROWD, Axis("lost", is_share=False), "p", "speed & loss")
    assert '<title id="p-title">speed &amp; loss</title>' in svg
    for point in CROWD:
        assert point.name in svg
    assert svg == speed_against_loss(list(reversed(CROWD)), Axis("lost", is_share=False), "p", "speed & loss")


def test_only_points_that_no_other_beats_have_a_ring() -> None:
    def point(speed: float, lost: int, *, is_damaged: bool = False) -> Point:
        return Point(f"{speed} {lost}", speed, lost, is_damaged=is_damaged)

    best = [point(100, 0), point(200, 3), point(400, 0, is_damaged=True)]
    beaten = [point(90, 0), point(150, 3), point(300, 0, is_damaged=True), point(200, 4)]
    nobody = Point("wal_full+eatmydata", 300, 0, is_damaged=False, is_choice=False)
    svg = speed_against_loss([*best, *beaten, nobody], Axis("lost", is_share=False), "p", "speed and loss")
    assert len(best) == svg.count('id="p-ring-')
    assert 1 == speed_against_loss(beaten[:1], Axis("lost", is_share=False), "p", "alone").count('id="p-ring-')


def test_settings_that_fall_on_one_point_share_it() -> None:
    twins = [Point("wal_full", 600, 0, is_damaged=False), Point("wal_extra", 601, 0, is_damaged=False)]
    assert ["wal_full\nwal_extra"] == [point.name for point in pictures._merge(twins)]
    apart = [Point("wal_full", 600, 0, is_damaged=False), Point("wal_extra", 601, 0, is_damaged=True)]
    assert 2 == len(pictures._merge(apart))


def test_the_bars_name_every_count_and_are_few_however_much_is_lost() -> None:
    bars = loss_bars({0: 5, 3: 1, 900: 2})
    assert "5 states lost 0, 1 states lost 3, 2 states lost 900" in bars
    assert bars.count("<rect") <= 26
    assert not loss_bars({})


def test_a_share_that_is_not_zero_never_reads_as_zero_and_one_that_is_not_all_never_as_all() -> None:
    assert ["-", "0.0 %", "< 0.1 %", "50.0 %", "99.9 %", "all"] == [
        share(value) for value in (None, 0.0, 0.00001, 0.5, 0.99999, 1.0)
    ]


def test_damage_that_the_documentation_does_not_exclude_is_named_in_the_answer_although_no_promise_breaks() -> None:
    torn = [*durable(200), verdict(VerdictKind.CORRUPT, 0, "mixed page")]
    summary = summarise(
        [*controls_that_fire("torn"), measured_scenario(sqlite("persist", "normal"), torn, "torn")], 100
    )
    assert "does not exclude it: persist_normal under torn." in headline(summary)
    clean = summarise(
        [*controls_that_fire("torn"), measured_scenario(sqlite("persist", "normal"), durable(200), "torn")], 100
    )
    assert "exclude" not in headline(clean)


def test_the_sentences_at_the_top_are_of_the_main_faults_and_of_settings_that_promise_to_lose_nothing() -> None:
    settings = [sqlite("wal", "off"), sqlite("wal", "full")]
    scenarios = [
        measured_scenario(one, durable(150), fault=fault)
        for fault in ("powercut", "bitflip", "plp")
        for one in settings
    ]
    page = report_html(summarise([*controls_that_fire(), *scenarios[1:]], 100), {"command": "rig run"})
    leads = re.findall(r'<p class="lead">(.*?)</p>', page)
    assert len(leads) == 1
    assert "powercut" in leads[0]
    assert "lost: wal_full" in leads[0]
    dishonest = report_html(
        summarise([measured_scenario(sqlite("wal", "full"), durable(150), fault="bitflip")], 100), {}
    )
    assert 'class="lead"' not in dishonest
