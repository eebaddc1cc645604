"""Print how many epochs of every recording are doubtful, with the block trace and without it, as a table in Markdown.

    python -m tests.durability.doubt_table FOLDER [PATTERN ...]

Records each scenario of the nightly matrix (or those whose ids match a pattern) with the transactions of the quick
profile, unless FOLDER has its recording; scenarios that share a recording share a line. Lines are summed up by engine,
file system, and what else differs between recordings: workload, shim and what is injected. Live cuts are left out,
because none of their epochs is cut. The last column is the largest share of doubtful epochs of one recording, as it is
judged, and its scenario. The exit code is 1 if that share is more than a result may rest on, or nothing was recorded.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from rig.analysis.dossiers import control_settings
from rig.analysis.judging.outcome import DOUBTFUL_SHARE_MAX
from rig.campaign.record import record
from rig.contract.errors import RigError
from rig.contract.faultspecs import SPECS
from rig.contract.scenario import Scenario
from rig.faults import LogFile, epochs
from rig.machines.guests import Source, guests
from rig.planning import defaults, matrix
from rig.recordings import archive
from rig.recordings.archive import Recording
from rig.recordings.timeline import Timeline


@dataclass(frozen=True)
class Doubt:
    """The epochs of one recording that can be cut, and how many are doubtful: as judged, and by the logs alone."""

    scenario: Scenario
    epoch_count: int
    doubtful: int
    by_logs_alone: int

    @property
    def share(self) -> float:
        """Return the share of doubtful epochs."""
        return self.doubtful / self.epoch_count if self.epoch_count else 0.0

    @property
    def group(self) -> str:
        """Return what this recording has in common with others."""
        scenario = self.scenario
        parts = (scenario.workload.name, scenario.shim.partition("-")[0], SPECS[scenario.fault].injection.value)
        kind = " ".join(part for part in parts if part and part != "none")
        return f"{scenario.engine} on {scenario.filesystem}, {kind}"


def main(folder: Path, patterns: list[str]) -> int:
    """Record what is missing, print a line for each group of recordings, and return the exit code."""
    nightly = matrix.profile("nightly")
    wanted = matrix.select(patterns) if patterns else defaults.default_scenarios(nightly, control_settings)
    scenarios = {one.recording_key: one for one in matrix.configure(wanted, matrix.profile("quick"))}
    groups: dict[str, list[Doubt]] = defaultdict(list)
    with guests() as source:
        for key, scenario in sorted(scenarios.items(), key=lambda item: item[1].id):
            if SPECS[scenario.fault].is_cross_check:
                continue
            try:
                found = doubt(scenario, archive.load(folder / key) or _record(source, scenario, folder / key))
            except RigError as error:
                sys.stderr.write(f"{scenario.id}: not measured\n{error}\n")
                continue
            sys.stderr.write(f"{scenario.id}: {found.doubtful} of {found.epoch_count}, {found.by_logs_alone} by logs\n")
            groups[found.group].append(found)
    _say("recordings", "number", "epochs", "doubtful", "without the trace", "worst recording")
    _say(*["---"] * 6)
    for name, doubts in sorted(groups.items()):
        worst = max(doubts, key=lambda one: one.share)
        rows = [(one.epoch_count, one.doubtful, one.by_logs_alone) for one in doubts]
        sums = [sum(column) for column in zip(*rows, strict=True)]
        words = f"{worst.share:.1%} {worst.scenario.id}" if worst.doubtful else "none"
        _say(name, str(len(doubts)), *map(str, sums), words)
    shares = [one.share for doubts in groups.values() for one in doubts]
    return int(not shares or max(shares) > DOUBTFUL_SHARE_MAX)


def _record(source: Source, scenario: Scenario, folder: Path) -> Recording:
    return record(scenario, source.of(scenario).recorder, folder)


def doubt(scenario: Scenario, recording: Recording) -> Doubt:
    """Return what is doubtful in a recording, over all its disks."""
    with recording.unpack() as file:
        judged, alone = _doubtful(file), _doubtful(replace(file, traces=()))
    return Doubt(
        scenario, sum(count for count, _ in judged), sum(doubtful for _, doubtful in judged),
        sum(doubtful for _, doubtful in alone),
    )  # fmt: skip


def _doubtful(file: LogFile) -> list[tuple[int, int]]:
    found = []
    with file.open() as logs:
        for log in logs.all:
            setup = Timeline(log.marks).setup.entry_index
            reached = [epoch for epoch in epochs(log) if epoch.end > setup]
            found.append((len(reached), sum(epoch.doubtful for epoch in reached)))
    return found


def _say(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
