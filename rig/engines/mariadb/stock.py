"""Look at a database with the guest's server, which has no network, reads its statements from a file, and shuts down.

CHECK TABLE says what is wrong in the server's log. The server has the variables of the run, because they say how it
recovers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from rig.engines.mariadb import instance, options, place, statements
from rig.engines.sql import rows_text
from rig.workloads.operations import Table

__all__ = ["FILES", "PACKAGES", "rows_text", "script"]

PACKAGES: Sequence[str] = ()
_PROGRAM = place.PROGRAM.lstrip("/")
FILES: Sequence[str] = (_PROGRAM, "usr/share/mariadb/english/*", "usr/share/mariadb/charsets/*")
# A file of statements ends at the first error, and the server would run on: the error is written to a file.
_SCRIPT = """\
rows() {{
    output=$(mktemp -d "$work/output.XXXXXX") && sed "s|OUTPUT|$output|g" > "$output/sql" << 'END' || return
{checks}
BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN GET DIAGNOSTICS CONDITION 1 @why = MESSAGE_TEXT; \
SELECT @why INTO OUTFILE 'OUTPUT/why'; END; {selects}END;
SHUTDOWN;
END
    # The server refuses to run as root unless told to.
    [ "$(id -u)" = 0 ] && set -- --user=root || set --
    engine {program} --no-defaults "$@" --basedir="$work/engine/usr" --datadir="$PWD/{folder}" --tmpdir="$output" \\
        --socket="$output/socket" --pid-file="$output/pid" --init-file="$output/sql" \\
        --innodb-temp-data-file-path="$output/ibtmp1:3M:autoextend" \\
        {arguments} > "$output/log" 2>&1 || {{ echo "exit code $?"; tail -n 5 "$output/log"; }} >&2
    grep ERROR "$output/log" >&2
    [ ! -e "$output/why" ] || cat "$output/why" >&2
    for table in {tables}; do
        echo "$table"
        cat "$output/$table"
    done
}}
"""


def script(tables: Sequence[Table], settings: Mapping[str, str]) -> str:
    """Return lines of shell that define `rows`."""
    names = {table.name: f"{instance.DATABASE}.{statements.SQL.quote_name(table.name)}" for table in tables}
    selects = (
        f"SELECT * FROM {name} ORDER BY id INTO OUTFILE 'OUTPUT/{table}' FIELDS TERMINATED BY '|' ESCAPED BY ''; "
        for table, name in names.items()
    )
    return _SCRIPT.format(
        program=_PROGRAM, folder=instance.FOLDER, tables=" ".join(names), selects="".join(selects),
        checks="\n".join(f"CHECK TABLE {name} EXTENDED;" for name in names.values()),
        arguments=shlex.join(options.arguments(options.variables(settings))),
    )  # fmt: skip
