"""Look at a database with SQLite's own shell, or with Python's module where the shell is not installed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from rig.engines.sql import rows_text
from rig.workloads.operations import Table

__all__ = ["FILES", "PACKAGES", "rows_text", "script"]

PACKAGES: Sequence[str] = ("sqlite3",)
FILES: Sequence[str] = ()
_FILE = "test.db"
_PYTHON = "import sqlite3, sys; [print(*row, sep='|') for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])]"
_SCRIPT = """\
sql() {{
    if command -v sqlite3 > /dev/null; then sqlite3 -list {file} "$1"; else python3 -c {python} {file} "$1"; fi
}}
check() {{
    echo "PRAGMA integrity_check: $(sql 'PRAGMA integrity_check' 2>&1)"
}}
rows() {{
{rows}
}}
"""


def script(tables: Sequence[Table], settings: Mapping[str, str]) -> str:  # noqa: ARG001 - the files say all
    """Return lines of shell that define `check` and `rows`."""
    rows = "\n".join(f"    echo {table.name}; sql 'SELECT * FROM {table.name} ORDER BY id'" for table in tables)
    return _SCRIPT.format(file=_FILE, python=shlex.quote(_PYTHON), rows=rows)
