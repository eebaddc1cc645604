"""The house rules on imports: which package may import which, what is loaded when, and that there are no circles."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.unit.house import ROOT, failures, imports, module_name, modules, within

# Shipped into the VM. They import the standard library and what is to the left of them in DESIGN.md: contract <-
# engines, file systems, workloads <- trials <- guest. What knows documents is loaded by name, and never imported.
MAY_IMPORT = {
    "rig.contract": ("rig.contract",),
    "rig.engines": ("rig.contract", "rig.engines", "rig.workloads"),
    "rig.filesystems": ("rig.contract", "rig.filesystems"),
    "rig.workloads": ("rig.contract", "rig.workloads"),
    "rig.speed.trials": ("rig.contract", "rig.engines", "rig.speed.trials", "rig.workloads"),
    "rig.guest": ("rig.contract", "rig.engines", "rig.filesystems", "rig.guest", "rig.speed.trials", "rig.workloads"),
    "rig.analysis.documents.guestprobes": ("rig.analysis.documents.guestprobes", "rig.contract", "rig.filesystems"),
    "rig.analysis.documents.replications": (
        "rig.analysis.documents.replications", "rig.contract", "rig.engines", "rig.speed.trials", "rig.workloads",
    ),
}  # fmt: skip
# Who imports a package besides itself. A report must not load QEMU, so only campaign and front know of machines.
IMPORTED_BY = {
    "rig.guest": (),
    "rig.machines": ("rig.campaign", "rig.front"),
    "rig.campaign": ("rig.front",),
    "rig.front": (),
}
# Modules of an engine that stay on the host: they find and check the user's own builds.
HOST_ONLY = (".builds", ".elf")
# Only these modules of the rig import the analysis, and only inside functions or for type checkers.
MAY_USE_ANALYSIS = ("rig.front",)
# Database drivers are in the guest image; a module that needs one imports it inside a function.
DRIVERS = frozenset({"apsw", "lmdb", "plyvel", "psycopg", "pymysql", "rocksdict"})
MAY_USE_DRIVERS = ("rig.engines", "rig.analysis.documents.replications")
HEAVY = frozenset({"numpy", "scipy", "matplotlib", "duckdb", "pyarrow", "jinja2"})


def broken_import(module: str, imported: str, inside: bool) -> str | None:
    """Say which rule an import breaks, if it breaks one."""
    ours = within(imported, ("rig",))
    if within(module, ("rig.faults",)) and ours and not within(imported, ("rig.faults",)):
        return "faults imports nothing of ours"
    reaches = within(imported, ("rig.analysis",)) and not within(module, ("rig.analysis",))
    if reaches and not (inside and within(module, MAY_USE_ANALYSIS)):
        return "only the front reaches into analysis, inside functions or for type checkers"
    if imported.partition(".")[0] in DRIVERS and not (inside and within(module, MAY_USE_DRIVERS)):
        return f"drivers are imported by {', '.join(MAY_USE_DRIVERS)} only, inside functions"
    for package, importers in IMPORTED_BY.items():
        if within(imported, (package,)) and not within(module, (package, *importers)):
            return f"only {', '.join((package, *importers))} may import {package}"
    room = next((room for room in MAY_IMPORT if within(module, (room,))), None)
    if room and not module.endswith(HOST_ONLY):
        # `from rig import host` names the package itself too; only its modules count.
        if ours and not within(imported, MAY_IMPORT[room]) and imported != "rig":
            return f"{room} may import only {', '.join(MAY_IMPORT[room])}"
        if not ours and imported.partition(".")[0] not in sys.stdlib_module_names | DRIVERS:
            return "what is shipped to the guest imports the standard library only"
    return None


def test_every_package_keeps_the_rule_of_dependencies() -> None:
    checked, broken = 0, []
    for path in modules():
        for imported, inside, line in imports(path):
            checked += 1
            rule = broken_import(module_name(path), imported, inside)
            if rule:
                broken.append(f"{path.relative_to(ROOT)}:{line} imports {imported}: {rule}")
    assert checked > 50, "the walk found next to nothing to check"
    assert failures(broken) == ""


@pytest.mark.parametrize(
    ("module", "imported", "inside", "allowed"),
    [
        ("rig.faults.log.log", "numpy", False, True),
        ("rig.faults.log.log", "rig.faults.log.epochs", False, True),
        ("rig.faults.log.log", "rig.contract.errors", False, False),
        ("rig.faults.log.log", "rig.analysis.judging.outcome", True, False),
        ("rig.store", "rig.faults.log.log", False, True),
        ("rig.store", "rig.analysis.judging.outcome", True, False),
        ("rig.store", "rig.recordings.archive", False, True),
        ("rig.planning.audit", "rig.campaign.session", True, False),
        ("rig.images.image", "rig.machines.argv", False, False),
        ("rig.machines.pool", "rig.images.image", False, True),
        ("rig.machines.pool", "rig.campaign.record", True, False),
        ("rig.recordings.archive", "rig.front.verbs.doctor", True, False),
        ("rig.campaign.record", "rig.recordings.archive", False, True),
        ("rig.front.cli", "rig.analysis.judging.outcome", True, True),
        ("rig.front.cli", "rig.analysis.judging.outcome", False, False),
        ("rig.front.pytest_plugin", "rig.analysis", True, True),
        ("rig.guest.agent.verifying", "rig.engines.sqlite", False, True),
        ("rig.guest.agent.verifying", "rig.contract.errors", False, True),
        ("rig.guest.agent.verifying", "rig.host", True, False),
        ("rig.guest.agent.verifying", "numpy", True, False),
        ("rig.guest.fileprobe", "rig.analysis.documents.guestprobes", True, False),
        ("rig.analysis.documents.guestprobes.ext", "rig.filesystems.md", False, True),
        ("rig.analysis.documents.guestprobes.ext", "rig.analysis.documents.claim", True, False),
        ("rig.analysis.documents.replications.s1", "rig.engines.sqlite.driver", False, True),
        ("rig.analysis.documents.replications.s1", "rig.analysis.judging.speed", False, False),
        ("rig.analysis.documents.replications.s4_leveldb", "plyvel", True, True),
        ("rig.analysis.documents.crash", "rig.campaign.record", True, False),
        ("rig.guest.agent.verifying", "ctypes.util", False, True),
        ("rig.engines.rocksdb", "rocksdict", True, True),
        ("rig.engines.rocksdb", "rocksdict", False, False),
        ("rig.workloads.ledger", "rig.faults.log.log", False, False),
        ("rig.analysis.show.report", "rig.contract.results", False, True),
        ("rig.analysis.show.report", "apsw", True, False),
    ],
)
def test_the_rule_of_dependencies_says_what_the_design_says(
    module: str, imported: str, inside: bool, allowed: bool
) -> None:
    assert allowed is (broken_import(module, imported, inside) is None)


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        ("import rig.analysis", False),
        ("def f(): import rig.analysis", True),
        ("if TYPE_CHECKING: import rig.analysis", True),
        ("if not TYPE_CHECKING: import rig.analysis", False),
        ("if TYPE_CHECKING: pass\nelse: import rig.analysis", False),
        ("if DEBUG: import rig.analysis", False),
        ("try: import rig.analysis\nexcept ImportError: pass", False),
    ],
)
def test_an_import_is_inside_where_importing_the_module_does_not_carry_it_out(source: str, inside: bool) -> None:
    assert [("rig.analysis", inside)] == [
        found[:2] for found in imports(ROOT / "rig" / "front" / "cli.py", ast.parse(source))
    ]


def test_no_module_imports_itself_through_others() -> None:
    """Imports in functions and for type checkers count too: any circle is one noun in two rooms."""
    names = {module_name(path): path for path in modules()}
    found = {name: {target for target, *_ in imports(path) if target in names} for name, path in names.items()}
    rank = dict.fromkeys(found, 0)
    # In a circle ranks grow without end; without one, no chain of imports is longer than there are modules.
    for _ in names:
        higher = {name: 1 + max((rank[one] for one in targets), default=-1) for name, targets in found.items()}
        if higher == rank:
            return
        rank = higher
    most = max(rank.values())
    assert failures([f"{name} is in a circle of imports, or above one" for name in found if rank[name] == most]) == ""


@pytest.mark.parametrize("module", ["rig", "rig.front.pytest_plugin", "rig.front.cli"])
def test_importing_the_rig_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    ).stdout.split()
    assert "rig" in loaded
    assert set() == HEAVY & set(loaded)


@pytest.mark.parametrize("module", ["rig.store", "rig.planning.audit", "rig.analysis.show.report"])
def test_reading_what_is_stored_loads_nothing_that_starts_machines(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    ).stdout.split()
    assert module in loaded
    assert [] == [name for name in loaded if within(name, ("qemu", "rig.campaign", "rig.machines"))]


# What runs servers of databases, in the guest.
SERVERS = ("rig.engines.server", "rig.engines.mariadb", "rig.engines.postgresql")


def test_subprocesses_of_the_host_go_through_one_gateway() -> None:
    """The exceptions run as long as a VM, or inside one, or are a trial in a process of its own."""
    trials = ("rig.analysis.documents.guestprobes", "rig.analysis.documents.replications")
    allowed = ("rig.host", "rig.machines", "rig.guest", "rig.filesystems", *SERVERS, *trials)
    astray = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in modules()
        for imported, _, line in imports(path)
        if imported == "subprocess" and not within(module_name(path), allowed)
    ]
    assert failures(astray) == ""
