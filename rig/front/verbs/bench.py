"""Measure the rig against the budgets of its design: absolute times of this machine, and ratios within one run.

Times of a clone and of the steps of a state are medians. Each clone is measured right after a cold boot. Prints
Markdown.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rig.campaign import campaign, record
from rig.campaign.verification import Job, verify
from rig.contract.errors import RigError
from rig.contract.faultspecs import FAULTS, SPECS
from rig.contract.findings import Finding
from rig.contract.scenario import Scenario, WorkloadSpec
from rig.engines import engines
from rig.filesystems import default_filesystems
from rig.images import recipes
from rig.images.image import build
from rig.machines.argv import Role
from rig.machines.guests import Machines, guests
from rig.machines.pool import Clones
from rig.machines.template import Template, answers
from rig.planning import matrix
from rig.planning.cuts import by_content, cuts
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline
from rig.store import Run

_LENGTHS = (40, 160, 640)
_BOOT_LIMIT_S = 120
_AGAIN = 10


def measure(say: Callable[[str], None], *, quick: bool) -> None:
    """Measure everything and pass each line of a Markdown table to `say` as soon as it is known."""
    repeats = 3 if quick else 7
    say("| what | measured | budget |")
    say("|---|---|---|")
    with guests() as source, tempfile.TemporaryDirectory(prefix="rig-bench-") as scratch:
        machines = source.of(_subject("powercut"))
        _clone_start(say, machines, repeats)
        _recording(say, machines.recorder, Path(scratch))
        _reproducibility(say, machines.recorder, Path(scratch))
        states_max = 160 if quick else 440
        _state_cost(say, machines, Path(scratch), states_max)
        _lengths(say, machines, Path(scratch), _LENGTHS[:2] if quick else _LENGTHS)
        say("")
        say(f"| fault, {_subject('powercut').settings_name} | states judged | states/s, all machines | recording |")
        say("|---|---|---|---|")
        for fault in FAULTS:
            _fault(say, machines, Path(scratch) / fault, fault)


def _clone_start(say: Callable[[str], None], machines: Machines, repeats: int) -> None:
    boots, clones, memory = [], [], []
    accelerator = machines.verifier.spec.accelerator
    guest = build(recipes.recipe())
    for _ in range(repeats):
        boots.append(_seconds(lambda: answers(Role.VERIFIER, guest, accelerator, _BOOT_LIMIT_S)))
        begin = time.perf_counter()
        with machines.verifier.clone() as machine:
            machine.send({"ping": True})
            machine.receive(_BOOT_LIMIT_S)
            clones.append(time.perf_counter() - begin)
            memory.append(_private_mib(machine.pid))
    boot, clone = statistics.median(boots), statistics.median(clones)
    say(f"| cold boot to a ready agent ({accelerator}) | {boot:.2f} s | |")
    times = boot / clone
    say(f"| clone ready to answer | {clone:.3f} s, {times:.0f} x faster than its cold boot | <= 0.35 s |")
    say(f"| memory of a clone that has answered | {statistics.median(memory):.0f} MiB of its own | |")


def _recording(say: Callable[[str], None], recorder: Template, scratch: Path) -> None:
    scenario = _scenario(200)
    seconds = _seconds(lambda: record.record(scenario, recorder, scratch / "long"))
    say(f"| record a 200-transaction scenario | {seconds:.1f} s | <= 5 s |")


def _reproducibility(say: Callable[[str], None], recorder: Template, scratch: Path) -> None:
    def digest(number: int) -> str:
        return record.record(_scenario(6), recorder, scratch / f"again-{number}").facts.digest

    with ThreadPoolExecutor(2) as pool:
        digests = Counter(pool.map(digest, range(_AGAIN)))
    equal = max(digests.values())
    say(f"| recordings of one scenario that are equal bit for bit, two at a time | {equal} of {_AGAIN} | all |")


def _state_cost(say: Callable[[str], None], machines: Machines, scratch: Path, states_max: int) -> None:
    scenario = _scenario(40)
    recorded = record.record(scenario, machines.recorder, scratch / "short")
    alone, findings = check(scenario, machines.checker, recorded, states_max, 1)
    both, _ = check(scenario, machines.checker, recorded, states_max, 2)
    steps = {name: statistics.median(f.ms[name] for f in findings) for name in findings[0].ms}
    floor = steps["mount"] + steps["reopen"] + steps["unmount"]
    say(f"| crash states checked, {scenario.id}, one machine | {alone:.1f} /s | |")
    say(f"| the same, two machines at a time | {both:.1f} /s | >= 150 /s |")
    say(f"| one state / its floor (mount + reopen + check + umount) | {1000 / alone / floor:.2f} | |")
    say(f"| where a state's time goes, median ms | {', '.join(f'{k} {v:.1f}' for k, v in steps.items())} | |")


def _lengths(say: Callable[[str], None], machines: Machines, scratch: Path, lengths: Sequence[int]) -> None:
    rates = []
    for count in lengths:
        scenario = _scenario(count)
        recorded = record.record(scenario, machines.recorder, scratch / f"length-{count}")
        rate, _ = check(scenario, machines.checker, recorded, 160, 1)
        rates.append(f"{1000 / rate:.1f} ms at {recorded.facts.entry_count} entries")
    say(f"| cost of a state by length of the log | {', '.join(rates)} | flat within 20 % |")


def _fault(say: Callable[[str], None], machines: Machines, folder: Path, fault: str) -> None:
    """Time the scenario of a fault in the quick profile: first its recording, then all other steps."""
    profile = matrix.profile("quick")
    (scenario,) = matrix.configure([_subject(fault)], profile)
    run = Run.create(folder, {"bench": fault})
    record_s = _seconds(lambda: record.record(scenario, machines.recorder, run.recording_folder(scenario)))
    judge_s = _seconds(lambda: campaign.Campaign(run, profile, machines, campaign.Silent()).measure([scenario]))
    if failures := run.failures():
        raise RigError(f"{scenario.id} could not be measured: {failures[scenario.id]}")
    count = len(run.verdicts(scenario.id)[0])
    rate = f"{count / judge_s:.1f}" if SPECS[fault].model else f"{count / record_s:.1f}, while it is recorded"
    say(f"| {fault} | {count} | {rate} | {record_s:.1f} s |")


def check(
    scenario: Scenario, source: Clones, recorded: Recording, states_max: int, machine_count: int
) -> tuple[float, list[Finding]]:
    """Return states per second, from starting the first machine to the last answer of all, and the findings."""
    profile = replace(matrix.profile("quick"), states_max=states_max, instants=0)
    with recorded.open() as logs:
        planned = cuts(scenario, profile, logs, Timeline(logs.first.marks))
        contents = [(same[0].state.id, same[0].clock) for same in by_content(planned.cuts)]
        size = -(-len(contents) // machine_count)
        jobs = [
            Job(scenario, logs.file, tuple(contents[begin : begin + size])) for begin in range(0, len(contents), size)
        ]
        begin = time.perf_counter()
        with ThreadPoolExecutor(machine_count) as pool:
            findings = list(pool.map(lambda job: list(verify(job, source)), jobs))
        rate = len(contents) / (time.perf_counter() - begin)
        return rate, [finding for part in findings for finding in part]


def _scenario(transaction_count: int) -> Scenario:
    (scenario,) = matrix.configure([_subject("powercut")], matrix.profile("quick"))
    return replace(scenario, workload=WorkloadSpec(transaction_count))


def _subject(fault: str) -> Scenario:
    """Return the scenario measured under a fault: the first default engine and file system, strictest settings."""
    engine = next(engine for engine in engines() if engine.spec.is_default)
    filesystem = default_filesystems()[0]
    (scenario,) = matrix.select([f"{engine.name}-{filesystem.word}-{engine.spec.strict[0]}_{fault}"])
    return scenario


def _seconds(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def _private_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = [int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))]
    return sum(sizes) / 1024
