"""The house rules: which imports are allowed, how long things get, what is documented, what is tracked."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.house import ROOT, imports, module_name, modules, python_files, tracked, tree_of, within

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
RELEASE_NOTES_LINES_MAX = 40
CHANGE_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
# Shipped into the VM. They import the standard library and what is to the left of them in DESIGN.md: contract <-
# engines, file systems, workloads <- trials <- guest.
MAY_IMPORT = {
    "rig.contract": ("rig.contract",),
    "rig.engines": ("rig.contract", "rig.engines", "rig.workloads"),
    "rig.filesystems": ("rig.contract", "rig.filesystems"),
    "rig.workloads": ("rig.contract", "rig.workloads"),
    "rig.trials": ("rig.contract", "rig.engines", "rig.trials", "rig.workloads"),
    "rig.guest": ("rig.contract", "rig.engines", "rig.filesystems", "rig.guest", "rig.trials", "rig.workloads"),
}
# Independent of machines, because a report must not load QEMU.
WITHOUT_MACHINES = ("rig.recordings", "rig.planning", "rig.store", "rig.analysis", "rig.cache", "rig.host", "rig.speed")
# Modules of an engine that stay on the host: they find and check the user's own builds.
HOST_ONLY = (".builds", ".elf")
# Only these modules of the rig import the analysis, and only inside functions or for type checkers.
MAY_USE_ANALYSIS = ("rig.front",)
# Database drivers are in the guest image; a module that needs one imports it inside a function.
DRIVERS = frozenset({"apsw", "lmdb", "plyvel", "psycopg", "pymysql", "rocksdict"})
HEAVY = frozenset({"numpy", "scipy", "matplotlib", "duckdb", "pyarrow", "jinja2"})

# Written in pieces, so that this file is not the first to break the rule.
MACHINE_PATHS = re.compile(r"(?<![\w.~$}])/(?:work|farm|root|home/\w+|Users/\w+)" + "/")
_REGISTRY_NAMES = "pypi|pythonhosted|npmjs|crates|rubygems|proxy[.]golang|repo1?[.]maven|deb[.]debian|archive[.]ubuntu"
REGISTRIES = re.compile(rf"(?:{_REGISTRY_NAMES})[.](?:org|com|io|apache)")
GENERATED = re.compile(
    r"(?:^|/)(?:__pycache__|\.venv|\.venv-docs|\.mypy_cache|\.ruff_cache|\.pytest_cache|\.hypothesis|\.vagrant|build|runs)/"
    r"|\.egg-info(?:/|$)|\.(?:pyc|so|o|img|qcow2|cpio|tmp|orig|rej|log)$"
)


def broken_import(module: str, imported: str, inside: bool) -> str | None:
    """Say which rule an import breaks, if it breaks one."""
    ours = within(imported, ("rig",))
    if within(module, ("rig.faults",)) and ours and not within(imported, ("rig.faults",)):
        return "faults imports nothing of ours"
    reaches = within(imported, ("rig.analysis",)) and not within(module, ("rig.analysis",))
    if reaches and not (inside and within(module, MAY_USE_ANALYSIS)):
        return "only the front reaches into analysis, inside functions or for type checkers"
    if imported.partition(".")[0] in DRIVERS and not (inside and within(module, ("rig.engines",))):
        return "drivers are imported by rig/engines only, inside functions"
    if within(imported, ("rig.guest",)) and not within(module, ("rig.guest",)):
        return "the host imports nothing of the guest's"
    if within(imported, ("rig.machines",)) and within(module, WITHOUT_MACHINES):
        return f"{', '.join(WITHOUT_MACHINES)} know nothing of machines"
    if within(imported, ("rig.front",)) and not within(module, ("rig.front",)):
        return "nothing imports the front but itself"
    room = next((room for room in MAY_IMPORT if within(module, (room,))), None)
    if room and not module.endswith(HOST_ONLY):
        # `from rig import host` names the package itself too; only its modules count.
        if ours and not within(imported, MAY_IMPORT[room]) and imported != "rig":
            return f"{room} may import only {', '.join(MAY_IMPORT[room])}"
        if not ours and imported.partition(".")[0] not in sys.stdlib_module_names | DRIVERS:
            return "what is shipped to the guest imports the standard library only"
    return None


def failures(lines: Iterator[str] | list[str]) -> str:
    return "\n".join(lines)


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
        ("rig.faults.log", "numpy", False, True),
        ("rig.faults.log", "rig.faults.epochs", False, True),
        ("rig.faults.log", "rig.contract.errors", False, False),
        ("rig.faults.log", "rig.analysis.outcome", True, False),
        ("rig.store", "rig.faults.log", False, True),
        ("rig.store", "rig.analysis.outcome", True, False),
        ("rig.store", "rig.recordings.archive", False, True),
        ("rig.planning.audit", "rig.machines.session", True, False),
        ("rig.recordings.archive", "rig.front.doctor", True, False),
        ("rig.machines.record", "rig.recordings.archive", False, True),
        ("rig.front.cli", "rig.analysis.outcome", True, True),
        ("rig.front.cli", "rig.analysis.outcome", False, False),
        ("rig.front.pytest_plugin", "rig.analysis", True, True),
        ("rig.guest.agent", "rig.engines.sqlite", False, True),
        ("rig.guest.agent", "rig.contract.errors", False, True),
        ("rig.guest.agent", "rig.host", True, False),
        ("rig.guest.agent", "numpy", True, False),
        ("rig.guest.agent", "ctypes.util", False, True),
        ("rig.engines.rocksdb", "rocksdict", True, True),
        ("rig.engines.rocksdb", "rocksdict", False, False),
        ("rig.workloads.ledger", "rig.faults.log", False, False),
        ("rig.analysis.report", "rig.contract.results", False, True),
        ("rig.analysis.report", "apsw", True, False),
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


# What documents claim is about engines and file systems by their names, and the experiments that check it use them.
CLAIMS = "analysis/claims/"
# Words of an engine or a file system -> where they may appear, besides tests, documentation and lists of engines.
OWN_WORDS = {
    r"sqlite|journal_mode|\bsynchronous\b(?! Writes)|wal_autocheckpoint": (
        "rig/engines/sqlite/",
        "analysis/dossiers/sqlite.py",
    ),
    r"\bleveldb|plyvel": ("rig/engines/leveldb/", "analysis/dossiers/leveldb.py", "rig/engines/lmdb/image.toml"),
    r"\blmdb|\bmdb_|nometasync|mapasync": (
        "rig/engines/lmdb/",
        "rig/engines/leveldb/image.toml",
        "analysis/dossiers/lmdb.py",
    ),
    r"rocksd|wal_recovery|manual_wal": ("rig/engines/rocksdb/", "analysis/dossiers/rocksdb.py"),
    r"postgres|\blibpq|amcheck|full_page_writes|nofullpages|opendatasync": (
        "rig/engines/postgresql/",
        "analysis/dossiers/postgresql.py",
    ),
    r"mariadb|innodb|binlog|doublewrite": (
        "rig/engines/mariadb/",
        "analysis/dossiers/mariadb.py",
        # A document compares it with another engine.
        "rig/engines/sqlite/replications/",
    ),
    r"\bext[234]|e2fsck|dumpe2fs|jbd2|dioread": ("rig/filesystems/ext.py", "analysis/dossiers/"),
    r"f2fs|fsync_mode": ("rig/filesystems/f2fs.py", "analysis/dossiers/"),
    r"\bnfs": ("rig/filesystems/nfs.py", "analysis/dossiers/"),
}
# The guest's own root disk, which nothing is recorded on, is made as the image's recipe says.
OF_THE_IMAGE = ("rig/machines/image.py", "vm-images/")
ANYWHERE = (
    "tests/", "docs/", ".github/", "README.md", "AGENTS.md", "BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md",
    "pyproject.toml",
    "requirements.lock", "bootstrap.sh", CLAIMS, *OF_THE_IMAGE,
)  # fmt: skip


def strangers(path: str, text: str) -> list[str]:
    """Return the lines that name an engine or a file system outside its package, module or dossier."""
    return [
        f"{path}:{number} {line.strip()[:80]}"
        for words, places in OWN_WORDS.items()
        if not path.startswith(places + ANYWHERE)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(words, line, re.IGNORECASE)
    ]


def test_no_engine_and_no_file_system_is_named_outside_its_own_place() -> None:
    found = []
    for path in tracked():
        try:
            found += strangers(str(path.relative_to(ROOT)), path.read_text())
        except UnicodeDecodeError:
            continue
    assert failures(found) == ""


@pytest.mark.parametrize(
    ("path", "text", "is_stranger"),
    [
        ("rig/planning/matrix.py", "if engine == 'sqlite':", True),
        ("rig/planning/matrix.py", 'settings["journal_mode"]', True),
        ("rig/guest/verifier.py", "run(['e2fsck'])", True),
        ("rig/engines/sqlite/driver.py", "import sqlite3", False),
        ("rig/engines/sqlite/driver.py", "ext4", True),
        ("rig/filesystems/ext.py", "ext4", False),
        ("rig/planning/matrix.py", "if word == 'ext2':", True),
        ("rig/filesystems/xfs.py", "ext4", True),
        ("rig/machines/recipes.py", "if word == 'f2fs':", True),
        ("README.md", "SQLite on ext4", False),
    ],
)
def test_a_word_out_of_place_is_noticed(path: str, text: str, is_stranger: bool) -> None:
    assert is_stranger is bool(strangers(path, text))


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


def test_modules_and_functions_stay_short_enough_to_read() -> None:
    too_long = []
    for path in python_files():
        lines = len(path.read_text().splitlines())
        if lines > MODULE_LINES_MAX:
            too_long.append(
                f"{path.relative_to(ROOT)} has {lines} lines, at most {MODULE_LINES_MAX}: make it two nouns"
            )
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    too_long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines")
    assert failures(too_long) == ""


def public_without_docstring(path: Path) -> Iterator[str]:
    def walk(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
        for child in node.body:
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith(
                "_"
            ):
                continue
            overrides = any(
                isinstance(each, ast.Name) and each.id in {"overload", "override"} for each in child.decorator_list
            )
            if not overrides and ast.get_docstring(child) is None:
                yield f"{path.relative_to(ROOT)}:{child.lineno} {prefix}{child.name}"
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")

    tree = tree_of(path)
    if ast.get_docstring(tree) is None and tree.body:
        yield f"{path.relative_to(ROOT)}:1 the module"
    yield from walk(tree, "")


def test_every_public_name_has_a_docstring() -> None:
    assert failures([line for path in modules() for line in public_without_docstring(path)]) == ""


def test_every_test_module_says_what_it_is_about() -> None:
    undocumented = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if path.name.startswith("test_") and ast.get_docstring(tree_of(path)) is None
    ]
    assert failures(undocumented) == ""


def test_annotations_are_never_evaluated_at_import() -> None:
    eager = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if tree_of(path).body
        and "from __future__ import annotations" not in path.read_text()
        # A module with only a docstring and re-exports has no annotations.
        and any(isinstance(node, ast.AnnAssign | ast.arg) for node in ast.walk(tree_of(path)))
    ]
    assert failures(eager) == ""


def test_no_tracked_file_names_a_path_of_somebodys_machine_or_a_package_registry() -> None:
    found = []
    for path in tracked():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number} {match.group()}"
            for number, line in enumerate(lines, 1)
            for match in [MACHINE_PATHS.search(line) or REGISTRIES.search(line)]
            if match
        ]
    assert failures(found) == ""


def test_nothing_generated_is_tracked() -> None:
    names = [str(path.relative_to(ROOT)) for path in tracked()]
    assert failures([name for name in names if GENERATED.search(name)]) == ""
    big = [
        f"{path.relative_to(ROOT)} {path.stat().st_size >> 10} KiB"
        for path in tracked()
        if path.stat().st_size > 1 << 20
    ]
    assert failures(big) == ""


def test_guest_image_recipes_are_data_and_no_package() -> None:
    assert [path for path in tracked() if path.parent.name == "vm-images" and path.suffix == ".py"] == []


@pytest.mark.parametrize("module", ["rig", "rig.front.pytest_plugin", "rig.front.cli"])
def test_importing_the_rig_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    ).stdout.split()
    assert "rig" in loaded
    assert set() == HEAVY & set(loaded)


@pytest.mark.parametrize("module", ["rig.store", "rig.planning.audit", "rig.analysis.report"])
def test_reading_what_is_stored_loads_nothing_that_starts_machines(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    ).stdout.split()
    assert module in loaded
    assert [] == [name for name in loaded if within(name, ("qemu", "rig.machines"))]


# What runs servers of databases, in the guest.
SERVERS = ("rig.engines.server", "rig.engines.mariadb", "rig.engines.postgresql")


def test_subprocesses_of_the_host_go_through_one_gateway() -> None:
    """The exceptions run as long as a VM, or inside one, or are a trial in a process of its own."""
    trials = ("rig.engines.rocksdb.replications",)
    allowed = ("rig.host", "rig.machines", "rig.guest", "rig.filesystems", *SERVERS, *trials)
    astray = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in modules()
        for imported, _, line in imports(path)
        if imported == "subprocess" and not within(module_name(path), allowed)
    ]
    assert failures(astray) == ""


def test_the_changelog_has_a_short_dated_section_for_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    heads = [section.partition("\n")[0] for section in sections]
    assert "[Unreleased]" == heads[0]
    assert re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", heads[1])
    for section in sections[1:]:
        assert len(section.strip().splitlines()) - 1 <= RELEASE_NOTES_LINES_MAX, heads
        assert set(re.findall(r"^### (.*)$", section, re.MULTILINE)) <= CHANGE_KINDS


def test_the_lock_pins_every_dependency_with_hashes_and_names_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=\S)", lock.strip())
    pins = [block for block in blocks if not block.startswith("#")]
    pinned = {re.split("[=; ]", block, maxsplit=1)[0] for block in pins}
    assert (
        failures(
            [block for block in pins if not re.match(r"[\w.-]+==\S+[^\n]*\\\n    --hash=sha256:[0-9a-f]{64}", block)]
        )
        == ""
    )
    assert "://" not in lock
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line)[0]).lower() for line in wanted}
    assert names - pinned == set()
    # Without its marker a package without a wheel for some Python could not be installed there at all.
    markers = {line.partition(";")[2].strip().replace("'", '"') for line in wanted if ";" in line}
    marked = {match[1] for block in pins if (match := re.match(r"\S+ ; (.*?) \\\n", block))}
    assert markers == marked
