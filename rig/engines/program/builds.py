"""The user's programs: an ELF program for x86-64, static or with the libraries of the guest, or a script.

A program is kept in the cache under its digest, so that a run can be replayed after the user's file has changed. What
the guest could not start is refused before a machine is started.
"""

from __future__ import annotations

from pathlib import Path

from rig.cache import require_cache
from rig.contract.errors import UsageError
from rig.engines.builds import Library, require_in_guest
from rig.engines.elf import ElfError, executable
from rig.engines.program.driver import digest_name
from rig.engines.program.spec import SPEC
from rig.libraries import keep, kept

# What the guest has to run scripts with; Python 3.13 and busybox's shell, without further packages.
_INTERPRETERS = ("/bin/sh", "/usr/bin/python3", "/usr/bin/env python3")
_SCRIPT = b"#!"


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
    return kept(SPEC.name, wanted, "program", digest_name)


def require_loadable(found: Library, packages: str) -> None:
    """Raise UsageError if a program needs more than a guest with these packages has."""
    content = found.path.read_bytes()
    if not content.startswith(_SCRIPT):
        facts = executable(content)
        require_in_guest("the program", facts.needed, facts.glibc, packages)


def _require_program(word: str, content: bytes) -> None:
    if content.startswith(_SCRIPT):
        line = content.splitlines()[0].removeprefix(_SCRIPT).decode(errors="replace").strip()
        if line not in _INTERPRETERS:
            choices = ", ".join(f"#!{one}" for one in _INTERPRETERS)
            raise UsageError(f"{word} is a script for {line!r}, which the guest does not have; there are: {choices}")
        return
    try:
        facts = executable(content)
    except ElfError as error:
        raise UsageError(f"{word} is neither a script nor a program: {error}") from None
    if not facts.is_x86_64:
        raise UsageError(f"{word} is a program for another machine; the guest is x86-64")
