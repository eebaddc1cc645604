"""The report in a real browser: it is shown whole, without complaints and without requests to the network."""

from __future__ import annotations

import html
import re
import shutil
import socket
import subprocess
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image as pictures

from rig.analysis.advice import advicetext
from rig.analysis.advice.advice import Wishes, advise
from rig.analysis.advice.candidates import Piece
from rig.analysis.explain import story as stories
from rig.analysis.judging.outcome import Row, Summary, summarise
from rig.analysis.show.report import report_html
from rig.analysis.show.sweep import Sweep, steps
from rig.analysis.show.sweep import page_html as sweep_html
from rig.contract.results import PhaseFacts, VerdictKind
from tests.unit import samples
from tests.unit.analysis.show.test_broken import story

# Needs a browser.
pytestmark = pytest.mark.slow

_LIMIT_S = 60
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
)
# Messages of the page, among messages of the browser itself.
_OF_THE_PAGE = re.compile(r"CONSOLE|Refused to|net::ERR|Uncaught")


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "no browser: run ./bootstrap.sh test"
    return found


class Proxy:
    """Counts requests to the network and answers none."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                self.asked.append(client.recv(4096).decode(errors="replace").partition("\r\n")[0])

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._server.close()


def browse(page: Path, folder: Path, *words: str) -> tuple[str, list[str], list[str]]:
    """Open a page; return the DOM if wanted, the browser's messages on the page, and its requests to a proxy."""
    proxy = Proxy()
    try:
        command = [
            chromium(), *_FLAGS, f"--user-data-dir={folder / 'profile'}", f"--proxy-server={proxy.address}",
            "--proxy-bypass-list=<-loopback>", *words, page.as_uri(),
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    finally:
        proxy.close()
    said = [line for line in result.stderr.splitlines() if _OF_THE_PAGE.search(line)]
    # Only addresses that this page could have named; the browser contacts its vendor at every start.
    asked = [line for line in proxy.asked if "elsewhere" in line]
    return result.stdout, said, asked


class Page(HTMLParser):
    """The words of the rows and of the pictures, and everything that names an address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.row_names: list[str] = []
        self.picture_words: list[list[str]] = []
        self.addresses: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside.append(f"{tag} {dict(attrs).get('scope', '')}".strip())
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "srcset"}]
        if tag == "svg" and any(part == "figure" for part in self._inside):
            self.picture_words.append([])

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop().split()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not data.strip() or not self._inside:
            return
        if self._inside[-1] == "th row":
            self.row_names.append(data.strip())
        if self._inside[-1] == "text" and self.picture_words:
            self.picture_words[-1].append(data.strip())


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise(samples.matrix(), 100)


@pytest.fixture(scope="module")
def page(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(summary, {"run": "synthetic"}), encoding="utf-8")
    return path


def test_a_browser_shows_a_row_and_a_point_for_each_setting_and_has_nothing_to_complain_of(
    summary: Summary, page: Path, tmp_path: Path
) -> None:
    dom, said, asked = browse(page, tmp_path, "--dump-dom")
    assert ([], []) == (said, asked)
    shown = Page(dom)
    names = [row.outcome.settings_name for row in summary.rows]
    assert 17 == len(names)
    assert names == shown.row_names[: len(names)]
    assert 2 == len(shown.picture_words)
    for words in shown.picture_words:
        assert [] == [name for name in names if not any(name in word for word in words)], words
    assert [] == [one for one in shown.addresses if not one.startswith(("#", "data:"))]


def test_the_screenshot_is_a_picture_and_not_one_colour(page: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.png"
    browse(page, tmp_path, f"--screenshot={path}", "--window-size=1200,1600")
    pixels = pictures.imread(path)
    assert (1600, 1200) == pixels.shape[:2]
    colours = np.unique((pixels[:, :, :3] * 255).astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32))
    assert len(colours) > 50


SOURCE_ID = "3.46.1 2024-08-13 09:16:08 c9c2ab54ba1f5f46360f1b4f35d849cd3f080e6fc2b6c60e91b16c63f69aalt1"
# Reports to the outer page the two widths, then everything wider than the window that does not scroll sideways.
_MEASURE = """<script>
document.querySelectorAll("details").forEach(one => one.open = true);
const root = document.documentElement;
const wide = [...document.querySelectorAll("body *")].filter(
    one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scrolls"));
const words = wide.map(one => one.outerHTML.slice(0, 80));
parent.document.documentElement.dataset.found = [innerWidth, root.scrollWidth, ...words].join("|");
</script>"""


@pytest.fixture(scope="module")
def full_page() -> str:
    """A page with everything that a report may hold, including the long words of real ones."""
    torn = [samples.verdict(VerdictKind.LOST_SUFFIX, 2, f"e126.f0.r7723fa897303bbd7p50u512i{n}") for n in range(3)]
    scenarios = [
        *samples.matrix(),
        *samples.matrix("torn"),
        samples.measured_scenario(samples.sqlite("wal", "full"), torn, "plp"),
    ]
    scenarios += [samples.measured_scenario(samples.sqlite("wal", "full"), torn, shim="drop-wal-commit")]
    facts = [
        replace(
            one.recording,
            engine_version=SOURCE_ID,
            settings={**one.scenario.settings, "source_id": SOURCE_ID},
            syncs={"journal data, journal header, database, journal removed": 12},
        )
        for one in scenarios
    ]
    phase = PhaseFacts("metadata in place x2, journal, metadata in place x3, new data, journal x17", 39, 24, 211, 13, 7)
    scenarios = [
        replace(one, recording=fact, plan=replace(one.plan, phases=(phase,)))
        for one, fact in zip(scenarios, facts, strict=True)
    ]
    told = {"sqlite-ext4-wal_full_plp": stories.Telling(torn[0].state, story())}
    page = report_html(summarise(scenarios, 100), {"run": "synthetic"}, tellings=told)
    assert "<title>Timeline since" in page
    return page


def widths(page: str, width: int, folder: Path) -> tuple[int, int, list[str]]:
    """Show a page in a window of this width; return the widths of window and page, and what is too wide."""
    # A frame, because the browser window cannot be as narrow as a phone.
    around = folder / "around.html"
    frame = html.escape(page + _MEASURE)
    around.write_text(f'<!doctype html><iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{frame}">')
    dom, said, _ = browse(around, folder, "--dump-dom")
    assert [] == said
    found = re.search(r'data-found="([^"]*)"', dom)
    assert found
    window, page_width, *wide = html.unescape(found[1]).split("|")
    return int(window), int(page_width), wide


def advice_page() -> str:
    pieces = [Piece("runs/2026-01-02-110000", "quick", row) for row in summarise(samples.matrix(), 100).rows]
    advice = advise(pieces, Wishes(lost_max=0), ("powercut",))
    return advicetext.page_html(advice, [f"rig run {' '.join(one.row.outcome.scenario.id for one in pieces)}"])


def sweep_page() -> str:
    found = [step for value in ("10", "1000") for step in steps(value, summarise(samples.matrix(), 100), _name)]
    return sweep_html(Sweep("wal_autocheckpoint", ("10", "1000"), found), {"scenarios": "sqlite-ext4-*_powercut"})


def explanation_page() -> str:
    return stories.page(
        story("a/long/name/of/a/file.db-wal"), "rig replay sqlite-ext4-wal_full_plp e126.f0.r7723fa897303bbd7p50"
    )


def _name(row: Row) -> str:
    return f"sqlite-ext4-{row.outcome.settings_name}"


@pytest.mark.parametrize("width", [390, 1440], ids=["phone", "desk"])
@pytest.mark.parametrize("kind", ["report", "advice", "sweep", "explanation"])
def test_nothing_is_wider_than_the_window(full_page: str, tmp_path: Path, kind: str, width: int) -> None:
    made = {"report": lambda: full_page, "advice": advice_page, "sweep": sweep_page, "explanation": explanation_page}
    page = made[kind]()
    assert (width, width, []) == widths(page, width, tmp_path)


def test_the_look_notices_what_is_too_wide(tmp_path: Path) -> None:
    page = "<!doctype html><body><p style='width: 500px'>wide</p><div class='scrolls'>wide too</div>"
    window, page_width, wide = widths(page, 390, tmp_path)
    assert 390 == window < 500 < page_width
    assert ["<p"] == [one[:2] for one in wide]


def test_the_look_notices_a_page_that_complains_or_asks_somebody(tmp_path: Path) -> None:
    """Without it the test above could be blind."""
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://elsewhere.invalid/a.png"><script>console.error("oops"); nothing.at.all</script>')
    _, said, asked = browse(page, tmp_path, "--dump-dom")
    assert 2 <= len(said)
    assert any("elsewhere" in line for line in asked)
