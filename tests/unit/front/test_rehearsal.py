"""A program that no cut could open is carried out without a cut, which may be no better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from rig.campaign.rehearsal import FileCalls, ProgramStep
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.engines.builds import Library
from rig.front import rehearsal
from rig.front.rehearsal import report, void_if_it_never_opens
from rig.planning import matrix
from rig.store import Run
from tests.unit.samples import verdict

SCENARIO = matrix.select(["sqlite-ext4-wal_full_powercut"])[0]
BROKEN = verdict(VerdictKind.UNOPENABLE, acked=5)
LOST = verdict(VerdictKind.LOST_SUFFIX, acked=5, lost=1)


@dataclass
class Stored:
    """The verdicts of a run, and what was voided."""

    stored: Sequence[Verdict]
    voided: dict[str, str] = field(default_factory=dict)

    def verdicts(self, _: str) -> tuple[Sequence[Verdict], list[str]]:
        return self.stored, []

    def void(self, scenario: Scenario, message: str) -> None:
        self.voided[scenario.id] = message


@pytest.mark.parametrize(
    ("verdicts", "wrong", "is_void"),
    [
        ([BROKEN], "it ended with exit code 1; it said: no module", True),
        # It works without a cut, so the cut is to blame.
        ([BROKEN], "", False),
        ([BROKEN, LOST], "it ended with exit code 1", False),
        ([], "it ended with exit code 1", False),
    ],
)
def test_a_program_whose_recovery_fails_without_a_cut_is_not_said_to_be_broken_by_one(
    monkeypatch: pytest.MonkeyPatch, verdicts: list[Verdict], wrong: str, is_void: bool
) -> None:
    steps = [ProgramStep("run", 0.1, "ack 1", "", "", {}), ProgramStep("recover", 0.1, "", "", wrong, {})]
    monkeypatch.setattr(rehearsal, "_steps", lambda *_: steps)
    run = Stored(verdicts)
    void_if_it_never_opens(cast("Run", run), [SCENARIO], cast("Library", None))
    assert is_void is (SCENARIO.id in run.voided)
    if is_void:
        assert run.voided[SCENARIO.id].startswith(
            "the program fails without any cut, `recover` ended with exit code 1; it said: no module"
        )


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({}, "io_uring and AIO are not seen"),
        ({".": FileCalls(made=0, changed=0, synced=1)}, "io_uring and AIO are not seen"),
        ({"log": FileCalls(made=1, changed=1, synced=0)}, "never syncs a file"),
        ({"log": FileCalls(made=0, changed=1, synced=1)}, ""),
    ],
)
def test_what_no_call_that_is_seen_has_written_is_not_called_unsynced(files: dict[str, FileCalls], note: str) -> None:
    lines = report([ProgramStep("run", 0.1, "ack 1", "", "", files), ProgramStep("recover", 0.1, "have 1", "", "", {})])
    notes = [line for line in lines if line.startswith("note:")]
    assert note in " ".join(notes)
    assert bool(note) is bool(notes)
