"""RocksDB's own benchmark, db_bench of Debian's package rocksdb-tools: how it is called, and what it says.

A record has a key of 16 and a value of 100 bytes, which are its defaults. Standard library only; the caller runs
db_bench.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from rig.analysis.documents.replications import fills
from rig.contract.errors import EngineError

PROGRAM = "db_bench"
LOG_BYTES, FLUSHED_BYTES, COMPACTED_BYTES = (
    f"rocksdb.{part}.bytes" for part in ("wal", "flush.write", "compact.write")
)
_RATE = re.compile(r"^(\w+) +: +([\d.]+) micros/op (\d+) ops/sec [\d.]+ seconds (\d+) operations", re.MULTILINE)
_TRIED = "take RocksDB 7.8 or later"


@dataclass(frozen=True)
class BenchmarkResult:
    """What db_bench says about one of its benchmarks."""

    micros_per_operation: float
    operations_per_s: float
    count: int

    @property
    def mib_per_s(self) -> float:
        """Return the keys and values that it wrote in a second."""
        return self.operations_per_s * fills.RECORD_BYTES / (1 << 20)


def missing() -> str:
    """Return why db_bench cannot be run here; empty if it can."""
    if shutil.which(PROGRAM):
        return ""
    return f"{PROGRAM} is not installed: on Debian and Ubuntu it is in the package rocksdb-tools"


def command(database: str, benchmarks: str, options: Mapping[str, object]) -> list[str]:
    """Return the words that run some of its benchmarks, separated by commas, on a database."""
    given: dict[str, object] = {"db": database, "benchmarks": benchmarks, "seed": 1, **options}
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return [PROGRAM, *(f"--{name}={word}" for name, word in words.items())]


def reading(output: str, benchmark: str) -> BenchmarkResult:
    """Return what it said about a benchmark; raise EngineError if it said nothing, or used another form."""
    for what, micros, rate, count in _RATE.findall(output):
        if what == benchmark:
            return BenchmarkResult(float(micros), float(rate), int(count))
    raise EngineError(f"this db_bench does not say how many operations {benchmark} made, or in another form: {_TRIED}")


def statistic(output: str, name: str) -> int:
    """Return one of RocksDB's statistics; raise EngineError if it is missing, because a missing one is not 0."""
    match = re.search(rf"^{re.escape(name)} COUNT : (\d+)", output, re.MULTILINE)
    if not match:
        raise EngineError(f"this RocksDB has no statistic {name}, or in another form: {_TRIED}")
    return int(match[1])
