"""Look at a cluster with the guest's server, as a single process without a network, which reads statements.

It refuses to run as root, who therefore becomes another user. `amcheck` says what is wrong in tables and indexes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from rig.engines.postgresql import cluster, options
from rig.engines.postgresql.driver import CATALOGUE, HEAPS, INDEXES
from rig.engines.sql import rows_text
from rig.workloads.operations import Table

__all__ = ["FILES", "PACKAGES", "rows_text", "script"]

PACKAGES: Sequence[str] = ()
FILES: Sequence[str] = (
    "usr/lib/postgresql/*/bin/postgres",
    "usr/lib/postgresql/*/lib/amcheck.so",
    "usr/share/postgresql/*/timezonesets/Default",
)
# The server prompts on standard output. Lines that do not come from COPY begin with a blank or a name.
_SCRIPT = """\
rows() {{
    if [ "$(id -u)" = 0 ]; then
        chown -R 65534:65534 "$work"
        as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    fi
    # It names a process of the guest; a process of this host may have the same number.
    rm -f {folder}/postmaster.pid
    engine "$(cd "$work/engine" && echo usr/lib/postgresql/*/bin/postgres)" --single -D "$PWD/{folder}" \\
        -c config_file=/dev/null {parameters} \\
        {database} > "$work/printed" 2> "$work/log" << 'END' || {{ echo "exit code $?"; tail -n 5 "$work/log"; }} >&2
{statements}
END
    grep -E '^(ERROR|FATAL|PANIC|WARNING)' "$work/log" >&2
    sed -e 's/^\\(backend> \\)*//' -e '/^[[:blank:]]/d' -e '/^PostgreSQL stand-alone/d' -e '/^$/d' "$work/printed"
}}
"""


def script(tables: Sequence[Table], settings: Mapping[str, str]) -> str:
    """Return lines of shell that define `rows`."""
    parameters = options.parameters(settings).items()
    lines = [f"COPY ({HEAPS}) TO STDOUT", INDEXES, CATALOGUE]
    for table in tables:
        lines += [f"COPY (SELECT '{table.name}') TO STDOUT"]
        lines += [f"COPY (SELECT * FROM {table.name} ORDER BY id) TO STDOUT (DELIMITER '|')"]
    return _SCRIPT.format(
        folder=cluster.FOLDER, database=cluster.DATABASE, statements="\n".join(lines),
        parameters=shlex.join([word for name, value in parameters for word in ("-c", f"{name}={value}")]),
    )  # fmt: skip
