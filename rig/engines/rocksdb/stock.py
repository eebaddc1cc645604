"""Look at a database with the guest's RocksDB, through its binding for Python.

RocksDB has no check of its own: everything is read, with checksums verified. It has the options of the run, because
they say what is left out of a damaged log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rig.engines.keyvalue import rows_text, spaces_of
from rig.engines.rocksdb import options
from rig.engines.stock import PYTHON, PYTHON_FILES
from rig.workloads.operations import Table

__all__ = ["FILES", "PACKAGES", "rows_text", "script"]

PACKAGES: Sequence[str] = ()
FILES: Sequence[str] = (*PYTHON_FILES, "usr/lib/python3/dist-packages/rocksdict/*.*")
# A folder of the guest, which an ordinary user cannot write to: without it, the log for people is in the database.
_LOG_FOLDER = "db_log_dir"
_SCRIPT = """\
{python}
mkdir -p "$work/options" && cat > "$work/options/OPTIONS-000001" << 'END'
{options}END
rows() {{
    python - "$work/options" {spaces} << 'END'
import os, sys, rocksdict

of_database, of_families = rocksdict.Options.load_latest(sys.argv[1])
families = rocksdict.Rdict.list_cf(".", of_database) if os.path.exists("CURRENT") else ["default"]
database = rocksdict.Rdict(".", of_database, {{name: of_families["default"] for name in families}})
for space in sys.argv[2:]:
    print(space)
    if space in families:
        iterator = database.get_column_family(space).iter()
        iterator.seek_to_first()
        while iterator.valid():
            print(iterator.key().decode(), iterator.value().decode())
            iterator.next()
        iterator.status()
END
}}
"""


def script(tables: Sequence[Table], settings: Mapping[str, str]) -> str:
    """Return lines of shell that define `rows`."""
    own = {name: value for name, value in settings.items() if name not in {options.SETTING, _LOG_FOLDER}}
    _, given = options.mode(settings[options.SETTING])
    _, *spaces = spaces_of(tables)
    return _SCRIPT.format(python=PYTHON, options=options.text({**own, **given}), spaces=" ".join(spaces))
