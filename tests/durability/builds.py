"""Builds of SQLite with and without a bug: amalgamations from npm, patched or not, compiled once, and wheels from PyPI.

Downloads are pinned by SHA-256; sources and builds are kept in the user's cache. The name of a build tells its source
and its change, so another change is built again.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rig.contract.errors import HostError
from rig.engines.builds import Library
from rig.engines.sqlite import builds as libraries
from rig.host import processes
from rig.host.cache import cache_folder, lock
from rig.host.files import atomic_write

_FETCH_LIMIT_S = 300
_COMPILE_LIMIT_S = 600
_PATCH_LIMIT_S = 60


@dataclass(frozen=True)
class Amalgamation:
    """An npm package that contains the source of a SQLite release."""

    package: str
    package_sha256: str
    # The source itself, or an archive with it.
    member: str


AMALGAMATIONS = {
    "3.8.5": Amalgamation(
        "sqlite3@2.2.7",
        "6f5a8aaa6796fa161b597a469c62abda73a4c214e8a1a5da61dc769981ef0f09",
        "package/deps/sqlite-autoconf-3080500.tar.gz",
    ),
    "3.8.9": Amalgamation(
        "sqlite3@3.0.8",
        "286f34eef2b728142e42c1fc2c15323d189d97a1b6ceb4ac578a9e1615aeb84e",
        "package/deps/sqlite-autoconf-3080900.tar.gz",
    ),
    "3.53.2": Amalgamation(
        "better-sqlite3@12.11.1",
        "ebf0ed75a7a59dbcb3b24bbd014ef49d9f15bc328e4adcbf516f2a8fadfa2835",
        "package/deps/sqlite3/sqlite3.c",
    ),
}
# Version of APSW -> digests of its x86-64 wheels, one per CPython from 3.11 to 3.14.
WHEELS_SHA256 = {
    "3.51.2.0": (
        "6bfd910c308b356d3612f91fe0002500df4fbee7d5dd301a2a298d5a08a1b2bb",
        "8ae0a53b2e7638616e4f1c5cd33d97d5de604f5e76504cf3be5251a2d78b36c8",
        "064e00e09ffd1a14c75c8569dd4c8712c16a51ce00992e08a2fa468cbd286d53",
        "4f9a038fd671611afc7fdea5ef4a25fd527e9b06e46c3697db4a143ce7eea520",
    ),
    "3.51.3.0": (
        "5c9e7a16dcf3e474d6a696ce17b566a2d6964219b4d887c49c8d67562669b9bd",
        "97233fa1ee8811530f09989acb0ad99ab6b2ca8cae14baf8defe07897d39f6d1",
        "5f0c116efd1a5db0e94885313cc321a8f6e0c3dc7dcb21823d19bdc0c689cc0d",
        "3f9c0f193caad88b7247edc006d9b317a9f49cccc4221658b94c1acabc010dab",
    ),
}
# Changes of one release, each a bug or harmless (tests/durability/planting.py).
PLANTED = Path(__file__).with_name("planted")
PLANTED_IN = "3.53.2"
# All the builds that the tests use in a guest, in one template, because making a template takes longer than using it.
IN_THE_GUEST = (
    "3.8.5", "3.8.9", "apsw==3.51.2.0", "checkpoint-published-before-sync", "close-unsynced", "hot-rollback-unsynced",
    "twin-partial-checkpoint-synced",
)  # fmt: skip


def for_the_guest() -> dict[str, Library]:
    """Return the builds that the tests use in a guest, by the version, word or patch that names them."""
    return {word: _library(word) for word in IN_THE_GUEST}


def patch_build(patch: Path) -> Library:
    """Return a build with a change."""
    return libraries.library(str(shared_library(PLANTED_IN, patch)))


def shared_library(version: str, patch: Path | None = None) -> Path:
    """Return a shared library of a release, with a patch of `sqlite3.c` or without; compile it if the cache has none.

    Raise HostError if the patch does not apply.
    """
    words = [f"sqlite-{version}", AMALGAMATIONS[version].package_sha256[:16]]
    if patch:
        # The comment above the change is no part of it.
        words += [patch.stem, _sha256(patch.read_bytes().partition(b"--- a/")[2])[:16]]
    path = cache_folder() / "builds" / f"{'-'.join(words)}.so"
    with lock(path):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="building.") as scratch:
                _compile(source(version), patch, Path(scratch)).rename(path)
    return path


def source(version: str) -> Path:
    """Return the `sqlite3.c` of a release; fetch it if the cache has none."""
    release = AMALGAMATIONS[version]
    path = cache_folder() / "builds" / f"sqlite-{version}-{release.package_sha256[:16]}.c"
    with lock(path):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching.") as scratch:
                fetch = ["npm", "pack", "--silent", f"--pack-destination={scratch}", release.package]
                processes.run(fetch, timeout_s=_FETCH_LIMIT_S)
                (package,) = Path(scratch).glob("*.tgz")
                content = package.read_bytes()
            found = _sha256(content)
            words = f"npm has another {release.package} than the one that was looked at: {found}"
            assert release.package_sha256 == found, words
            atomic_write(path, _amalgamation(content, release.member))
    return path


def apsw_of_the_host(version: str) -> Path:
    """Return a folder to put on the path of this Python, with APSW and the SQLite inside it."""
    folder = cache_folder() / "builds" / f"apsw-{version}-{sys.implementation.cache_tag}"
    with lock(folder):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching.") as scratch:
                wanted = Path(scratch, "requirements")
                hashes = " ".join(f"--hash=sha256:{digest}" for digest in WHEELS_SHA256[version])
                wanted.write_text(f"apsw=={version} {hashes}\n")
                pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
                options = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--target={scratch}/apsw"]
                processes.run([*pip, *options, f"--requirement={wanted}"], timeout_s=_FETCH_LIMIT_S)
                Path(scratch, "apsw").rename(folder)
    return folder


def apply(patch: Path, code: Path) -> None:
    """Apply a patch to a copy of `sqlite3.c`; raise HostError if it does not fit or changes nothing."""
    before = code.read_bytes()
    # Below a repository git would look for the files at the top of that, find none, and say nothing.
    outside = {"GIT_CEILING_DIRECTORIES": os.path.realpath(code.parent.parent)}
    try:
        processes.run(["git", "apply", str(patch.absolute())], timeout_s=_PATCH_LIMIT_S, env=outside, cwd=code.parent)
    except HostError as error:
        raise HostError(f"{patch.name} does not apply to this release of SQLite; adapt it: {error}") from None
    if code.read_bytes() == before:
        raise HostError(f"{patch.name} changes nothing in this release of SQLite")


def _library(word: str) -> Library:
    if word.startswith("apsw"):
        return libraries.library(word)
    return (
        libraries.library(str(shared_library(word)))
        if word in AMALGAMATIONS
        else patch_build(PLANTED / f"{word}.patch")
    )


def _amalgamation(package: bytes, member: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        file = archive.extractfile(member)
        assert file
        content = file.read()
    if member.endswith(".c"):
        return content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        (name,) = [name for name in archive.getnames() if name.endswith("/sqlite3.c")]
        return _amalgamation(content, name)


def _compile(source: Path, patch: Path | None, scratch: Path) -> Path:
    code = scratch / "sqlite3.c"
    code.write_bytes(source.read_bytes())
    if patch:
        apply(patch, code)
    library = scratch / "sqlite.so"
    # Without -Bsymbolic, calls within this library could go to another SQLite that the Python process has loaded. Not
    # optimised: that would take three times as long, and the tests spend little of their time in these builds.
    flags = ["-shared", "-fPIC", "-O0", "-w", "-Wl,-Bsymbolic", "-DSQLITE_OMIT_LOAD_EXTENSION", "-DSQLITE_THREADSAFE=1"]
    processes.run(["gcc", *flags, "-o", str(library), str(code)], timeout_s=_COMPILE_LIMIT_S)
    return library


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
