"""Write one crash state into a folder that anyone can use without the rig, and run its script to see that it works.

README.md           what this is, what is promised and what happened, and how to look at it
disk.img.gz         the disk as the cut left it: nothing has mounted it since
files.tar.gz        the directory once the file system has recovered; no database has been opened on it
expected.txt        the rows after the last transaction that was acknowledged
reproduce.sh        unpacks the files, opens them with the engine's own tools, and compares the rows
reproduced.txt      what the script printed for the exporter
fixture/            the files themselves, if asked for: for an engine's own tests
"""

from __future__ import annotations

import base64
import gzip
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.campaign.evidence import ScenarioEvidence
from rig.contract.errors import HostError, UsageError
from rig.contract.results import Verdict
from rig.engines import load
from rig.engines.stock import Stock, stock_of
from rig.faults import CrashState
from rig.faults.states.rendering import content
from rig.host import processes
from rig.workloads import Work
from rig.workloads.operations import Content, Table

_LIMIT_S = 120
_SCRIPT = """\
#!/bin/sh
# Unpack the files of a crash state, open them with the engine's own tools, and compare the rows with what they must be.
# Exit code 0: the loss is there; 1: it is not.
set -u
cd "$(dirname "$0")" || exit 2
rm -rf work && mkdir work && tar -xzf files.tar.gz -C work && cd work || exit 2
{look}
rows > ../found.txt 2> ../errors.txt
cat ../errors.txt
if [ ! -s ../errors.txt ] && cmp -s ../expected.txt ../found.txt; then
    echo "the rows are those after the last acknowledged transaction: nothing is lost"
    exit 1
fi
echo "NOT AS ACKNOWLEDGED: < must be there, > was found"
diff ../expected.txt ../found.txt | head -20
exit 0
"""
_README = """\
# A crash state of {engine} on {filesystem}

{happened}

- scenario `{scenario}`, state `{state}`
- {engine} {version}; settings: {settings}
- file system {filesystem}, mounted with `{mount}`; kernel {kernel}
- {acked} transactions were acknowledged when the power went

## Look at the database

    sh reproduce.sh{packages}

The script unpacks `files.tar.gz`, opens the database with stock tools, and compares its rows with `expected.txt`.
The exporter has run it if there is a `reproduced.txt`, which has what it printed.

## Look at the disk

    gunzip -k disk.img.gz
    sudo mount -o loop disk.img /mnt

Nothing has mounted this disk since the power went, so the mount recovers it. Without root, the tools of the file system
read the image as well.
"""


@dataclass(frozen=True)
class Exported:
    """An exported folder, and what its script printed; if it was not run, why."""

    folder: Path
    printed: str
    failure: str = ""


def export(evidence: ScenarioEvidence, state: CrashState, verdict: Verdict, folder: Path, *, fixture: bool) -> Exported:
    """Write a crash state into a new folder; raise HostError if its script does not show the verdict."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name another folder")
    if len(evidence.logs.all) > 1:
        raise UsageError(f"{state.id} is a state of two disks, and a folder has one: see rig explain and rig shell")
    files = evidence.files(state)
    if files is None:
        raise UsageError(f"{state.id} cannot be mounted, so it has no files: the file system is damaged")
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(folder / "disk.img.gz", "wb", compresslevel=1, mtime=0) as image:
        image.write(content(evidence.logs.first, state, evidence.logs.first.device_bytes).tobytes())
    (folder / "files.tar.gz").write_bytes(base64.b64decode(files))
    engine = load(evidence.scenario.engine_module)
    stock = stock_of(engine)
    (folder / "README.md").write_text(_readme(evidence, verdict, stock))
    if fixture:
        (folder / "fixture").mkdir()
        # GNU tar refuses names that lead out of the folder; the guest is not trusted.
        unpack = ["tar", "--extract", "--gzip", "--no-same-owner", "--directory", "fixture", "--file", "files.tar.gz"]
        processes.run(unpack, timeout_s=_LIMIT_S, cwd=folder)
    if stock is None:
        return Exported(folder, "", f"{evidence.scenario.engine} has no stock tools here, so the folder has no script")
    tables, rows = _model(evidence, verdict.acked)
    (folder / "expected.txt").write_text(stock.rows_text(tables, rows))
    (folder / "reproduce.sh").write_text(script_of(stock, tables))
    if not shutil.which(stock.TOOL):
        return Exported(folder, "", f"reproduce.sh was not run: {stock.TOOL} is not installed ({stock.PACKAGES[0]})")
    return Exported(folder, _reproduce(folder))


def script_of(stock: Stock, tables: Sequence[Table]) -> str:
    """Return the script that opens the files with an engine's own tools and compares the rows of these tables."""
    return _SCRIPT.format(look=stock.script(tables))


def _reproduce(folder: Path) -> str:
    try:
        printed = processes.run(["sh", "reproduce.sh"], timeout_s=_LIMIT_S, cwd=folder).decode(errors="replace")
    except HostError as error:
        raise HostError(f"the script in {folder} does not show the verdict: {error}") from None
    (folder / "reproduced.txt").write_text(printed)
    return printed


def _model(evidence: ScenarioEvidence, acked: int) -> tuple[Sequence[Table], Content]:
    scenario = evidence.scenario
    skills = load(scenario.engine_module).spec.skills
    work = Work(scenario.workload.name, scenario.seed, scenario.workload.transaction_count, skills)
    rows = work.models[acked]
    return [table for table in work.tables if table.name in rows], rows


def _readme(evidence: ScenarioEvidence, verdict: Verdict, stock: Stock | None) -> str:
    scenario, facts = evidence.scenario, evidence.facts
    packages = f"    # needs {', '.join(stock.PACKAGES)}" if stock else ""
    settings = ", ".join(
        f"{name}={value}" for name, value in facts.settings.items() if name not in {"version", "source_id"}
    )
    happened = f"The power went during a workload, and then the verdict was {verdict.kind}. {verdict.detail}".strip()
    return _README.format(
        engine=scenario.engine, filesystem=scenario.filesystem, happened=happened, scenario=scenario.id,
        state=verdict.state, version=facts.engine_version, settings=settings, mount=facts.filesystem.get("mount", ""),
        kernel=facts.kernel, acked=verdict.acked, packages=packages,
    )  # fmt: skip
