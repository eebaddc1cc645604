"""Where the programs of PostgreSQL are, where it keeps files outside the database, and which user runs it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from glob import glob
from typing import Any

# A server refuses to run as root. The user postgres is made by a script of Debian's package, which did not run.
_NOBODY = 65534
_PROGRAMS = "/usr/lib/postgresql/*/bin"
_LIMIT_S = 600


@cache
def program(name: str) -> str:
    """Return the path of a program of the newest PostgreSQL here; raise FileNotFoundError if it is missing."""
    paths = sorted(glob(f"{_PROGRAMS}/{name}"), key=lambda path: float(path.split("/")[-3]))
    if not paths:
        raise FileNotFoundError(f"no {_PROGRAMS}/{name}; PostgreSQL is not installed")
    return paths[-1]


@cache
def home() -> str:
    """Return a folder for files outside the database, which the server may write to; make it if it is missing."""
    return _own_folder(os.path.join(tempfile.gettempdir(), f"rig-postgresql-{os.getuid()}"))


def sockets(folder: str) -> str:
    """Return the folder for the socket of a cluster's server; its name is short, and the same each time."""
    return _own_folder(f"{home()}/{hashlib.blake2b(folder.encode(), digest_size=4).hexdigest()}")


def identity() -> dict[str, Any]:
    """Return the user of the server, in words of `subprocess.Popen`; empty if we are not root."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if _is_root() else {}


def run(command: list[str]) -> None:
    """Run a program as the user of the server; raise RuntimeError with its output if it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=home(),
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"}, timeout=_LIMIT_S, check=False, **identity(),
    )  # fmt: skip
    if done.returncode:
        words = " ".join(done.stdout.decode(errors="replace").split())
        raise RuntimeError(f"{command[0]} ended with exit code {done.returncode}: {words}")


def _own_folder(path: str) -> str:
    """Return the path of a folder of the server's user; make it if it is missing."""
    if not os.path.isdir(path):
        os.mkdir(path)
        if _is_root():
            os.chown(path, _NOBODY, _NOBODY)
    return path


def _is_root() -> bool:
    return os.geteuid() == 0
