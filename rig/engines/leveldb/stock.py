"""Look at a database with the guest's LevelDB, through its binding for Python.

LevelDB has no check of its own: everything is read with checksums verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rig.engines.keyvalue import rows_text, spaces_of
from rig.engines.stock import PYTHON, PYTHON_FILES
from rig.workloads.operations import Table

__all__ = ["FILES", "PACKAGES", "rows_text", "script"]

PACKAGES: Sequence[str] = ()
FILES: Sequence[str] = (*PYTHON_FILES, "usr/lib/python3/dist-packages/plyvel/*.*")
_SCRIPT = """\
{python}
rows() {{
    python - {spaces} << 'END'
import sys, plyvel

database = plyvel.DB(".", create_if_missing=True, paranoid_checks={paranoid}, write_buffer_size={write_buffer_size})
for space in sys.argv[1:]:
    print(space)
    prefix = space.encode() + b"\\0"
    for key, value in database.iterator(prefix=prefix, verify_checksums=True):
        print(key[len(prefix) :].decode(), value.decode())
END
}}
"""


def script(tables: Sequence[Table], settings: Mapping[str, str]) -> str:
    """Return lines of shell that define `rows`."""
    _, *spaces = spaces_of(tables)
    return _SCRIPT.format(
        python=PYTHON, spaces=" ".join(spaces), paranoid=settings["checks"] == "paranoid",
        write_buffer_size=settings["write_buffer_size"],
    )  # fmt: skip
