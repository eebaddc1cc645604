"""Look at an environment with LMDB's own tools; the engine has no check, and a copy with compaction comes nearest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rig.engines.keyvalue import pairs
from rig.workloads.operations import Content, Table

__all__ = ["FILES", "PACKAGES", "rows_text", "script"]

PACKAGES: Sequence[str] = ("lmdb-utils",)
FILES: Sequence[str] = ()
_SCRIPT = """\
check() {{
    echo "mdb_copy -c: $(mdb_copy -c . 2>&1 > /dev/null && echo ok)"
}}
rows() {{
    names=$(mdb_dump -l .) || return
    for name in {names}; do
        echo "$name"
        # A table that never had a row does not exist. Keys and values are the lines that begin with a blank.
        ! echo "$names" | grep -qxF "$name" || mdb_dump -p -s "$name" . | sed -n 's/^ //p'
    done
}}
"""


def script(tables: Sequence[Table], settings: Mapping[str, str]) -> str:  # noqa: ARG001 - the files say all
    """Return lines of shell that define `check`, which copies the environment, and `rows`."""
    return _SCRIPT.format(names=" ".join(table.name for table in tables))


def rows_text(tables: Sequence[Table], content: Content) -> str:
    """Return a content as `rows` prints it."""
    return "".join(f"{line}\n" for line in _lines(tables, content))


def _lines(tables: Sequence[Table], content: Content) -> Iterator[str]:
    for table in tables:
        yield table.name
        for pair in pairs(content.get(table.name, {})):
            yield from (text.decode().replace("\\", "\\\\") for text in pair)
