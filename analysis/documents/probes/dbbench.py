"""Probes of RocksDB by its own benchmark, db_bench of Debian's package rocksdb-tools, run as a program.

A record has a key of 16 and a value of 100 bytes, as in the document. There are fewer records, so that a run is short;
memtables are smaller by as much, so that they fill as often.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from rig.analysis.documents.probes.probe import Figures, Unmeasurable
from rig.analysis.documents.replications import dbbench, fills
from rig.analysis.judging.speed import bootstrap
from rig.contract.errors import EngineError, HostError
from rig.host import processes

_RECORDS = 40_000
_ROUNDS = 11
_LIMIT_S = 120
_MEMTABLE_BYTES = 1 << 20
# The later ones for a host so busy that nothing was reported before.
_KILLED_AFTER_S = (1, 4, 16)
_MANY = 20_000_000
_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own in it, removed at the end
_FINISHED = re.compile(r"finished (\d+) ops")


def flags(folder: Path) -> Figures:
    """Give db_bench the flag as it is and as the document spells it, and one that does not exist."""
    return {
        "takes_underscore": _is_taken(folder / "underscore", "disable_wal"),
        "takes_hyphen": _is_taken(folder / "hyphen", "disable-wal"),
        "takes_other": _is_taken(folder / "other", "disable_log"),
    }


def _is_taken(path: Path, flag: str) -> bool:
    try:
        _bench(path, "fillseq", {flag: True, "num": 10})
    except HostError:
        return False
    return True


def log_arms(folder: Path) -> Figures:
    """Run fillseq and fillrandom with and without the WAL, with its directory in memory, in batches and in threads."""
    if not _MEMORY.is_dir():
        raise Unmeasurable(f"there is no {_MEMORY}, so no log can be kept in memory")
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="rig-claims-") as memory:
        arms: dict[str, tuple[str, dict[str, object]]] = {
            "seq_wal": ("fillseq", {}),
            "seq_nowal": ("fillseq", {"disable_wal": True}),
            "random_wal": ("fillrandom", {}),
            "random_nowal": ("fillrandom", {"disable_wal": True}),
            "memory_wal": ("fillseq", {"wal_dir": f"{memory}/wal"}),
            "batch_wal": ("fillseq", {"batch_size": 100}),
            "batch_nowal": ("fillseq", {"batch_size": 100, "disable_wal": True}),
        }
        rates: dict[str, list[float]] = {name: [] for name in arms}
        for number in range(_ROUNDS):
            for name, (benchmark, options) in arms.items():
                rate = _rate(folder / "db", benchmark, options)
                # The first round warms up.
                if number:
                    rates[name].append(rate)
    figures: dict[str, float] = {}
    for name in ("seq", "random", "batch"):
        interval = bootstrap(rates[f"{name}_nowal"], rates[f"{name}_wal"], seed=1)
        figures |= {f"{name}": interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    # What is left of the WAL's cost with the log in memory.
    kept = bootstrap(rates["seq_nowal"], rates["memory_wal"], seed=1)
    gain = median(rates["batch_wal"]) / median(rates["seq_wal"])
    return {**figures, "memory": kept.value, "memory_low": kept.low, "memory_high": kept.high, "batch_gain": gain}


def amplification(folder: Path) -> Figures:
    """Fill with and without the WAL and take what RocksDB wrote to log and tables, and what stays on the disk."""
    figures: dict[str, float] = {}
    for name, options in (("wal", {}), ("nowal", {"disable_wal": True})):
        for benchmark in ("fillseq", "fillrandom"):
            path = folder / f"{name}-{benchmark}"
            output = _bench(path, f"{benchmark},flush,waitforcompaction", {**options, "statistics": True})
            parts = (dbbench.LOG_BYTES, dbbench.FLUSHED_BYTES, dbbench.COMPACTED_BYTES)
            written = {part: _statistic(output, part) for part in parts}
            user = _RECORDS * fills.RECORD_BYTES
            figures[f"{benchmark}_{name}"] = sum(written.values()) / user
            figures[f"log_{benchmark}_{name}"] = written[dbbench.LOG_BYTES] / user
            tables = sum(file.stat().st_size for file in path.iterdir() if file.suffix == ".sst")
            figures[f"space_{benchmark}_{name}"] = tables / user
    return {
        **figures, "more_seq": figures["fillseq_wal"] - figures["fillseq_nowal"],
        "more_random": figures["fillrandom_wal"] - figures["fillrandom_nowal"],
    }  # fmt: skip


def kill_while_filling(folder: Path) -> Figures:
    """Kill db_bench while it fills, and count what a new process finds of the records that it had reported."""
    figures: dict[str, int] = {}
    for name, options in (("wal", {}), ("nowal", {"disable_wal": True})):
        path = folder / name
        # The memtable holds everything, so the records that are found were in the log.
        words = _words(path, "fillseq", {**options, "num": _MANY, "write_buffer_size": 1 << 30})
        reports = (_report_of_killed(words, seconds) for seconds in _KILLED_AFTER_S)
        figures[f"reported_{name}"] = next(filter(None, reports), 0)
        output = _bench(path, "readseq", {"use_existing_db": True, "num": _MANY})
        _, figures[f"found_{name}"] = _reading(output, "readseq")
    return figures


def _report_of_killed(words: list[str], seconds: int) -> int:
    """Run a program, kill it after `seconds`, and return how many records it had reported as written."""
    try:
        processes.run(["timeout", "--signal", "KILL", str(seconds), *words], timeout_s=_LIMIT_S)
    except HostError as error:
        return max(map(int, _FINISHED.findall(str(error))), default=0)
    return 0


def _rate(path: Path, benchmark: str, options: Mapping[str, object]) -> float:
    """Return records per second; the database is removed."""
    output = _bench(path, benchmark, options)
    shutil.rmtree(path)
    return _reading(output, benchmark)[0]


def _reading(output: str, benchmark: str) -> tuple[float, int]:
    """Return records per second and how many there were; raise Unmeasurable if db_bench says neither."""
    try:
        result = dbbench.reading(output, benchmark)
    except EngineError as error:
        raise Unmeasurable(str(error)) from None
    return result.operations_per_s, result.count


def _bench(path: Path, benchmarks: str, options: Mapping[str, object]) -> str:
    return processes.run(_words(path, benchmarks, options), timeout_s=_LIMIT_S).decode(errors="replace")


def _words(path: Path, benchmarks: str, options: Mapping[str, object]) -> list[str]:
    if why := dbbench.missing():
        raise Unmeasurable(why)
    given = {"num": _RECORDS, "write_buffer_size": _MEMTABLE_BYTES, **options}
    return dbbench.command(str(path), benchmarks, given)


def _statistic(output: str, name: str) -> int:
    try:
        return dbbench.statistic(output, name)
    except EngineError as error:
        raise Unmeasurable(str(error)) from None
