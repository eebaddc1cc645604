"""The house rules: what stands where, how long things get, what is documented, what is tracked."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.house import ROOT, failures, modules, python_files, tracked_files, tree_of

MODULE_LINES_MAX = 400
MODULES_OF_A_FOLDER_MAX = 14
FUNCTION_LINES_MAX = 60
RELEASE_NOTES_LINES_MAX = 40
CHANGE_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

# Written in pieces, so that this file is not the first to break the rule.
MACHINE_PATHS = re.compile(r"(?<![\w.~$}])/(?:work|farm|root|home/\w+|Users/\w+)" + "/")
_REGISTRY_NAMES = "pypi|pythonhosted|npmjs|crates|rubygems|proxy[.]golang|repo1?[.]maven|deb[.]debian|archive[.]ubuntu"
REGISTRIES = re.compile(rf"(?:{_REGISTRY_NAMES})[.](?:org|com|io|apache)")
GENERATED = re.compile(
    r"(?:^|/)(?:__pycache__|\.venv|\.venv-docs|\.mypy_cache|\.ruff_cache|\.pytest_cache|\.hypothesis|\.vagrant|build|runs)/"
    r"|\.egg-info(?:/|$)|\.(?:pyc|so|o|img|qcow2|cpio|tmp|orig|rej|log)$"
)


# What documents claim is about engines and file systems by their names, and the experiments that check it use them.
DOCUMENTS = "analysis/documents/"
# Words of an engine, a file system or a document -> where they may appear, besides tests, documentation and lists of
# engines.
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
    ),
    r"\bext[234]|e2fsck|dumpe2fs|jbd2|dioread": (
        "rig/filesystems/ext.py",
        "rig/filesystems/extblocks.py",
        "analysis/dossiers/",
    ),
    r"f2fs|fsync_mode": ("rig/filesystems/f2fs.py", "analysis/dossiers/"),
    r"\bnfs": ("rig/filesystems/nfs.py", "analysis/dossiers/"),
    # What users type stands in the help.
    r"(?-i:\bS[0-4](?:-\d+)?\b)|\b00\d_[0-9a-f]{16}": ("rig/front/verbs/",),
}
# The guest's own root disk, which nothing is recorded on, is made as the image's recipe says.
OF_THE_IMAGE = ("rig/images/image.py", "vm-images/")
ANYWHERE = (
    "tests/", "docs/", ".github/", "README.md", "AGENTS.md", "BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md",
    "pyproject.toml",
    "requirements.lock", "bootstrap.sh", DOCUMENTS, *OF_THE_IMAGE,
)  # fmt: skip


def strangers(path: str, text: str) -> list[str]:
    """Return the lines that name an engine, a file system or a document outside its package, module or dossier."""
    return [
        f"{path}:{number} {line.strip()[:80]}"
        for words, places in OWN_WORDS.items()
        if not path.startswith(places + ANYWHERE)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(words, line, re.IGNORECASE)
    ]


def test_no_engine_no_file_system_and_no_document_is_named_outside_its_own_place() -> None:
    found = []
    for path in tracked_files():
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
        ("rig/images/recipes.py", "if word == 'f2fs':", True),
        ("rig/speed/session.py", 'if name == "S3":', True),
        ("rig/engines/sqlite/driver.py", "see S0-12", True),
        ("rig/planning/cuts.py", "s1 = states[0]", False),
        ("analysis/documents/claim.py", "S0", False),
        ("README.md", "SQLite on ext4", False),
    ],
)
def test_a_word_out_of_place_is_noticed(path: str, text: str, is_stranger: bool) -> None:
    assert is_stranger is bool(strangers(path, text))


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


def test_a_folder_has_few_enough_modules_to_read_their_names() -> None:
    rooms = Counter(
        str(path.parent.relative_to(ROOT))
        for path in (*modules(), *(path for path in python_files() if path.is_relative_to(ROOT / "tests" / "unit")))
        if path.name != "__init__.py"
    )
    assert (
        failures(
            f"{room} has {count} modules, at most {MODULES_OF_A_FOLDER_MAX}: make it two rooms"
            for room, count in sorted(rooms.items())
            if count > MODULES_OF_A_FOLDER_MAX
        )
        == ""
    )


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
    for path in tracked_files():
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
    names = [str(path.relative_to(ROOT)) for path in tracked_files()]
    assert failures([name for name in names if GENERATED.search(name)]) == ""
    big = [
        f"{path.relative_to(ROOT)} {path.stat().st_size >> 10} KiB"
        for path in tracked_files()
        if path.stat().st_size > 1 << 20
    ]
    assert failures(big) == ""


def test_guest_image_recipes_are_data_and_no_package() -> None:
    assert [path for path in tracked_files() if path.parent.name == "vm-images" and path.suffix == ".py"] == []


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
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["dask"] + extras["dev"]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line)[0]).lower() for line in wanted}
    assert names - pinned == set()
    # Without its marker a package without a wheel for some Python could not be installed there at all.
    markers = {line.partition(";")[2].strip().replace("'", '"') for line in wanted if ";" in line}
    marked = {match[1] for block in pins if (match := re.match(r"\S+ ; (.*?) \\\n", block))}
    assert markers == marked
