"""The history: a folder of Parquet files, two for each night, and questions about all of them in SQL.

    scenarios/TIME-DIGEST.parquet   a row for each scenario, measured or not
    controls/TIME-DIGEST.parquet    a row for each control

A night is a run that was added. Its name is the time at which the run began and a digest of its manifest, so the same
run added twice is one night. Files are only added, so machines may share a folder that they synchronise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.analysis.history.baseline import Provenance, evidence_of
from rig.analysis.history.figures import Figures, figures
from rig.analysis.judging.outcome import Row, Summary
from rig.contract.errors import StoreError, UsageError
from rig.host.files import atomic_write

if TYPE_CHECKING:
    import duckdb

NOT_MEASURED = "not measured"
_SCENARIOS, _CONTROLS = "scenarios", "controls"


@dataclass(frozen=True)
class Night:
    """A run as the history knows it."""

    name: str
    began: datetime
    profile: str
    # The commit of the project under test, where CI says it; the version of the rig.
    commit: str
    rig: str
    summary: Summary
    failures: Mapping[str, str]


# What a row has before the figures and the evidence.
_OF_NIGHT = {"run": "str", "began": "time", "commit": "str", "rig": "str"}
_OF_SCENARIO = {
    "scenario": "str", "engine": "str", "filesystem": "str", "settings": "str", "fault": "str", "device": "str",
    "workload": "str", "is_sabotaged": "bool", "reasons": "str",
}  # fmt: skip
_OF_CONTROL = {"control": "str", "engine": "str", "filesystem": "str", "fault": "str", "state": "str", "what": "str"}


def add(night: Night, folder: Path) -> Path:
    """Add a night, durably, and return its file of scenarios."""
    # Times are in UTC, and without a zone: DuckDB needs another package for zones.
    began = night.began.astimezone(UTC).replace(tzinfo=None)
    digest = hashlib.blake2b(night.name.encode(), digest_size=4).hexdigest()
    name = f"{began:%Y%m%dT%H%M%SZ}-{digest}.parquet"
    own = {"run": night.name, "began": began, "commit": night.commit, "rig": night.rig}
    scenarios = [_scenario(row, night.profile) for row in night.summary.rows]
    # All scenarios of a run are measured on one device.
    device = next((row.outcome.scenario.device.name for row in night.summary.rows), None)
    scenarios += [_missing(name, device, why, night.profile) for name, why in sorted(night.failures.items())]
    controls = [
        {
            "control": control.name, "engine": control.group.engine, "filesystem": control.group.filesystem,
            "fault": control.group.fault, "state": control.word, "what": control.what,
        }
        for control in night.summary.controls
    ]  # fmt: skip
    of_figures = {field.name: str(field.type) for part in (Figures, Provenance) for field in fields(part)}
    _write([own | row for row in controls], _OF_NIGHT | _OF_CONTROL, folder / _CONTROLS / name)
    return _write([own | row for row in scenarios], _OF_NIGHT | _OF_SCENARIO | of_figures, folder / _SCENARIOS / name)


@contextmanager
def open_history(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the history for the length of a block: a connection with the tables `scenarios` and `controls`.

    Raise StoreError if the folder is no history.
    """
    import duckdb

    if not any(folder.glob(f"{_SCENARIOS}/*.parquet")):
        raise StoreError(f"{folder} is not a history: it has no {_SCENARIOS}/*.parquet; `rig run --history` adds runs")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        for table in (_SCENARIOS, _CONTROLS):
            relation = connection.read_parquet(str(folder / table / "*.parquet"), union_by_name=False)
            relation.create_view(table)
        yield connection


def query_history(folder: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns and the rows of a query; raise UsageError with DuckDB's words."""
    import duckdb

    with open_history(folder) as connection:
        try:
            answer = connection.execute(sql)
            return [name for name, *_ in answer.description or ()], answer.fetchall()
        except duckdb.Error as error:
            raise UsageError(f"{error}; the tables are {_SCENARIOS} and {_CONTROLS}") from None


def _scenario(row: Row, profile: str) -> dict[str, Any]:
    scenario = row.outcome.scenario
    return {
        "scenario": scenario.own_name, "engine": scenario.engine, "filesystem": scenario.filesystem,
        "settings": row.outcome.settings_name, "fault": scenario.fault, "device": scenario.device.name,
        "workload": scenario.workload_name, "is_sabotaged": row.is_sabotaged,
        "reasons": "; ".join(row.judgement.reasons), **asdict(figures(row)), **asdict(evidence_of(row, profile)),
        "recording": row.outcome.measured.recording.digest,
    }  # fmt: skip


def _missing(scenario_id: str, device: str | None, why: str, profile: str) -> dict[str, Any]:
    return {
        "scenario": scenario_id, "device": device, "profile": profile, "is_sabotaged": False,
        "result": NOT_MEASURED, "shown": NOT_MEASURED, "reasons": why,
    }  # fmt: skip


def _write(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # The types are given, because a column may hold only None.
    types = {
        "str": pa.string(), "bool": pa.bool_(), "time": pa.timestamp("s"), "int": pa.int64(),
        "int | None": pa.int64(), "float | None": pa.float64(),
    }  # fmt: skip
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), sink)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, sink.getvalue().to_pybytes())
    return path
