"""Write one crash state into a folder that anyone can use without the rig, and run its script to see that it works.

README.md           what this is, what is promised and what happened, and how to look at it
disk.img.gz         the disk as the cut left it: nothing has mounted it since
files.tar.gz        the directory once the file system has recovered; no database has been opened on it
expected.txt        the rows after the last transaction that was acknowledged
control.tar.gz      the directory before the first transaction, which no cut has touched; or at the very end, if the
control.txt             first transaction makes the database; and its rows
engine.tar.gz       the engine's own programs and libraries, from the guest image, and a list of the packages in it,
packages.txt            if a host may lack them
program/            a user's program and the files of its recipe
reproduce.sh        opens the files with the engine's own programs, and compares the rows
reproduced.txt      what the script printed for the exporter
fixture/            the files themselves, if asked for: for an engine's own tests

The script begins with the control: if the rows of its files are wrong, the host is to blame, and not the cut. A user's
program makes the files of its control itself.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.campaign.evidence import ScenarioEvidence
from rig.contract.errors import HostError, UsageError
from rig.contract.results import Verdict, VerdictKind
from rig.contract.scenario import Scenario
from rig.engines import load
from rig.engines.builds import Library
from rig.engines.own import Task
from rig.engines.stock import OwnStock, Stock, own_stock_of, stock_of
from rig.faults import CrashState
from rig.faults.states.rendering import content
from rig.host import processes
from rig.images import enginefiles, image, recipes
from rig.workloads import Work

_LIMIT_S = 120
# Exit codes of the script.
_LOSS, _NO_LOSS, _UNKNOWN = 0, 1, 2
_SCRIPT = """\
#!/bin/sh
# Open the files of a crash state with the engine's own programs, and compare the rows with what they must be.
# Exit code 0: the loss is there; 1: it is not; 2: this host cannot tell, because it fails with files without a cut too.
set -u
cd "$(dirname "$0")" || exit 2
folder=$PWD
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
give_up() {{
    echo "THIS HOST CANNOT SHOW IT: $1"
    exit 2
}}
unpack() {{
    mkdir "$work/$1" && tar -xozf "$1.tar.gz" -C "$work/$1" || give_up "$1.tar.gz cannot be unpacked"
}}
as=
engine() {{
    path=$work/engine/$1
    shift
    $as "$work/engine/{loader}" --library-path "$work/engine/{libraries}" "$path" "$@"
}}
control() {{ unpack control; }}
check() {{ :; }}
look() {{
    (cd "$work/$1" && check) > "$work/$1.check" 2>&1
    (cd "$work/$1" && rows "$folder/$2") > "$work/$1.rows" 2> "$work/$1.errors"
    [ ! -s "$work/$1.errors" ] && cmp -s "$2" "$work/$1.rows"
}}
[ ! -e engine.tar.gz ] || unpack engine
{control}
control || give_up "the files of the control cannot be made"
look control control.txt || {{
    cat "$work/control.check" "$work/control.errors"
    diff control.txt "$work/control.rows" | head -n 20 | cut -c 1-200
    give_up "it fails even with files without a cut"
}}
{state}
unpack files
if look files expected.txt && cmp -s "$work/control.check" "$work/files.check"; then
    cat "$work/files.check"
    echo "the rows are those after the last acknowledged transaction: nothing is lost"
    exit 1
fi
cat "$work/files.check" "$work/files.errors"
echo "NOT AS ACKNOWLEDGED: < must be there, > was found"
diff expected.txt "$work/files.rows" | head -n 20 | cut -c 1-200
exit 0
"""
_README = """\
# A crash state of {engine} on {filesystem}

{happened}

- scenario `{scenario}`, state `{state}`
- {engine} {version}; settings: {settings}
- file system {filesystem}, mounted with `{mount}`; kernel {kernel}
- {acked} transactions were acknowledged when the power went
{database}
## Look at the disk

    gunzip -k disk.img.gz
    sudo mount -o loop disk.img /mnt

Nothing has mounted this disk since the power went, so the mount recovers it. Without root, the tools of the file system
read the image as well.
"""
_DATABASE = """
## Look at the database

    sh reproduce.sh

The script unpacks `files.tar.gz` into a temporary folder, opens the database, and compares its rows with
`expected.txt`. First it does the same with a control: files of the same engine that no cut has touched, and
`control.txt`. Exit code 0 means that the loss is there, 1 that nothing is lost, and 2 that this host cannot tell.
`reproduced.txt` has what the script printed for the exporter, if it worked there.

{needs}
"""
_NEEDS_PACKAGES = "It needs the Debian packages {packages}, or what they contain."
_NEEDS_ENGINE = """\
It needs no root, no network and no package, but Linux on x86-64. `engine.tar.gz` has the engine: unmodified files of
Debian {suite} and of wheels, as the rig's guest has them (`packages.txt`). They run with their own libraries and their
own loader."""
_NEEDS_PROGRAM = """\
It runs `program/{program}`, or another build of it: `PROGRAM=/its/path sh reproduce.sh`. The program runs with your
user's rights, and must find what it needs on this host.{packages}"""


@dataclass(frozen=True)
class Exported:
    """An exported folder, and what its script printed; if it was not run, why."""

    folder: Path
    printed: str
    failure: str = ""


def export(
    evidence: ScenarioEvidence, state: CrashState, verdict: Verdict, folder: Path, *, fixture: bool,
    build: Library | None = None, runs_program: bool = False,
) -> Exported:  # fmt: skip
    """Write a crash state into a new folder; raise HostError if its script does not show the verdict.

    `build` is what the user measured: a program gets into the folder. The rig runs programs in machines only, so the
    script of a program is not run unless `runs_program`.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name another folder")
    if len(evidence.logs.all) > 1:
        raise UsageError(f"{state.id} is a state of two disks, and a folder has one: see rig explain and rig shell")
    engine, scenario = load(evidence.scenario.engine_module), evidence.scenario
    spec, lives, skills = scenario.workload, scenario.lives, engine.spec.skills
    work = Work(spec.name, scenario.seed, spec.transaction_count, skills, lives)
    is_early = not work.creates and not lives
    control_entry = evidence.timeline.setup.entry_index if is_early else evidence.logs.first.entry_count
    files, control = evidence.files([state, evidence.durable_state(control_entry)])
    if files is None or control is None:
        raise UsageError(f"{state.id} cannot be mounted, so it has no files: the file system is damaged")
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(folder / "disk.img.gz", "wb", compresslevel=1, mtime=0) as disk:
        disk.write(content(evidence.logs.first, state, evidence.logs.first.device_bytes).tobytes())
    (folder / "files.tar.gz").write_bytes(files)
    if fixture:
        (folder / "fixture").mkdir()
        # GNU tar refuses names that lead out of the folder; the guest is not trusted.
        unpack = ["tar", "--extract", "--gzip", "--no-same-owner", "--directory", "fixture", "--file", "files.tar.gz"]
        processes.run(unpack, timeout_s=_LIMIT_S, cwd=folder)
    needs = ""
    if own := own_stock_of(engine):
        needs = _write_program(evidence, verdict, folder, own, build)
    elif stock := stock_of(engine):
        (folder / "control.tar.gz").write_bytes(control)
        last = evidence.timeline.acks[-1].number if lives else -1
        # A transaction in flight at the cut may be there.
        counts = {"control": 0 if is_early else last, "expected": max(verdict.acked, verdict.recovered or 0)}
        needs = _write_engine(scenario, work, counts, folder, stock)
    (folder / "README.md").write_text(_readme(evidence, verdict, needs))
    if own and not runs_program:
        words = "it runs the program on this host, with your rights; --run-program does so"
        return Exported(folder, "", f"reproduce.sh was not run: {words}")
    if not needs:
        return Exported(folder, "", f"{evidence.scenario.engine} has no stock tools here, so the folder has no script")
    return _reproduce(folder, verdict)


def script_of(control: str, state: str = "") -> str:
    """Return the script that looks at the control and at the state with the functions of an engine's module `stock`.

    If the functions for the state are the same, `state` is empty.
    """
    return _SCRIPT.format(control=control, state=state, loader=enginefiles.LOADER, libraries=enginefiles.LIBRARIES)


def _write_engine(scenario: Scenario, work: Work, counts: Mapping[str, int], folder: Path, stock: Stock) -> str:
    """Write the script of an engine with tables, and the rows after these counts of transactions.

    Return what the script needs, in words.
    """
    looks = []
    for name, count in counts.items():
        rows = work.models[count]
        tables = [table for table in work.tables if table.name in rows]
        (folder / f"{name}.txt").write_text(stock.rows_text(tables, rows))
        looks.append(stock.script(tables, scenario.all_settings))
    (folder / "reproduce.sh").write_text(script_of(*dict.fromkeys(looks)))
    if not stock.FILES:
        return _NEEDS_PACKAGES.format(packages=", ".join(stock.PACKAGES))
    recipe = recipes.recipe_of(scenario)
    guest = image.build(recipe)
    enginefiles.pack(guest, stock.FILES, folder / "engine.tar.gz")
    shutil.copy(guest.folder / "packages.txt", folder)
    return _NEEDS_ENGINE.format(suite=recipe.suite)


def _write_program(
    evidence: ScenarioEvidence, verdict: Verdict, folder: Path, stock: OwnStock, build: Library | None
) -> str:
    """Write the script of a user's program, the program and its files; return the words about what it needs."""
    scenario, timeline = evidence.scenario, evidence.timeline
    assert build, f"{scenario.id} was measured without a program"
    task = Task(
        scenario.all_settings, "", scenario.seed, scenario.workload.transaction_count,
        client_count=scenario.workload.client_count,
    )  # fmt: skip
    acked = timeline.acked_numbers(verdict.entry) if task.client_count > 1 else {*range(1, verdict.acked + 1)}
    (folder / "expected.txt").write_text(stock.numbers_text(acked - {*timeline.failed}))
    (folder / "control.txt").write_text(stock.numbers_text({1}))
    (folder / "reproduce.sh").write_text(script_of(stock.own_script(task)))
    needs = recipes.stored_needs(build.image) if build.image else None
    name = task.settings["program"]
    for path, written in {**(needs.files if needs else {}), name: build.path.read_bytes()}.items():
        target = folder / "program" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(written)
        target.chmod(0o755)
    base = recipes.recipe().packages
    added = [package for package in needs.recipe.packages if package not in base] if needs else []
    packages = f" In the rig's guest it had these packages of Debian: {', '.join(added)}." if added else ""
    return _NEEDS_PROGRAM.format(program=name, packages=packages)


def _reproduce(folder: Path, verdict: Verdict) -> Exported:
    """Run the script; raise HostError if it works and shows another verdict."""
    output = processes.run(["sh", "-c", "sh reproduce.sh; echo $?"], timeout_s=_LIMIT_S, cwd=folder)
    *lines, code = output.decode(errors="replace").splitlines(keepends=True)
    printed = "".join(lines)
    if int(code) == _UNKNOWN:
        return Exported(folder, "", f"{printed}reproduce.sh does not work on this host, so it has shown nothing")
    expected = _NO_LOSS if verdict.kind in {VerdictKind.DURABLE, VerdictKind.KEPT_OPEN} else _LOSS
    if int(code) != expected:
        raise HostError(f"the script in {folder} does not show the verdict {verdict.kind}, it says: {printed}")
    (folder / "reproduced.txt").write_text(printed)
    return Exported(folder, printed)


def _readme(evidence: ScenarioEvidence, verdict: Verdict, needs: str) -> str:
    scenario, facts = evidence.scenario, evidence.facts
    settings = ", ".join(
        f"{name}={value}" for name, value in facts.settings.items() if name not in {"version", "source_id"}
    )
    happened = f"The power went during a workload, and then the verdict was {verdict.kind}. {verdict.detail}".strip()
    return _README.format(
        engine=scenario.engine, filesystem=scenario.filesystem, happened=happened, scenario=scenario.id,
        state=verdict.state, version=facts.engine_version, settings=settings, mount=facts.filesystem.get("mount", ""),
        kernel=facts.kernel, acked=verdict.acked, database=_DATABASE.format(needs=needs) if needs else "",
    )  # fmt: skip
