"""The cluster of a new database: made once by initdb, then copied.

A machine makes it before it is saved, with the first orders that it carries out, so no recording has an initdb. It has
one database, and checksums of all pages. The other two databases are templates for further ones, and are dropped: each
has as many files as the database in use.
"""

from __future__ import annotations

import os
import shutil
import signal

from rig.engines.postgresql import options, place
from rig.engines.postgresql.libpq import PostgresConnection
from rig.engines.postgresql.server import started
from rig.engines.server import copy_durably

# Below the directory of a database: a server must own the folder of its cluster.
FOLDER = "cluster"
DATABASE = USER = "postgres"
# Without this file a server finds no cluster.
_MARK = "PG_VERSION"
_INITDB = (
    "--username", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--data-checksums", "--wal-segsize=1",
    "--no-sync", "--no-instructions",
)  # fmt: skip
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


def connected(folder: str) -> PostgresConnection:
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
        server = started(new, options.parameters({options.SETTING: "default", **_FRUGAL}))
        connection = connected(new)
        for statement in _STATEMENTS:
            connection.execute(statement)
        connection.close()
        server.stop(signal.SIGINT)
        os.rename(new, folder)
    return folder
