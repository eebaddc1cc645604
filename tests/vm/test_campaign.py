"""Campaigns on real machines: nothing is measured twice or lost, and a failure costs only its own scenarios."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from rig.campaign import campaign
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.machines.guests import Machines
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.store import Run
from tests.vm.conftest import MadeOnce
from tests.vm.samples import SHORT

ROOT = Path(__file__).resolve().parents[2]
TINY = Profile(
    "tiny", SHORT.transaction_count, 60, 20, exposure_min=5, repeats="first", side_states_max=80
)  # fmt: skip
# The first two are cut from one recording.
IDS = ("sqlite-ext4-wal_off_powercut", "sqlite-ext4-wal_off_torn", "sqlite-ext4-delete_full_powercut")
SCENARIOS = [replace(scenario, workload=SHORT) for scenario in matrix.select(IDS)]
UNJUDGED = {VerdictKind.KERNEL_PANIC, VerdictKind.HANG, VerdictKind.INCONCLUSIVE}
DEFINITION = {"scenarios": list(IDS)}


@dataclass
class Heard:
    """The lines that a campaign printed."""

    said: list[str] = field(default_factory=list)
    planned_count: int = 0
    judged_count: int = 0

    def says(self, text: str) -> None:
        self.said.append(text)

    def expect(self, cut_count: int) -> None:
        self.planned_count += cut_count

    def advance(self, cut_count: int) -> None:
        self.judged_count += cut_count


@pytest.fixture(scope="session")
def machines(recorder: Template, verifier: Template, user_mode: UserMode) -> Machines:
    return Machines(recorder, verifier, user_mode)


def measure(folder: Path, machines: Machines, scenarios: list[Scenario] = SCENARIOS) -> tuple[Run, Heard]:
    run, heard = Run.create(folder, DEFINITION), Heard()
    campaign.Campaign(run, TINY, machines, heard).measure(scenarios)
    return run, heard


def rows(run: Run) -> dict[str, Counter[str]]:
    """Count the verdicts of each scenario, in any order, however the database was opened for them."""
    found = {}
    for scenario in IDS:
        verdicts, damaged = run.verdicts(scenario)
        assert [] == damaged
        found[scenario] = Counter(json.dumps(asdict(replace(verdict, opened=True))) for verdict in verdicts)
    return found


@pytest.fixture(scope="session")
def whole(machines: Machines, made_once: MadeOnce) -> Run:
    """Return a run that was not interrupted."""

    def fill(folder: Path) -> None:
        run, heard = measure(folder / "run", machines)
        assert {} == run.failures()
        assert [] == [line for line in heard.said if not line.startswith("recording ")]
        assert heard.planned_count == heard.judged_count > 0

    return Run.open(made_once("whole", fill) / "run")


def copy_of(run: Run, folder: Path) -> Run:
    """Return a run with the same recordings and no verdicts; the recordings take most of the time."""
    copy = Run.create(folder, DEFINITION)
    shutil.copytree(run.folder / "recordings", folder / "recordings", ignore=shutil.ignore_patterns("lock"))
    return copy


@pytest.mark.representative
def test_every_planned_cut_has_one_verdict(whole: Run) -> None:
    results, damaged = whole.results()
    assert [] == damaged
    assert sorted(IDS) == [result.scenario.id for result in results]
    for result in results:
        assert result.plan.state_count == len(result.verdicts) > TINY.states_max // 2
        assert SHORT.transaction_count == result.recording.transaction_count
        # A torn superblock is legal damage of the file system.
        assert UNJUDGED.isdisjoint(verdict.kind for verdict in result.verdicts)
    assert results[1].recording == results[2].recording


def test_measuring_again_measures_nothing_and_changes_nothing(whole: Run, machines: Machines) -> None:
    before = {path: path.read_bytes() for path in sorted(whole.folder.rglob("*")) if path.is_file()}
    _, heard = measure(whole.folder, machines)
    assert (0, 0, []) == (heard.planned_count, heard.judged_count, heard.said)
    assert before == {path: path.read_bytes() for path in sorted(whole.folder.rglob("*")) if path.is_file()}


def test_a_campaign_may_stop_at_the_first_failure_and_keeps_what_it_judged(
    whole: Run, machines: Machines, tmp_path: Path
) -> None:
    def fails(scenario: Scenario, verdict: Verdict) -> bool:
        return scenario.id == IDS[0] and verdict.lost > 0

    run, heard = copy_of(whole, tmp_path / "run"), Heard()
    campaign.Campaign(run, TINY, machines, heard, fails=fails).measure(SCENARIOS)
    (said,) = heard.said
    assert said.startswith(f"stopped at the first failure: {IDS[0]} ")
    verdicts, _ = run.verdicts(IDS[0])
    assert any(verdict.lost for verdict in verdicts)
    assert sum(len(run.verdicts(name)[0]) for name in IDS) < sum(len(whole.verdicts(name)[0]) for name in IDS)


_CHILD = """
import os, sys
from pathlib import Path
from tests.vm import test_campaign as t
from rig.campaign import campaign
from rig.machines.guests import guests
from rig.store import Run

class Told(t.Heard):
    def advance(self, cut_count):
        super().advance(cut_count)
        os.write(1, b"%d\\n" % self.judged_count)

with guests() as source:
    run = Run.create(Path(sys.argv[1]), t.DEFINITION)
    campaign.Campaign(run, t.TINY, source, Told()).measure(t.SCENARIOS)
"""


def killed_in_the_middle(folder: Path, judged_count: int) -> None:
    """Measure in a separate process that dies when `judged_count` cuts have been judged."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _CHILD, str(folder)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE) as child:
        assert child.stdout
        for line in child.stdout:
            if int(line) >= judged_count:
                child.send_signal(signal.SIGKILL)
                break
    assert -signal.SIGKILL == child.returncode


@pytest.mark.representative
def test_a_killed_run_goes_on_and_ends_as_one_that_nothing_disturbed(
    whole: Run, machines: Machines, tmp_path: Path
) -> None:
    run = copy_of(whole, tmp_path / "run")
    total = sum(sum(found.values()) for found in rows(whole).values())
    # Once during the first scenarios, once later.
    for share in (4, 2):
        killed_in_the_middle(run.folder, total // share // 2)
    kept = rows(run)
    kept_count = sum(sum(found.values()) for found in kept.values())
    assert 0 < kept_count < total
    assert all(kept[scenario] <= rows(whole)[scenario] for scenario in IDS)
    # Tear the last line too, as a power cut would.
    path = next(path for path in sorted(run.folder.glob("scenarios/*/verdicts.jsonl")) if path.stat().st_size)
    os.truncate(path, path.stat().st_size - 7)
    _, heard = measure(run.folder, machines)
    assert (total - kept_count + 1) == heard.judged_count
    assert [] == heard.said
    assert rows(whole) == rows(run)
    results, damaged = run.results()
    assert [] == damaged
    assert whole.results()[0] == [replace(r, verdicts=in_order_of(r.verdicts, whole, r.scenario.id)) for r in results]


def in_order_of(verdicts: tuple[Verdict, ...], like: Run, scenario: str) -> tuple[Verdict, ...]:
    wanted = like.verdicts(scenario)[0]
    # Which of the states with known files were opened depends on how the work was divided.
    mine, theirs = ([repr(replace(one, opened=True)) for one in found] for found in (verdicts, wanted))
    assert sorted(theirs) == sorted(mine)
    return tuple(wanted)


def test_a_damaged_verdict_is_judged_again(whole: Run, machines: Machines, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path / "run")
    for scenario in IDS[:2]:
        folder = run.folder / "scenarios" / scenario
        folder.mkdir(parents=True)
        lines = (whole.folder / "scenarios" / scenario / "verdicts.jsonl").read_bytes().splitlines(keepends=True)
        # Some of these are cut instants that differ from others only in the time that was lost.
        for number in range(5, len(lines), 7):
            lines[number] = b"\x00" * (len(lines[number]) - 1) + b"\n"
        (folder / "verdicts.jsonl").write_bytes(b"".join(lines))
    run, heard = measure(run.folder, machines, [scenario for scenario in SCENARIOS if scenario.id in IDS[:2]])
    damaged_count = sum(len(range(5, sum(rows(whole)[scenario].values()), 7)) for scenario in IDS[:2])
    assert damaged_count == heard.judged_count
    assert damaged_count == sum("is damaged" in text and text.endswith("it is judged again") for text in heard.said)
    assert {scenario: rows(whole)[scenario] for scenario in IDS[:2]} == {
        scenario: rows(run)[scenario] for scenario in IDS[:2]
    }


@pytest.mark.parametrize("sabotage", ["cut short", "garbage", "facts", "gone"])
@pytest.mark.representative
def test_a_void_recording_costs_its_own_scenarios_only_and_is_named(
    sabotage: str, whole: Run, machines: Machines, tmp_path: Path
) -> None:
    run = copy_of(whole, tmp_path / "run")
    folder = run.recording_folder(next(scenario for scenario in SCENARIOS if scenario.id == IDS[0]))
    archive, facts = folder / "log-a.zst", folder / "facts.json"
    if sabotage == "cut short":
        os.truncate(archive, archive.stat().st_size // 2)
    elif sabotage == "garbage":
        archive.write_bytes(b"garbage")
    elif sabotage == "facts":
        facts.write_text("{")
    else:
        archive.unlink()
    run, heard = measure(run.folder, machines)
    named = facts if sabotage == "facts" else folder if sabotage == "gone" else archive
    assert sorted(IDS[:2]) == sorted(run.failures())
    assert all(str(named) in text and "record again" in text for text in run.failures().values())
    assert 2 == sum("could not be measured" in text for text in heard.said)
    assert rows(whole)[IDS[2]] == rows(run)[IDS[2]]
    assert [] == rows_of_nothing(run)
    left = [path.name for path in folder.iterdir()]
    assert set(left) <= {"log-a.zst", "trace-a.zst", "facts.json", "lock"}


def rows_of_nothing(run: Run) -> list[str]:
    return [scenario for scenario in IDS[:2] if run.verdicts(scenario)[0]]


def test_a_campaign_that_is_stopped_by_an_error_leaves_no_machine(
    whole: Run, machines: Machines, tmp_path: Path
) -> None:
    """A bug is not the failure of a scenario: it stops everything at once."""

    class Broken(Heard):
        def advance(self, cut_count: int) -> None:
            raise ZeroDivisionError(cut_count)

    run = copy_of(whole, tmp_path / "run")
    begin_s = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        campaign.Campaign(run, TINY, machines, Broken()).measure(SCENARIOS)
    assert time.monotonic() - begin_s < 15
    assert [] == qemu_children()
    # Machines may start again afterwards.
    _, heard = measure(run.folder, machines, SCENARIOS[:1])
    assert heard.judged_count > 0


def qemu_children() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"qemu" in Path(f"/proc/{pid}/cmdline").read_bytes()]
