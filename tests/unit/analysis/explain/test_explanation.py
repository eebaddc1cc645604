"""An explanation from the first question to the last word, over a log whose database is read off the disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rig.analysis.dossiers import Keeps, Promise
from rig.analysis.explain import checks, explanation
from rig.analysis.explain.checks import StoryCheck
from rig.analysis.explain.choices import Choices
from rig.analysis.explain.drawing import svg
from rig.analysis.explain.explanation import Explanation, explain
from rig.analysis.explain.loss import Placed
from rig.analysis.explain.story import Narrative, Telling, lines, markdown, minimal_list, page, paragraph
from rig.contract.calls import SeenCall
from rig.contract.errors import EngineError
from rig.contract.findings import Finding, FindingKind
from rig.contract.messages import decode
from rig.contract.places import FilePlaces
from rig.contract.results import RecordingFacts, Verdict
from rig.contract.scenario import Scenario
from rig.faults import CrashState, Logs, everything_unflushed_lost
from rig.planning.cuts import Cut
from tests.unit.analysis.explain.test_loss import DISORDER, LATE, UNSYNCED, WINDOW, Bench, Reads, bench, prefix, torn
from tests.unit.faults.log.test_log import Entry
from tests.unit.samples import measured_scenario

SETTINGS = {"journal_mode": "wal", "synchronous": "normal"}
SCENARIO = Scenario("sqlite", "ext4", {"journal_mode": "wal"}, "powercut", engine_module="rig.engines.sqlite")
# Sector n of the disk is sector n of this file.
FILES = [FilePlaces("table", 12, is_directory=False, size_bytes=64 * 512, extents=((0, 0, 20 * 512),))]
WRITE = SeenCall("write", "table", "", 2 * 512, 512, "", "", 7, "program", "commit", 2, 0)


class Run(Bench):
    """A bench that knows files and calls, and what further syncs do."""

    scenario, untold = SCENARIO, ""

    def __init__(
        self, logs: Logs, calls: Sequence[SeenCall] = (WRITE,), failure: str = "", reads: Reads = prefix, *,
        helps: bool = True, is_hidden: bool = False, states_min: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(logs, reads)
        # Whether supervision alone makes the loss disappear.
        self.is_hidden = is_hidden
        self.seen, self.failure, self.helps = calls, failure, helps
        # A plan of fewer states has none that shows anything.
        self.states_min = states_min
        self.asked: list[tuple[str, ...]] = []
        self.planned: list[int] = []

    def judge(self, placed: Sequence[Placed], *, twice: bool = False) -> list[Verdict]:  # noqa: ARG002 - one machine
        return super().judge(placed)

    @property
    def facts(self) -> RecordingFacts:
        return measured_scenario(SETTINGS, []).recording

    def places(self, states: Sequence[CrashState]) -> list[list[FilePlaces]]:
        return [FILES for _ in states]

    def calls(self, span: tuple[int, int]) -> Sequence[SeenCall]:  # noqa: ARG002 - they have their stacks
        return self.seen

    def plan(self, span: tuple[int, int], states_max: int) -> list[Cut]:  # noqa: ARG002 - these states alone
        self.planned.append(states_max)
        entries = range(8, 14) if states_max >= self.states_min else [self.logs.first.entry_count]
        states = [everything_unflushed_lost(self.logs.first, self.logs.epochs, entry) for entry in entries]
        return [Cut("scenario", state, "", state.instant, 0) for state in states[:states_max]]

    @contextmanager
    def with_syncs(self, wanted: Sequence[str]) -> Iterator[Run]:
        if wanted and self.failure:
            raise EngineError(self.failure)
        if wanted:
            self.asked.append(tuple(wanted))
            yield Synced(self.logs) if self.helps else self
        else:
            yield Synced(self.logs) if self.is_hidden else self


class Synced(Run):
    """The same with every sync."""

    def plan(self, span: tuple[int, int], states_max: int) -> list[Cut]:  # noqa: ARG002 - these states alone
        state = everything_unflushed_lost(self.logs.first, self.logs.epochs, self.logs.first.entry_count)
        return [Cut("scenario", state, "", state.instant, 0)]


def explained(
    folder: Path, entries: Sequence[Entry] = UNSYNCED, entry: int = 12, *, calls: Sequence[SeenCall] = (WRITE,),
    failure: str = "", reads: Reads = prefix, helps: bool = True, is_hidden: bool = False,
) -> tuple[Explanation, Run]:  # fmt: skip
    with bench(folder, entries, reads) as of:
        run = Run(of.logs, calls, failure, reads, helps=helps, is_hidden=is_hidden)
        state = everything_unflushed_lost(of.logs.first, of.logs.epochs, entry)
        return explain(run, state, run.verdict(state, None), 60), run


def test_a_proven_explanation_names_the_write_the_call_and_the_sync(tmp_path: Path) -> None:
    found, run = explained(tmp_path)
    text = paragraph(found)
    assert text.startswith("Transaction 2 was acknowledged and is gone after this cut.")
    assert "It is enough that the write of 512 bytes at 1024 of table is lost." in text
    assert "The call behind it is write(table, 512 bytes at 1024) of program, in the commit of transaction 2" in text
    assert "no sync of table follows before the commit returns" in text
    assert re.search(r"With a sync of table added, 0 of \d+ contents show this; without it, \d+ of \d+[. ]", text)
    assert found.is_proven
    assert [("table",)] == run.asked


def test_beside_a_neighbour_that_writes_back_it_names_what_was_on_the_disk_early(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, helps=False)
    early = replace(found, scenario=replace(found.scenario, tuned="writeback"), landed=found.lost)
    words = "It is enough that the write of 512 bytes at 1024 of table is on the disk early, before a sync."
    assert words in paragraph(early)
    assert words not in paragraph(replace(found, landed=found.lost))


def test_where_not_even_a_sync_of_everything_helps_it_is_about_no_sync(tmp_path: Path) -> None:
    found, run = explained(tmp_path, helps=False)
    assert "No sync mends it: with a sync of everything added, 1 of 1 contents show this" in paragraph(found)
    assert paragraph(found).endswith("Look at the file system and the device.")
    assert [("table",), ("*",)] == run.asked
    assert "with a sync of table added, 1 of 1 contents show this; without it, 1 of 1" in minimal_list(found)
    assert not found.is_proven


@pytest.mark.parametrize("calls", [(WRITE,), (replace(WRITE, path="log", number=1),)])
def test_a_loss_that_supervision_alone_hides_is_blamed_on_no_missing_sync(
    tmp_path: Path, calls: Sequence[SeenCall]
) -> None:
    found, run = explained(tmp_path, calls=calls, is_hidden=True)
    assert not found.is_proven
    assert re.search(r"0 of \d+ under the same supervision, so no sync can be shown to help", paragraph(found))
    assert 1 == len(run.asked)


def test_a_write_that_no_call_made_is_not_said_to_be_beyond_the_help_of_syncs(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, calls=(replace(WRITE, name="sync", offset_bytes=-1),), helps=False)
    assert "No call that is seen wrote it: AIO" in paragraph(found)
    assert "No sync mends it" not in paragraph(found)
    assert "This is a guess: with a sync of everything added" in paragraph(found)


def test_nothing_is_guessed_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "_GUESSES_FACTOR", -1)
    found, run = explained(tmp_path, helps=False)
    assert [("table",)] == run.asked
    assert "This is a guess: with a sync of table added" in paragraph(found)
    assert "Time ran out before other syncs were tried." in paragraph(found)
    sync = replace(WRITE, name="sync", offset_bytes=-1)
    found, run = explained(tmp_path, calls=(WRITE, sync))
    assert [] == run.asked
    assert paragraph(found).endswith("so this explanation was not checked.")


def test_a_check_that_shows_nothing_at_first_has_more_states_afterwards_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if judging were so slow that the fewest states are affordable.
    monkeypatch.setattr(explanation, "_CHECK_S", 0)
    with bench(tmp_path, UNSYNCED, prefix) as of:
        run = Run(of.logs, states_min=100)
        state = everything_unflushed_lost(of.logs.first, of.logs.epochs, 12)
        found = explain(run, state, run.verdict(state, None), 60)
    assert found.is_proven
    assert [40, 80, 160, 300] == run.planned


def test_a_workload_without_any_sync_is_said_to_have_none(tmp_path: Path) -> None:
    assert "makes no sync call at all" in paragraph(explained(tmp_path)[0])
    sync = replace(WRITE, name="sync", path="other")
    assert "no sync call" not in paragraph(explained(tmp_path, calls=(WRITE, sync))[0])


def test_an_explanation_that_could_not_be_checked_says_so(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, failure="the engine died")
    assert "This is a guess: a sync of everything could not be tried: the engine died" in paragraph(found)
    assert "a sync of table could not be tried: the engine died" in minimal_list(found)
    found, _ = explained(tmp_path, failure="the agent failed:\nTraceback\n  File ...\nOSError: no space")
    assert "could not be tried: the agent failed: OSError: no space." in paragraph(found)


def test_where_calls_are_not_known_the_writes_are_told_and_why_no_call_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "untold", "it was killed")
    text = paragraph(explained(tmp_path, calls=())[0])
    assert "It is enough that the write of 512 bytes at 1024 of table is lost." in text
    assert text.endswith("Which calls are behind it is not known, and was not checked: it was killed.")


def test_a_call_that_was_synced_points_at_what_lies_below(tmp_path: Path) -> None:
    sync = replace(WRITE, name="sync", offset_bytes=-1)
    found, run = explained(tmp_path, calls=(WRITE, sync))
    assert "A sync of table followed and did not help: look at the file system" in paragraph(found)
    # One state is too few to tell help from chance.
    assert "This is a guess: with a sync of everything added, 0 of 1 contents show this" in paragraph(found)
    assert [("*",)] == run.asked


def test_a_sync_of_another_thread_that_the_recording_does_not_have_there_is_none(tmp_path: Path) -> None:
    sync = replace(WRITE, name="sync", offset_bytes=-1, length_bytes=-1, thread=9)
    found, _ = explained(tmp_path, calls=(WRITE, sync))
    assert "no sync of table follows before the commit returns" in paragraph(found)
    assert found.is_proven
    # Its own thread would have written it before the acknowledgement.
    found, _ = explained(tmp_path, calls=(WRITE, replace(sync, thread=WRITE.thread)))
    assert "A sync of table followed" in paragraph(found)


@pytest.mark.parametrize(
    ("helps", "chance_max", "is_named"), [(True, 1.0, True), (True, 0.01, False), (False, 1.0, False)]
)
def test_a_file_that_was_not_synced_by_then_is_named_only_if_a_sync_of_it_helps_by_more_than_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helps: bool, chance_max: float, is_named: bool
) -> None:
    # Only one state is judged afterwards, so that it is not broken may well be chance.
    monkeypatch.setattr(checks, "_CHANCE_MAX", chance_max)
    other, sync = replace(WRITE, path="log", number=1), replace(WRITE, name="sync", offset_bytes=-1)
    found, run = explained(tmp_path, calls=(other, WRITE, sync), helps=helps)
    assert is_named is found.is_proven
    assert ("What is gone was written by write(log, 512 bytes at 1024)" in paragraph(found)) is is_named
    assert ("A sync of table followed and did not help" in paragraph(found)) is not is_named
    assert [("log",), *([] if is_named else [("*",)])] == run.asked


def test_a_sync_that_seems_to_help_is_the_guess_in_place_of_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only one state is judged afterwards, so that it is not broken may well be chance.
    monkeypatch.setattr(checks, "_CHANCE_OF_GUESS_MAX", 0.5)
    other, sync = replace(WRITE, path="log", number=1), replace(WRITE, name="sync", offset_bytes=-1)
    found, run = explained(tmp_path, calls=(other, WRITE, sync))
    assert [("log",), ("*",)] == run.asked
    assert not found.is_proven
    assert "What is gone was written by write(log, 512 bytes at 1024)" in paragraph(found)
    assert "This is a guess: with a sync of log added, 0 of 1 contents show this" in paragraph(found)
    assert any("with a sync of everything added, 0 of 1" in line for line in minimal_list(found))


def test_a_sync_that_mends_most_of_it_is_not_said_to_mend_nothing(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, helps=False)
    checks_made = (StoryCheck(("table",), 7, 9, 1, 11), StoryCheck(("*",), 7, 9, 1, 11))
    text = paragraph(replace(found, checks=checks_made))
    assert (
        "A sync mends a part of it: with a sync of table added, 1 of 11 contents show this; without it, 7 of 9" in text
    )
    assert "No sync mends it" not in text


def test_a_write_that_came_late_is_named_though_the_cut_had_not_seen_it(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, LATE, 10)
    assert "It is enough that the write of 512 bytes at 1024 of table is lost." in paragraph(found)
    assert found.loss.last_instant.phase in paragraph(found)


def test_damage_that_the_cut_can_neither_lose_nor_keep_is_told_by_what_begins_and_what_ends_it(tmp_path: Path) -> None:
    begins = replace(WRITE, number=1)
    found, _ = explained(tmp_path, WINDOW, 9, calls=(replace(begins, offset_bytes=512), begins), reads=torn)
    text = paragraph(found)
    assert "It is enough that the FUA write of 512 bytes at 512 of table is lost." in text
    assert "It begins as soon as the write of 512 bytes at 1024 of table is on the disk; the last call" in text
    assert "which may be behind it is write(table, 512 bytes at 1024)." in text
    assert "The call behind it is write(table, 512 bytes at 512) of program" in text
    assert "; no sync of table follows before the write that landed." in text


def halves(disk: bytes) -> Finding:
    """Damaged if one of the sectors 1 and 2 was written and the other was not."""
    is_torn = bool(disk[512]) != bool(disk[2 * 512])
    return Finding(FindingKind.TORN if is_torn else FindingKind.PREFIX, None if is_torn else 0, "", {})


@pytest.mark.parametrize(
    ("reads", "length_bytes", "is_tear"),
    [
        (halves, 1024, True),
        (torn, 1024, True),
        (halves, 512, False),
        (lambda disk: torn(bytes(512) + disk[25 * 512 : 26 * 512] + disk[2 * 512 :]), 1024, False),
    ],
)
def test_a_write_whose_parts_differ_is_torn_if_it_does_no_harm_as_a_whole(
    tmp_path: Path, reads: Reads, length_bytes: int, is_tear: bool
) -> None:
    call = replace(WRITE, offset_bytes=512, length_bytes=length_bytes, number=1)
    with bench(tmp_path, DISORDER, reads) as of:
        run = Run(of.logs, [call], reads=reads)
        (epoch,) = [each for each in of.logs.epochs if len(each.batch) == 5]
        choices = Choices.at_border(of.logs, epoch, 0)
        state = choices.state([atom for atom in choices.atoms if atom.entry == 7])
        verdict = run.verdict(state, None)
        assert verdict.kind.is_damage
        found = explain(run, state, verdict, 60)
    assert is_tear is (found.torn == call)
    text = paragraph(found)
    assert is_tear is ("Both are parts of one write, write(table, 1024 bytes at 512) of program" in text), text
    assert is_tear is (not run.asked)
    assert is_tear is found.is_proven


def test_a_write_is_not_called_torn_where_a_machine_was_lost(tmp_path: Path) -> None:
    def lost_with_all(disk: bytes) -> Finding:
        is_all = bool(disk[512]) and bool(disk[2 * 512])
        return Finding(FindingKind.HANG, None, "", {}) if is_all else halves(disk)

    call = replace(WRITE, offset_bytes=512, length_bytes=1024, number=1)
    with bench(tmp_path, DISORDER, lost_with_all) as of:
        run = Run(of.logs, [call], reads=lost_with_all)
        (epoch,) = [each for each in of.logs.epochs if len(each.batch) == 5]
        choices = Choices.at_border(of.logs, epoch, 0)
        state = choices.state([atom for atom in choices.atoms if atom.entry == 7])
        found = explain(run, state, run.verdict(state, None), 60)
    assert found.torn is None


def test_what_an_engine_says_at_length_does_not_hide_the_reason(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, WINDOW, 9, reads=torn)
    verdict = replace(found.loss.verdict, detail="a page is bad\n" * 50)
    text = paragraph(replace(found, loss=replace(found.loss, verdict=verdict)))
    beginning, _, rest = text.partition(" [...]. ")
    assert "a page is bad a page is bad" in beginning
    assert len(beginning) < 250
    assert rest


def test_damage_that_a_sync_would_end_is_told_by_its_order_and_not_by_what_lies_below(tmp_path: Path) -> None:
    write = replace(WRITE, offset_bytes=512)
    calls = (write, replace(write, name="sync"))
    found, _ = explained(tmp_path, WINDOW, 9, calls=calls, reads=torn, helps=False)
    assert "A sync of table follows it, and the cut comes before that. No sync mends it" in paragraph(found)
    assert paragraph(found).endswith("Look at what is written, and in which order.")


def test_the_drawing_tells_the_culprit_from_other_writes_and_shows_the_cut(tmp_path: Path) -> None:
    found, _ = explained(tmp_path)
    text = found.drawing.text
    assert "x a write, 512 bytes: table" in text
    assert "transaction 2 is ACKNOWLEDGED" in text
    assert "POWER CUT" in text
    assert "x enough to be lost" in text.splitlines()[-1]
    times = [row.since_ns for row in found.drawing.rows]
    assert times == sorted(times)


def test_the_picture_is_well_formed_and_has_a_lane_for_each_file(tmp_path: Path) -> None:
    found, _ = explained(tmp_path)
    root = ET.fromstring(svg(found.drawing))  # noqa: S314 - our own text
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"table", "file system", "cut", "flush"} <= set(texts)


def test_the_page_for_an_issue_tracker_has_versions_the_promise_and_one_command(tmp_path: Path) -> None:
    found, _ = explained(tmp_path)
    promise = Promise(Keeps.NOTHING_LOST, True, "", "manual, section 7", "")
    text = markdown(found, promise, "rig replay A B")
    assert "- what is promised: loses nothing, atomic (manual, section 7)" in text
    assert "```sh\nrig replay A B\n```" in text
    assert "| " not in text
    assert "not known" in markdown(found, None, "rig replay A B")


def test_the_lines_for_a_terminal_end_with_the_drawing(tmp_path: Path) -> None:
    found, _ = explained(tmp_path)
    assert paragraph(found) == lines(found)[0]
    assert found.drawing.text.splitlines() == lines(found)[-len(found.drawing.text.splitlines()) :]
    assert any("smallest state: e" in line for line in lines(found))


@pytest.mark.parametrize("what", ["lost", "landed"])
def test_sets_are_named_write_by_write(tmp_path: Path, what: str) -> None:
    found, _ = explained(tmp_path)
    sets = getattr(found, what)
    assert sets
    assert all(write.length_bytes == 512 for writes in sets for write in writes)


def test_a_page_has_the_picture_and_nothing_of_it_is_markup_by_chance(tmp_path: Path) -> None:
    found, _ = explained(tmp_path, calls=(replace(WRITE, program="<b>"),))
    text = page(Narrative.of(found, None), "rig replay A B")
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="picture"' in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "<pre>rig replay A B</pre>" in text


def test_a_story_is_the_same_after_it_was_kept_as_json(tmp_path: Path) -> None:
    telling = Telling("e3.f0", Narrative.of(explained(tmp_path)[0], None))
    assert telling == decode(Telling, json.loads(json.dumps(asdict(telling))))
