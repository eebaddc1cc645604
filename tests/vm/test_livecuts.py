"""Cuts that really happen in the recorder's guest: what remains is what the rig predicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.judging.controls import check_controls, is_cross_check
from rig.analysis.judging.metrics import outcome
from rig.analysis.judging.outcome import summarise
from rig.campaign import record
from rig.campaign.campaign import Campaign
from rig.campaign.verdicts import live_verdicts
from rig.contract.errors import LegalityError
from rig.contract.injections import Injection
from rig.contract.scenario import Scenario
from rig.faults import EntryFlag, LogError, WriteLog
from rig.filesystems.ext import DISK_MIB
from rig.guest.livecuts import round_count
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.recordings import livecuts
from rig.recordings.livecuts import RecordedRound, prove, rounds
from rig.store import Run
from tests.vm.samples import SHORT
from tests.vm.test_campaign import Heard

TRANSACTIONS = 12
ROUNDS = round_count(TRANSACTIONS, Injection.LIVECUT_CACHE)


@dataclass(frozen=True)
class Cut:
    """A recording of live cuts as the guest sent it."""

    scenario: Scenario
    told: dict[str, Any]
    parts: list[bytes]

    @property
    def kind(self) -> Injection:
        return Injection(self.scenario.fault)

    @property
    def rounds(self) -> list[RecordedRound]:
        return list(rounds(self.told, self.parts, DISK_MIB))


def scenario_of(settings: str, kind: Injection) -> Scenario:
    (scenario,) = matrix.select([f"sqlite-ext4-{settings}_{kind}"])
    return replace(scenario, workload=replace(SHORT, transaction_count=TRANSACTIONS))


@pytest.fixture(scope="module")
def recorded_cuts(recorder: Template) -> Callable[[str, Injection], Cut]:
    made: dict[tuple[str, Injection], Cut] = {}

    def make(settings: str, kind: Injection) -> Cut:
        if (settings, kind) not in made:
            scenario = scenario_of(settings, kind)
            made[settings, kind] = Cut(scenario, *record.run(scenario, recorder))
        return made[settings, kind]

    return make


@pytest.mark.parametrize("kind", [Injection.LIVECUT_CACHE, Injection.LIVECUT_DROP])
@pytest.mark.parametrize("settings", ["wal_full", "delete_off"])
def test_what_a_live_cut_leaves_is_legal_to_the_checker_and_to_a_generator(
    settings: str, kind: Injection, recorded_cuts: Callable[[str, Injection], Cut]
) -> None:
    cut = recorded_cuts(settings, kind)
    found = [prove(kind, one) for one in cut.rounds]
    assert ROUNDS == len(found)
    assert any(one.state for one in found)
    if kind is Injection.LIVECUT_DROP:
        # Everything that had completed is there, so the state is known to the byte.
        assert all(one.state for one in found)
        # Settings that sync nothing have no write in flight so soon after the setup.
        assert settings == "delete_off" or any(one.unflushed_count for one in found)
    verdicts = live_verdicts("", [one.finding for one in found])
    if settings == "wal_full":
        assert {"durable"} == {verdict.kind for verdict in verdicts}
    else:
        assert any(verdict.lost for verdict in verdicts)
    assert any(one.finding["acked"] for one in found)


def test_what_was_acknowledged_into_the_void_is_gone(recorded_cuts: Callable[[str, Injection], Cut]) -> None:
    found = [
        prove(Injection.LIVECUT_DROP, one).finding for one in recorded_cuts("wal_full", Injection.LIVECUT_DROP).rounds
    ]
    assert sum(one["acked_after"] for one in found) >= ROUNDS
    for one in found:
        assert one["recovered"] is not None
        assert one["acked"] <= one["recovered"] <= one["issued"] < one["acked"] + one["acked_after"] + 1


def places(one: RecordedRound, path: Path) -> Iterator[tuple[str, int]]:
    """Yield two places to tamper with: one last written by a flushed write, and one never written."""
    path.write_bytes(one.log)
    with WriteLog.open(path) as log:
        flushes = [i for i in range(log.entry_count) if log.flags[i] & EntryFlag.FLUSH]
        cut = next(mark.entry_index for mark in log.marks if mark.text.startswith("inject"))
        last_flush = max(i for i in flushes if i < cut)
        begins, ends = log.offset_bytes, log.offset_bytes + log.payload_bytes
        for entry in range(last_flush - 1, 0, -1):
            later = (begins[entry + 1 :] < ends[entry]) & (ends[entry + 1 :] > begins[entry])
            if log.payload_bytes[entry] and not later.any():
                yield "flushed", int(begins[entry])
                break
        writes = log.payload_bytes > 0
        yield (
            "never written",
            next(
                offset
                for offset in range(0, DISK_MIB << 20, 4096)
                if not (writes & (begins < offset + 4096) & (ends > offset)).any()
            ),
        )


@pytest.mark.parametrize("kind", [Injection.LIVECUT_CACHE, Injection.LIVECUT_DROP])
@pytest.mark.parametrize("settings", ["wal_full", "delete_off"])
def test_one_sector_of_the_rest_tampered_with_is_named(
    settings: str, kind: Injection, recorded_cuts: Callable[[str, Injection], Cut], tmp_path: Path
) -> None:
    one = recorded_cuts(settings, kind).rounds[0]
    found = list(places(one, tmp_path / "log"))
    assert ["flushed", "never written"] == [what for what, _ in found]
    for _, offset in found:
        device = one.device.copy()
        device[offset + 17] ^= 1
        with pytest.raises(LegalityError, match=f"illegal: sector {offset // 512} "):
            prove(kind, replace(one, device=device))


def test_a_disk_that_kept_what_the_log_does_not_know_of_voids_the_recording(
    recorded_cuts: Callable[[str, Injection], Cut],
) -> None:
    """The disk counts one flush or write more than the log, or one completed write less."""
    cut = recorded_cuts("wal_full", Injection.LIVECUT_DROP)
    for device, name in (("disk", "flushes"), ("layer", "writes")):
        told = json.loads(json.dumps(cut.told))
        told["rounds"][0]["counts"][device][name] += 100
        with pytest.raises(LegalityError, match=rf"the rig is wrong and {cut.scenario.id} is void"):
            livecuts.proven(cut.scenario, told, cut.parts)
    with_unflushed = next(one for one in cut.rounds if prove(Injection.LIVECUT_DROP, one).unflushed_count)
    told = {**with_unflushed.facts, "counts": json.loads(json.dumps(with_unflushed.facts["counts"]))}
    told["counts"]["layer"]["writes"] -= 1
    with pytest.raises(LegalityError):
        prove(Injection.LIVECUT_DROP, replace(with_unflushed, facts=told))


def test_a_log_without_its_last_bytes_is_an_error_and_no_verdict(
    recorded_cuts: Callable[[str, Injection], Cut],
) -> None:
    one = recorded_cuts("wal_full", Injection.LIVECUT_DROP).rounds[0]
    with pytest.raises(LogError):
        prove(Injection.LIVECUT_DROP, replace(one, log=one.log[:-512]))


def test_a_campaign_judges_live_cuts_and_their_controls(
    recorder: Template, verifier: Template, user_mode: UserMode, tmp_path: Path
) -> None:
    scenarios = [scenario_of("delete_off", Injection.LIVECUT_CACHE)]
    run, heard = Run.create(tmp_path / "run", {"scenarios": [scenario.id for scenario in scenarios]}), Heard()
    profile = Profile("tiny", TRANSACTIONS, 60, 20, exposure_min=100, repeats="none")
    Campaign(run, profile, Machines(recorder, verifier, user_mode), heard).measure(scenarios)
    assert [] == heard.said
    results, damaged = run.results()
    assert [] == damaged
    (result,) = results
    assert ROUNDS == result.plan.state_count == len(result.verdicts)
    assert is_cross_check(result.scenario)
    (control,) = [one for one in check_controls([outcome(result)]) if one.name == "delete_off"]
    assert control.fired
    (row,) = summarise(results, 100).rows
    assert not any("exposure" in reason for reason in row.judgement.reasons)
