"""A probe of reads with a log: how long a point read takes while the WAL is short or long."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from rig.analysis.documents.probes.databases import Pragmas, connect, fill, pragma
from rig.analysis.documents.probes.probe import Figures
from rig.analysis.judging.speed import bootstrap

_ROWS = 20_000
_FRAMES = {"none": 0, "again": 0, "1k": 1000, "10k": 10_000}
_ROUNDS = 101
_READS = 300


def reads_beside_log(folder: Path) -> Figures:
    """Take the processor time of point reads at 0, 1,000 and 10,000 frames, in turns, and at 0 a second time."""
    taken_s: dict[str, list[float]] = {name: [] for name in _FRAMES}
    with ExitStack() as stack:
        readers = {
            name: stack.enter_context(_reader(folder / f"{name}.db", frames)) for name, frames in _FRAMES.items()
        }
        shuffled = random.Random(1)
        for number in range(_ROUNDS + 1):
            for name in shuffled.sample(list(readers), len(readers)):
                took_s = _reading_s(readers[name], number)
                # The first round warms up.
                if number:
                    taken_s[name].append(took_s)
    figures: dict[str, float] = {}
    for name in ("again", "1k", "10k"):
        interval = bootstrap(taken_s[name], taken_s["none"], seed=1)
        figures |= {f"ratio_{name}": interval.value, f"low_{name}": interval.low, f"high_{name}": interval.high}
    return figures


@contextmanager
def _reader(path: Path, frames: int) -> Iterator[sqlite3.Connection]:
    """Make a database with a WAL of `frames` frames, and return a reader with a small cache."""
    pragmas: Pragmas = {"journal_mode": "wal", "synchronous": "off", "wal_autocheckpoint": 0}
    with closing(connect(path, **pragmas)) as writer, closing(connect(path, cache_size=10)) as reader:
        fill(writer, _ROWS)
        pragma(writer, "wal_checkpoint(TRUNCATE)")
        for number in range(frames):
            writer.execute("UPDATE rows SET payload = randomblob(100) WHERE id = ?", (1 + number * 7919 % _ROWS,))
        yield reader


def _reading_s(reader: sqlite3.Connection, seed: int) -> float:
    chosen = random.Random(seed)
    # Processor time, because other programs on the host are no part of the cost of a read.
    began_s = time.thread_time()
    for _ in range(_READS):
        reader.execute("SELECT payload FROM rows WHERE id = ?", (chosen.randrange(1, _ROWS + 1),)).fetchone()
    return time.thread_time() - began_s
