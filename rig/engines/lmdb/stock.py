"""Look at an environment with LMDB's own tools; the engine has no check, and a copy with compaction comes nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.engines.keyvalue import pairs
from rig.workloads.operations import Content, Table

__all__ = ["PACKAGES", "TOOL", "rows_text", "script"]

PACKAGES: Sequence[str] = ("lmdb-utils",)
TOOL = "mdb_dump"
_SCRIPT = """\
echo "mdb_copy -c: $(mdb_copy -c . 2>&1 > /dev/null && echo ok)"
rows() {{
{rows}
}}
"""
# The lines between the header and the end are keys and values, each after a blank.
_ROWS = "    echo {name}; mdb_dump -p -s {name} . | sed -n 's/^ //p'"


def script(tables: Sequence[Table]) -> str:
    """Return lines of shell that copy the environment and define `rows`."""
    return _SCRIPT.format(rows="\n".join(_ROWS.format(name=table.name) for table in tables))


def rows_text(tables: Sequence[Table], content: Content) -> str:
    """Return a content as `rows` prints it."""
    return "".join(f"{line}\n" for line in _lines(tables, content))


def _lines(tables: Sequence[Table], content: Content) -> Iterator[str]:
    for table in tables:
        yield table.name
        for pair in pairs(content.get(table.name, {})):
            yield from (text.decode().replace("\\", "\\\\") for text in pair)
