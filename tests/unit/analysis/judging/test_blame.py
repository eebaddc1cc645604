"""A lost promise names what the file system lost of its own, on the same ground and after a sync, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.analysis.judging.outcome import Result, Row, Summary, summarise
from rig.analysis.show.report import report_html
from rig.analysis.show.table import table_text
from rig.contract.results import MeasuredScenario, Verdict, VerdictKind
from tests.unit.samples import changed, durable, measured_scenario, sqlite, verdict

LOST = [verdict(VerdictKind.LOST_SUFFIX, 3, "lost"), *durable(4)]
TOO = "its file system lost synced data without a database, too, so this may be its loss: "
NOTHING = "its file system lost nothing synced without a database: "


def database(word: str = "xfs", fault: str = "torn", shim: str = "none") -> MeasuredScenario:
    return changed(measured_scenario(sqlite("wal", "full"), LOST, fault, shim), filesystem=word)


def files(pattern: str, *verdicts: Verdict, word: str = "xfs", fault: str = "torn") -> MeasuredScenario:
    found = measured_scenario({"pattern": pattern}, verdicts, fault)
    return changed(found, engine="files", filesystem=word)


def row_of(summary: Summary, name: str = "wal_full") -> Row:
    (row,) = (row for row in summary.rows if row.outcome.settings_name == name)
    return row


# Without them no witness that lost nothing has an answer.
CONTROLS = tuple(files(pattern, *LOST) for pattern in ("append-none", "create-none"))


def blame_text(*scenarios: MeasuredScenario) -> str:
    row = row_of(summarise([database(), *scenarios], 1))
    assert row.judgement.result is Result.BROKEN, "a witness excuses nothing"
    return row.blame


def test_without_a_witness_nothing_is_said() -> None:
    assert blame_text() == ""


def test_a_witness_that_lost_synced_data_is_named_with_its_states() -> None:
    harmed = verdict(VerdictKind.TORN, state="torn")
    found = blame_text(
        files("append-fsync", *LOST), files("create-synced", *LOST, harmed), files("link-synced", *durable(9))
    )

    assert f"{TOO}files-xfs-create-synced_torn in 2 of 6 states, files-xfs-append-fsync_torn in 1 of 5 states" == found


def test_witnesses_that_lost_nothing_are_counted_with_their_exposure() -> None:
    same = [verdict(state="one", content="same"), verdict(state="other", content="same")]
    quiet = (files("append-fsync", *durable(4)), files("create-synced", *same))

    assert f"{NOTHING}2 scenarios, 6 states, 5 file contents" == blame_text(*quiet, *CONTROLS)
    # What is inconclusive itself says nothing.
    assert blame_text(*quiet) == ""


@pytest.mark.parametrize(
    "other",
    [
        files("append-fsync", *LOST, word="ext4"),
        files("append-fsync", *LOST, fault="powercut"),
        changed(files("append-fsync", *LOST), device="hdd7200"),
        changed(files("append-fsync", *LOST), shim="eatmydata"),
        # Nothing was synced, so nothing was promised; and without a state nothing was seen.
        files("append-none", *LOST),
        files("append-fsync", verdict(VerdictKind.FILESYSTEM_DAMAGE)),
        # Another database is no witness.
        changed(database(), settings=sqlite("wal", "extra")),
    ],
)
def test_what_is_elsewhere_unsynced_or_no_witness_says_nothing(other: MeasuredScenario) -> None:
    assert blame_text(other) == ""


def test_before_the_first_acknowledgement_no_sync_has_returned() -> None:
    early = verdict(VerdictKind.TORN, state="early", acked=0)

    quiet = files("append-fsync", early, *durable(4))

    assert f"{NOTHING}1 scenario, 5 states, 5 file contents" == blame_text(quiet, *CONTROLS)


def test_many_losing_witnesses_are_cut_short() -> None:
    patterns = ("append-fsync", "create-synced", "link-synced", "unlink-synced", "truncate-fsync")
    found = blame_text(*(files(pattern, *LOST) for pattern in patterns))

    assert found.endswith("link-synced_torn in 1 of 5 states, and 2 more")


def test_where_only_the_file_system_excuses_a_loss_its_witnesses_speak_too() -> None:
    summary = summarise([database("ext4.nobarrier"), files("append-fsync", *LOST, word="ext4.nobarrier")], 60)

    assert f"{TOO}files-ext4.nobarrier-append-fsync_torn in 1 of 5 states" == row_of(summary).blame


def test_what_kept_its_promise_what_a_shim_broke_and_the_witness_itself_are_not_blamed_on_anything() -> None:
    witness = files("append-fsync", *LOST)
    kept = replace(database(), verdicts=tuple(durable(70)))
    sabotaged = database(shim="eatmydata")

    assert {""} == {row.blame for row in summarise([witness, kept, sabotaged], 60).rows}


def test_table_and_report_say_it() -> None:
    summary = summarise([database(), files("append-fsync", *LOST)], 60)
    sentence = f"{TOO}files-xfs-append-fsync_torn in 1 of 5 states"

    assert f"  {sentence}" in table_text(summary, 160).splitlines()
    # In the line of the scenario, and next to its states.
    assert report_html(summary, {}).count(sentence) == 2
