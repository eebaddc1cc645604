"""Where the programs of MariaDB are, and where a server keeps files outside the database."""

from __future__ import annotations

import hashlib
import os
import tempfile

PROGRAM = "/usr/sbin/mariadbd"
# The statements that make the system tables.
TABLES = "/usr/share/mariadb/mariadb_system_tables.sql"


def home() -> str:
    """Return a folder for files outside the database; make it if it is missing."""
    return _make(os.path.join(tempfile.gettempdir(), f"rig-mariadb-{os.getuid()}"))


def beside(folder: str) -> str:
    """Return the folder for a server's socket and temporary files; its name is short, and the same each time."""
    return _make(f"{home()}/{hashlib.blake2b(folder.encode(), digest_size=4).hexdigest()}")


def identity() -> list[str]:
    """Return the argument without which a server refuses to run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []


def _make(path: str) -> str:
    os.makedirs(path, exist_ok=True)
    return path
