"""The cluster of a new database, made once by initdb and then copied, and the server that runs on it.

A machine makes it before it is saved, with the first orders that it carries out, so no recording has an initdb. It has
one database, and checksums of all pages. The other two databases are templates for further ones, and are dropped: each
has as many files as the database in use.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Mapping

from rig.engines.postgresql import options, place
from rig.engines.postgresql.libpq import PostgresConnection
from rig.engines.server import Server, copy_durably

# Below the directory of a database: a server must own the folder of its cluster.
FOLDER = "cluster"
DATABASE = USER = "postgres"
# Without this file a server finds no cluster.
_MARK = "PG_VERSION"
_INITDB = (
    "--username", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--data-checksums", "--wal-segsize=1",
    "--no-sync", "--no-instructions",
)  # fmt: skip
_READY = b"database system is ready to accept connections"
# Levels of log lines that say why a server did not start or has ended.
_GRAVE = re.compile(r"^(?:FATAL|PANIC):.*")
# With these a checkpoint removes the files of the log that it no longer needs, and keeps none for later use.
_FRUGAL = {"wal_recycle": "off", "min_wal_size": "2MB", "max_wal_size": "2MB", "fsync": "off"}
_STATEMENTS = (
    "CREATE EXTENSION amcheck SCHEMA pg_catalog",
    "ALTER DATABASE template1 IS_TEMPLATE false",
    "DROP DATABASE template1",
    "ALTER DATABASE template0 IS_TEMPLATE false",
    "DROP DATABASE template0",
    # initdb leaves files behind for future log: begin and finish each of them.
    *("CHECKPOINT", "SELECT pg_switch_wal()") * 10,
    "CHECKPOINT",
)


def exists(folder: str) -> bool:
    """Return whether there is a cluster in a folder."""
    return os.path.exists(f"{folder}/{_MARK}")


def make(folder: str) -> None:
    """Put a new cluster into a folder; it is durable, and either whole or not there."""
    copy_durably(_original(), folder)


def start(folder: str, parameters: Mapping[str, str]) -> Server:
    """Return a server on a cluster, once it answers; raise ServerDown with its own words if it does not start."""
    given = {**parameters, "unix_socket_directories": place.sockets(folder)}
    command = [place.program("postgres"), "-D", folder]
    command += [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
    return Server(command, place.home(), _READY, _GRAVE, place.identity())


def connect(folder: str) -> PostgresConnection:
    """Return a connection to the server of a cluster."""
    return PostgresConnection(
        host=place.sockets(folder), user=USER, dbname=DATABASE, options="-c client_min_messages=error"
    )


def _original() -> str:
    """Return the folder of the cluster that is copied; make it if it is not there."""
    folder = f"{place.home()}/cluster"
    if not exists(folder):
        new = f"{folder}.new"
        shutil.rmtree(new, ignore_errors=True)
        place.run([place.program("initdb"), *_INITDB, "--pgdata", new])
        server = start(new, options.parameters({options.SETTING: "default", **_FRUGAL}))
        connection = connect(new)
        for statement in _STATEMENTS:
            connection.execute(statement)
        connection.close()
        server.stop(signal.SIGINT)
        os.rename(new, folder)
    return folder
