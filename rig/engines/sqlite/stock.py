"""Look at a database with SQLite's own shell, or with Python's module where the shell is not installed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rig.workloads.operations import Content, Table

__all__ = ["PACKAGES", "TOOL", "rows_text", "script"]

PACKAGES: Sequence[str] = ("sqlite3",)
TOOL = "python3"
_FILE = "test.db"
_PYTHON = "import sqlite3, sys; [print(*row, sep='|') for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])]"
_SCRIPT = """\
sql() {{
    if command -v sqlite3 > /dev/null; then sqlite3 -list {file} "$1"; else python3 -c {python} {file} "$1"; fi
}}
echo "PRAGMA integrity_check: $(sql 'PRAGMA integrity_check' 2>&1)"
rows() {{
{rows}
}}
"""


def script(tables: Sequence[Table]) -> str:
    """Return lines of shell that check the database and define `rows`."""
    rows = "\n".join(f"    echo {table.name}; sql 'SELECT * FROM {table.name} ORDER BY id'" for table in tables)
    return _SCRIPT.format(file=_FILE, python=shlex.quote(_PYTHON), rows=rows)


def rows_text(tables: Sequence[Table], content: Content) -> str:
    """Return a content as `rows` prints it."""
    return "".join(f"{line}\n" for line in _lines(tables, content))


def _lines(tables: Sequence[Table], content: Content) -> Iterator[str]:
    for table in tables:
        yield table.name
        yield from ("|".join(map(str, (key, *row))) for key, row in sorted(content.get(table.name, {}).items()))
