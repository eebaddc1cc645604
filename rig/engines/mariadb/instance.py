"""The data directory of a new database, made once and then copied, and the server that runs on it.

A machine makes the directory before it is saved, with the first orders that it carries out, so no recording makes one.
It has the system tables, as mariadb-install-db makes them, and no accounts.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping

from rig.engines.mariadb import options, place
from rig.engines.mariadb.client import MariaConnection
from rig.engines.server import Server, copy_durably

# Below the directory of a database: the file system may have made a folder of its own there.
FOLDER = "data"
DATABASE = "rig"
# Without this file a server finds no database.
_MARK = "ibdata1"
_READY = b"mariadbd: ready for connections"
_GRAVE = re.compile(r"(?<=\[ERROR\] ).*|.*(?:Assertion|got signal|Fatal).*")
_LIMIT_S = 300


def exists(folder: str) -> bool:
    """Return whether there is a data directory at this place."""
    return os.path.exists(f"{folder}/{_MARK}")


def make(folder: str) -> None:
    """Put a new data directory at a place; it is durable, and either whole or not there."""
    copy_durably(_original(), folder)


def start(folder: str, given: Mapping[str, str]) -> Server:
    """Return a server on a data directory, with these variables; raise ServerDown with the server's own words."""
    return Server(_command(folder, given), folder, _READY, _GRAVE)


def connect(folder: str) -> MariaConnection:
    """Return a connection to the database on the server of a data directory."""
    connection = MariaConnection(_socket(folder))
    connection.execute(f"USE {DATABASE}")
    return connection


def _socket(folder: str) -> str:
    return f"{place.beside(folder)}/socket"


def _command(folder: str, given: Mapping[str, str]) -> list[str]:
    beside = place.beside(folder)
    # Temporary files are not at stake, so they are not on the recorded disk.
    places = {
        "datadir": folder, "socket": _socket(folder), "pid_file": f"{beside}/pid", "tmpdir": beside,
        "innodb_temp_data_file_path": f"{beside}/ibtmp1:3M:autoextend",
    }  # fmt: skip
    return [place.PROGRAM, "--no-defaults", *place.identity(), *options.arguments({**given, **places})]


def _original() -> str:
    """Return the data directory that is copied; make it if it is not there."""
    folder = f"{place.home()}/original"
    if not exists(folder):
        new = f"{folder}.new"
        shutil.rmtree(new, ignore_errors=True)
        os.mkdir(new)
        _bootstrap(new)
        # With this option a shutdown leaves nothing for the next start to do.
        server = start(new, {**options.variables({options.SETTING: "default"}), "innodb_fast_shutdown": "0"})
        connection = MariaConnection(_socket(new))
        connection.execute(f"CREATE DATABASE {DATABASE}")
        connection.close()
        server.stop(signal.SIGTERM)
        os.rename(new, folder)
    return folder


def _bootstrap(folder: str) -> None:
    """Make the system tables; raise RuntimeError with the server's output if that fails."""
    with open(place.TABLES, encoding="utf-8") as file:
        statements = f"CREATE DATABASE mysql;\nUSE mysql;\n{file.read()}"
    command = [*_command(folder, options.variables({options.SETTING: "default"})), "--bootstrap"]
    done = subprocess.run(
        command, input=statements.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_LIMIT_S,
        check=False,
    )  # fmt: skip
    if done.returncode:
        words = " ".join(done.stdout.decode(errors="replace").split())
        raise RuntimeError(f"{command[0]} --bootstrap ended with exit code {done.returncode}: {words[-1000:]}")
