"""The rules of the house, checked: who may import whom, how long things get, what is documented, what is tracked."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Folders of the repository; `rig/` links to the others, so that a wheel has one top-level package.
PACKAGES = ("analysis", "faults", "rig")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
# Shipped into the VM: standard library, and each other.
GUEST = ("rig.contract", "rig.guest", "rig.engines", "rig.workloads")
# A module of an engine that stays on the host: it finds and checks builds of the user's own.
HOST_ONLY = (".builds", ".elf")
# Only these reach from the rig into the analysis, and only inside functions or for type checkers.
MAY_USE_ANALYSIS = ("rig.front.cli", "rig.front.pytest_plugin", "rig.front.selection")
# What is stored is read and planned without QEMU: a report can be written where there is none.
WITHOUT_MACHINES = ("rig.recordings", "rig.planning", "rig.store")
# Database drivers live in the guest image; whoever needs one imports it inside a function.
DRIVERS = frozenset({"apsw", "lmdb", "plyvel", "psycopg", "pymysql", "rocksdict"})
HEAVY = frozenset({"numpy", "scipy", "matplotlib", "duckdb", "pyarrow", "jinja2"})

# Written in pieces, so that this file is not the first to break the rule.
MACHINE_PATHS = re.compile(r"(?<![\w.~$}])/(?:work|farm|root|home/\w+|Users/\w+)" + "/")
_REGISTRY_NAMES = "pypi|pythonhosted|npmjs|crates|rubygems|proxy[.]golang|repo1?[.]maven|deb[.]debian|archive[.]ubuntu"
REGISTRIES = re.compile(rf"(?:{_REGISTRY_NAMES})[.](?:org|com|io|apache)")
GENERATED = re.compile(
    r"(?:^|/)(?:__pycache__|\.venv|\.mypy_cache|\.ruff_cache|\.pytest_cache|\.hypothesis|\.vagrant|build|runs)/"
    r"|\.egg-info(?:/|$)|\.(?:pyc|so|o|img|qcow2|cpio|tmp|orig|rej|log)$"
)


@cache
def tracked() -> tuple[Path, ...]:
    """What git has, and what it would take with the next `git add`: the rules hold before a commit as after it."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    found = (ROOT / name for name in sorted(set(listing.split("\0"))) if name)
    return tuple(path for path in found if path.is_file())


def modules() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] in {"rig", "tests"} else ("rig", *parts)).removesuffix(".__init__")


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def imports(path: Path, tree: ast.Module | None = None) -> Iterator[tuple[str, bool, int]]:
    """Yield (imported module, whether inside, line); `from a import b` is `a.b` where that is a module.

    Inside is what importing the module does not carry out: a function, or a block for type checkers only.
    """

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, inside, child.lineno) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = absolute_base(path, child)
                for alias in child.names:
                    full = f"{base}.{alias.name}"
                    yield (full if is_our_module(full) else base), inside, child.lineno
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, inside or deferred or is_for_type_checkers(child))

    return walk(tree or tree_of(path), inside=False)


def is_for_type_checkers(node: ast.AST) -> bool:
    """An `else` would be carried out, so a block with one does not count."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and not node.orelse
    )


def absolute_base(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).parent.parts
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def is_our_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def broken_import(module: str, imported: str, inside: bool) -> str | None:
    """Say which rule an import breaks, if it breaks one."""
    ours = within(imported, ("rig",))
    if within(module, ("rig.faults",)) and ours and not within(imported, ("rig.faults",)):
        return "faults imports nothing of ours"
    if within(module, WITHOUT_MACHINES) and within(imported, ("rig.machines", "rig.front")):
        return "recordings, planning and the store start no machine"
    reaches = within(imported, ("rig.analysis",)) and not within(module, ("rig.analysis",))
    if reaches and not (inside and module in MAY_USE_ANALYSIS):
        return "only the front reaches into analysis, inside functions or for type checkers"
    if imported.partition(".")[0] in DRIVERS and not (inside and within(module, ("rig.engines",))):
        return "drivers are imported by rig/engines only, inside functions"
    if within(module, GUEST) and not module.endswith(HOST_ONLY):
        # `from rig import errors` names the package itself too; only its modules count.
        if ours and not within(imported, GUEST) and imported != "rig":
            return f"guest code may import only {', '.join(GUEST)}"
        if not ours and imported.partition(".")[0] not in sys.stdlib_module_names | DRIVERS:
            return "guest code imports the standard library only"
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
    assert [("rig.analysis", inside)] == [found[:2] for found in imports(ROOT / "rig" / "cli.py", ast.parse(source))]


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
        # A module of nothing but a docstring and re-exports has no annotations.
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


def test_subprocesses_of_the_host_go_through_one_gateway() -> None:
    """The exceptions live for the life of a VM, or inside one."""
    allowed = ("rig.host", "rig.machines", "rig.guest")
    astray = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in modules()
        for imported, _, line in imports(path)
        if imported == "subprocess" and not within(module_name(path), allowed)
    ]
    assert failures(astray) == ""


def test_the_changelog_speaks_of_what_is_not_released_yet() -> None:
    assert re.search(r"^## Unreleased\b.*\n(?:\s*\n)*- \S", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


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


def readme_commands() -> list[str]:
    """The lines of the fenced sh blocks, continued lines joined, prompts and comments off."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.strip() and not line.startswith("#")]


def goals() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_goal_in_the_readme_exists_and_the_two_commands_are_there() -> None:
    named = {goal for line in readme_commands() for goal in re.findall(r"\bmake ([a-z][\w-]*)", line)}
    assert {"run", "test"} <= named
    assert named - goals() == set()


def test_every_rig_command_in_the_readme_exists() -> None:
    from rig.front.cli import main

    named = {verb for line in readme_commands() for verb in re.findall(r"(?:^|[\s/;&'\"])rig ([a-z][\w-]*)", line)}
    assert named, "the README names no rig command"
    assert named - set(getattr(main, "commands", {})) == set()


def test_what_ci_runs_is_what_the_readme_tells_people_to_run() -> None:
    scripts = sorted((ROOT / ".ci").iterdir())
    assert ["as-user", "check", "run"] == [path.name for path in scripts]
    lines = [line for path in scripts for line in path.read_text().splitlines() if not line.startswith("#")]
    assert re.findall(r"\bmake ([a-z]\S*)", "\n".join(lines)) == ["test"]
    for path in (*scripts, ROOT / "bootstrap.sh"):
        assert path.stat().st_mode & 0o111, path
