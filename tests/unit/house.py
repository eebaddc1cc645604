"""The source tree for the house rules: tracked files, modules, and their imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Folders of the repository; `rig/` links to the others, so that a wheel has one top-level package.
PACKAGES = ("analysis", "faults", "rig")


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files that git tracks or the next `git add` would add, so the rules hold before a commit too."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    found = (ROOT / name for name in sorted(set(listing.split("\0"))) if name)
    return tuple(path for path in found if path.is_file())


def modules() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES]


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] in {"rig", "tests"} else ("rig", *parts)).removesuffix(".__init__")


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def imports(path: Path, tree: ast.Module | None = None) -> Iterator[tuple[str, bool, int]]:
    """Yield (imported module, whether inside, line); `from a import b` is `a.b` if that is a module.

    An import is inside if importing the module does not run it: in a function, or in a block for type checkers only.
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
    """A block with an `else` does not count, because the `else` would run."""
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


def failures(lines: Iterable[str]) -> str:
    return "\n".join(lines)
