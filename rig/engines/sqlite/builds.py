"""Builds of SQLite that the user names: a shared library on this machine, or `apsw==VERSION` from PyPI.

In either case the one file that the guest needs is kept in the cache under its digest (see
`rig.engines.sqlite.library` for the names), so that a run can be replayed after the user's file is gone. pip fetches a
wheel for the guest's Python, once, and checks it against the index; its digest is kept next to it. A library that the
guest could not load is refused before a machine is started.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from rig.contract.errors import StoreError, UsageError
from rig.engines.builds import ImageContents, Library, require_in_guest
from rig.engines.sqlite.library import APSW, FUNCTIONS, SHARED, name
from rig.engines.sqlite.spec import SPEC
from rig.host.cache import require_cache
from rig.host.elf import ElfError, shared_library
from rig.host.libraries import keep, stored_library
from rig.host.wheels import wheel

_APSW_WORD = re.compile(r"apsw==(\d+(?:\.\d+)*(?:\.post\d+)?)")
_EXTENSION = re.compile(r"apsw/__init__\.[^/]+\.so")


def library(word: str) -> Library:
    """Return the build that the user names, fetched if necessary.

    Raise UsageError for a file that is not a SQLite library or not for the guest's machine, HostError if PyPI does not
    answer or the cache cannot be written.
    """
    require_cache()
    if match := _APSW_WORD.fullmatch(word):
        return _keep(APSW, _extension(wheel("apsw", match[1])))
    if "==" in word:
        raise UsageError(
            f"{word!r} is not a build of SQLite; name a shared library, or a version such as apsw==3.51.3.0"
        )
    try:
        content = Path(word).read_bytes()
    except OSError as error:
        raise UsageError(f"the SQLite library {word} cannot be read: {error.strerror}") from None
    _require_sqlite(word, content)
    return _keep(SHARED, content)


def library_of_run(wanted: str, word: str | None) -> Library | None:
    """Return the build that a run calls `wanted`; `word` is the build that the user names, or None."""
    if word is not None:
        given = library(word)
        if given.name != wanted:
            made_with = f"with {wanted}" if wanted else "with the SQLite of the guest"
            raise UsageError(f"the run was made {made_with}; {word} is another build, {given.name}")
        return given
    if not wanted:
        return None
    kind = wanted[: wanted.index("-") + 1]
    return stored_library(SPEC.name, wanted, "SQLite", lambda content: name(kind, content))


def require_loadable(library: Library, guest: ImageContents) -> None:
    """Raise UsageError if a build needs more than this guest has."""
    facts = shared_library(library.path.read_bytes())
    require_in_guest("the SQLite library", facts.needed, facts.glibc, guest)


def _keep(kind: str, content: bytes) -> Library:
    return keep(SPEC.name, name(kind, content), content)


def _require_sqlite(word: str, content: bytes) -> None:
    try:
        facts = shared_library(content)
    except ElfError as error:
        raise UsageError(f"{word} is not a shared library: {error}") from None
    if not facts.is_x86_64:
        raise UsageError(f"{word} is a library for another machine; the guest is x86-64")
    missing = sorted(set(FUNCTIONS) - facts.defined)
    if missing:
        raise UsageError(f"{word} is not a SQLite library: it lacks {', '.join(missing[:3])}")


def _extension(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = [member for member in archive.namelist() if _EXTENSION.fullmatch(member)]
            content = archive.read(member)
        facts = shared_library(content)
    except (zipfile.BadZipFile, ValueError, ElfError) as error:
        raise StoreError(f"{path} does not have the layout of an APSW wheel: {error}") from None
    if not facts.is_x86_64 or "PyInit_apsw" not in facts.defined:
        raise StoreError(f"{path} holds no APSW extension module for x86-64")
    return content
