"""The user's programs: an ELF program for x86-64, static or with the libraries of the guest, or a script.

A program is kept in the cache under its digest, so that a run can be replayed after the user's file has changed. A
program that the guest could not start is refused before a machine is started.
"""

from __future__ import annotations

import re
from pathlib import Path

from rig.contract.errors import UsageError
from rig.engines.builds import ImageContents, Library, require_in_guest
from rig.engines.program.driver import digest_name
from rig.engines.program.spec import SPEC
from rig.host.cache import require_cache
from rig.host.elf import ElfError, executable
from rig.host.libraries import keep, stored_library

_SCRIPT = b"#!"
# The interpreter of a script: its path, or the name under which env finds it.
_INTERPRETER = re.compile(r"\s*(?:/usr/bin/env\s+([\w.+-]+)|(/[\w./+-]+))(?:\s.*)?", re.ASCII)
_REMEDY = "name the Debian package that has it in a recipe: --image recipe.toml"


def library(word: str) -> Library:
    """Return the program that the user names; raise UsageError for one that the guest could not start."""
    require_cache()
    try:
        content = Path(word).read_bytes()
    except OSError as error:
        raise UsageError(f"the program {word} cannot be read: {error.strerror}") from None
    _require_program(word, content)
    return keep(SPEC.name, digest_name(content), content)


def library_of_run(wanted: str, word: str | None) -> Library | None:
    """Return the program that a run names `wanted`; `word` is the program that the user names, or None."""
    if word is not None:
        given = library(word)
        if given.name != wanted:
            raise UsageError(f"the run was made with {wanted}; {word} is another program, {given.name}")
        return given
    return stored_library(SPEC.name, wanted, "program", digest_name)


def require_loadable(library: Library, guest: ImageContents) -> None:
    """Raise UsageError if a program needs more than this guest has."""
    content = library.path.read_bytes()
    if not content.startswith(_SCRIPT):
        facts = executable(content)
        require_in_guest("the program", facts.needed, facts.glibc, guest)
    elif not guest.has(path := _interpreter(content)):
        raise UsageError(f"the program is a script for {path}, which the guest does not have; {_REMEDY}")


def _require_program(word: str, content: bytes) -> None:
    if content.startswith(_SCRIPT):
        if not _interpreter(content):
            line = content.splitlines()[0].decode(errors="replace")
            raise UsageError(f"{word} is a script whose first line names no interpreter: {line!r}")
        return
    try:
        facts = executable(content)
    except ElfError as error:
        raise UsageError(f"{word} is neither a script nor a program: {error}") from None
    if not facts.is_x86_64:
        raise UsageError(f"{word} is a program for another machine; the guest is x86-64")


def _interpreter(content: bytes) -> str:
    """Return the path of a script's interpreter, empty if its first line names none."""
    match = _INTERPRETER.fullmatch(content.splitlines()[0].removeprefix(_SCRIPT).decode(errors="replace"))
    if not match:
        return ""
    return f"/usr/bin/{match[1]}" if match[1] else match[2]
