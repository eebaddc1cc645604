"""Build the wheel and the sdist as from a clone or an archive, away from the tree under test."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 300
_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def clone(folder: Path) -> Path:
    """Copy the files that git tracks or would add, because a build leaves folders behind and picks up their files."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = [name for name in _output(listing, ROOT).split("\0") if name]
    for name in names:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            target.write_bytes(source.read_bytes())
    return folder


def wheel(source: Path, folder: Path) -> Path:
    """Build the wheel of a source tree into an empty folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    _output([*pip, "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", "."], source)
    (found,) = folder.glob("*.whl")
    return found


def from_sdist(source: Path, folder: Path) -> Path:
    """Build the sdist of a source tree and return the tree that it unpacks to."""
    folder.mkdir()
    _output([sys.executable, "-c", _SDIST, str(folder)], source)
    (archive,) = folder.glob("*.tar.gz")
    # tar, because Python's tarfile warns without a filter from 3.12 on and has no filters before 3.11.4.
    _output(["tar", "-x", "-f", str(archive)], folder)
    return folder / archive.name.removesuffix(".tar.gz")


def contents(built: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(built) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _output(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout
