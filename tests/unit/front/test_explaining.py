"""The explanation at the end of a run: what goes wrong is a line in the run directory, and costs the run nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rig.analysis.explain.drawing import Drawing
from rig.analysis.explain.story import Narrative, Telling
from rig.analysis.judging.outcome import summarise
from rig.analysis.show.broken import breaks
from rig.campaign.evidence import require_single_cut
from rig.contract.errors import UsageError, VmError
from rig.contract.results import LiveFinding, VerdictKind
from rig.contract.scenario import Scenario
from rig.front import explaining
from rig.machines import machine
from rig.machines.guests import Machines
from rig.store import Run
from tests.unit.samples import durable, measured_scenario, sqlite, verdict
from tests.unit.storedruns import store

FULL = "sqlite-ext4-wal_full_powercut"
STORY = Narrative("headline", "Because.", ("enough",), ("facts",), Drawing("the begin", ()))


class Broken:
    """A host on which no machine can be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def of(self, scenario: Scenario) -> Machines:  # noqa: ARG002 - no scenario gets one
        raise self.error


def run_of(folder: Path, states: Sequence[str] = ("e9.f0",), fault: str = "powercut") -> Run:
    lost = [verdict(VerdictKind.LOST_SUFFIX, 1, state, entry=9) for state in states]
    store(folder, [measured_scenario(sqlite("wal", "full"), [*durable(9), *lost], fault)])
    return Run.open(folder)


def explain(run: Run, error: Exception) -> Telling:
    found = breaks(summarise(run.results()[0], 5))
    explaining.explain_break(run, found, Broken(error))
    (telling,) = explaining.tellings(run).values()
    return telling


def test_a_lost_machine_is_told_in_a_line(tmp_path: Path) -> None:
    assert Telling("e9.f0", None, "the machine was lost") == explain(run_of(tmp_path), VmError("the machine was lost"))


def test_a_bug_of_the_rig_costs_the_run_no_more_than_its_explanation(tmp_path: Path) -> None:
    assert "the rig has a bug: KeyError('oops')" == explain(run_of(tmp_path), KeyError("oops")).failure


@pytest.mark.parametrize(
    ("state", "fault", "says"),
    [
        ("e9.f0~e3", "powercut", "is a state of a recovery"),
        ("e9.f0", "bitflip", "no free choice of writes"),
    ],
)
def test_a_state_of_another_kind_is_refused_before_a_machine_starts(
    tmp_path: Path, state: str, fault: str, says: str
) -> None:
    run = run_of(tmp_path, [state], fault)
    (scenario,) = {measured.scenario.id for measured in run.results()[0]}
    (lost,) = [each for each in run.verdicts(scenario)[0] if each.state == state]
    assert says in explaining._refusal(run, scenario, lost)


def test_a_state_of_a_mirror_or_of_a_running_machine_is_refused_in_a_sentence() -> None:
    measured = measured_scenario(sqlite("wal", "full"), [])
    apart = replace(measured.recording, second_disk_mib=8)
    mirrored = replace(measured.scenario, filesystem="ext4.raid1")
    with pytest.raises(UsageError, match="a state of a mirror, and this command knows one copy of a file"):
        require_single_cut(mirrored, apart, "a:e4.f0+b:e1.f0")
    assert "a:e4.f0+b:e1.f0" == require_single_cut(measured.scenario, apart, "a:e4.f0+b:e1.f0").content
    live = LiveFinding(state="kill-3", acked=3, issued=4, kind="prefix", recovered=2, detail="")
    with pytest.raises(UsageError, match="was found while the machine ran"):
        require_single_cut(measured.scenario, replace(measured.recording, live=[live]), "kill-3")
    assert "e4.f0" == require_single_cut(measured.scenario, measured.recording, "e4.f0").content


def test_a_story_is_made_once_and_not_lost_to_another_state(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    told = Telling("e9.f0", STORY)
    explaining.keep(run, FULL, told)
    explaining.keep(run, FULL, Telling("e4.f0", STORY))
    assert told == explain(run, VmError("nobody asks for a machine"))


def test_a_damaged_story_is_as_good_as_none(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    explaining.keep(run, FULL, Telling("e9.f0", STORY))
    path = tmp_path / "scenarios" / FULL / "explanation.json"
    for text in (path.read_text()[:-20], '{"state": 7}', "[]"):
        path.write_text(text)
        assert {} == explaining.tellings(run)


def test_an_explanation_that_takes_too_long_is_given_up_and_machines_may_start_again() -> None:
    def outstay() -> None:
        with explaining._time_limit(0.01, "rig explain S e1"):
            while not machine._gate._is_closed:
                threading.Event().wait(0.001)
            raise VmError("the machine was killed")

    with pytest.raises(TimeoutError, match=r"longer than 0\.01 s; this has no such limit: rig explain S e1"):
        outstay()
    assert not machine._gate._is_closed
