"""S3: three times 2,500 single-row inserts, each a transaction, in three processes one after the other.

Source: 003_4d9a875d495f2087.txt, lines 24 to 58, which measured the SQLite test of a benchmark suite on Btrfs: in its
version 2.1.0 each copy feeds the same file of inserts to the command-line shell three times, into a table without a key
or an index, and the result is the time in seconds. The program here does the same work without the
shell. The arms are the document's four, two journal modes with and without copy on write, and two that it lacks, copy
on write without compression, because switching off copy on write also switches off compression. If a file system
lacks such an attribute, or a mount option overrides it, its arms are left out. Whether anything is compressed otherwise
depends on how the directory is mounted.
"""

from __future__ import annotations

import array
import fcntl
import multiprocessing
import os
import struct
import tempfile
import time
from multiprocessing.connection import Connection

from rig.analysis.documents.replications.connection import connect, read_back
from rig.speed.trials.replication import ArmTask, Figure, Metric, Replication
from rig.speed.trials.stopwatch import Stopwatch

_PROCESSES, _INSERTS = 3, 2500
_TABLE = "CREATE TABLE result (number INTEGER, made TIMESTAMP DEFAULT CURRENT_TIMESTAMP, short TEXT, text TEXT)"
# linux/fs.h: the requests that read and set the attributes of a file, and two attributes.
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x80086601, 0x40086602
# linux/fiemap.h: the request, its header, and an extent up to its flags. One flag says that data is compressed or
# encrypted.
_GET_EXTENTS, _FIEMAP, _EXTENT = 0xC020660B, struct.Struct("<QQIIII"), struct.Struct("<5QI12x")
_FIEMAP_SYNC, _ENCODED = 1, 0x8
_TRIAL_BYTES = 1 << 17
_ATTRIBUTES = {"nocow": 0x00800000, "nocompress": 0x00000400}


def carry_out(task: ArmTask, watch: Stopwatch) -> None:
    """Make the table, then insert from three processes; each one opens and closes the database."""
    journal_mode, _, attribute = task.arm.partition("-")
    if attribute:
        _set(task.directory, _ATTRIBUTES[attribute])
    connection = connect(task.directory, [f"journal_mode={journal_mode}"])
    connection.execute(_TABLE)
    watch.reads_back(read_back(connection))
    connection.close()
    count = task.scale_count(_INSERTS)
    context = multiprocessing.get_context("fork")
    taken_ns = list[int]()
    with watch.running():
        begin_s = time.perf_counter()
        for number in range(_PROCESSES):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_insert, args=(theirs, task.directory, number, count))
            process.start()
            theirs.close()
            taken_ns += ours.recv()
            process.join()
        taken_s = time.perf_counter() - begin_s
    for each in taken_ns:
        watch.lap(each)
    watch.count("seconds", taken_s)
    watch.count("transactions", len(taken_ns))
    watch.count("rows", len(taken_ns))
    watch.count("user_bytes", sum(8 + 4 + 16 for _ in taken_ns))


def obstacle(arm: str, directory: str) -> str:
    """Return why an attribute cannot be set here; empty if it can."""
    attribute = arm.partition("-")[2]
    if not attribute:
        return ""
    with tempfile.TemporaryDirectory(dir=directory) as trial:
        try:
            _set(trial, _ATTRIBUTES[attribute])
        except OSError as error:
            return f"this file system does not know the attribute {attribute} ({error.strerror})"
        if attribute == "nocompress" and _is_compressed(trial):
            overridden = f"the attribute {attribute} is overridden here"
            return f"{overridden}: files are compressed all the same, as with compress-force"
    return ""


def _is_compressed(directory: str) -> bool:
    """Return whether a file of zeros, made in a directory, has an extent that is stored encoded."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(_TRIAL_BYTES))
        file.flush()
        mapping = array.array("B", _FIEMAP.pack(0, _TRIAL_BYTES, _FIEMAP_SYNC, 0, 1, 0) + bytes(_EXTENT.size))
        try:
            fcntl.ioctl(file, _GET_EXTENTS, mapping)
        except OSError:  # this file system does not say, and so far no such file system can compress
            return False
    flags: int = _EXTENT.unpack_from(mapping, _FIEMAP.size)[-1]
    return bool(flags & _ENCODED)


def _insert(pipe: Connection, directory: str, number: int, count: int) -> None:
    connection = connect(directory)
    taken_ns = []
    for each in range(count):
        begin_ns = time.perf_counter_ns()
        values = (number * count + each, f"{each % 10000:04}", f"{each:016}")
        connection.execute("INSERT INTO result (number, short, text) VALUES (?, ?, ?)", values)
        taken_ns.append(time.perf_counter_ns() - begin_ns)
    connection.close()
    pipe.send(taken_ns)


def _set(directory: str, attribute: int) -> None:
    """Give a directory an attribute, which files made in it inherit; raise OSError unless it then has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, _SET_ATTRIBUTES, array.array("l", [_attributes(descriptor) | attribute]))
        if not _attributes(descriptor) & attribute:
            raise OSError(0, "it is ignored")
    finally:
        os.close(descriptor)


def _attributes(descriptor: int) -> int:
    attributes = array.array("l", [0])
    fcntl.ioctl(descriptor, _GET_ATTRIBUTES, attributes)
    return attributes[0]


# Arm -> the document's seconds and line.
_SECONDS = {"delete": (183.88, 34), "delete-nocow": (142.14, 42), "wal": (59.73, 50), "wal-nocow": (46.40, 58)}

REPLICATION = Replication(
    name="S3",
    engine="sqlite",
    file="003_4d9a875d495f2087.txt",
    about="7,500 single-row inserts in three processes, journal mode by copy on write",
    arms=(*_SECONDS, "delete-nocompress", "wal-nocompress"),
    metrics=(Metric("seconds", "s", more_is_better=False),),
    figures=tuple(
        Figure(arm, "delete", "seconds", seconds / _SECONDS["delete"][0], line, seconds, _SECONDS["delete"][0])
        for arm, (seconds, line) in _SECONDS.items()
        if arm != "delete"
    ),
    carry_out=carry_out,
    obstacle=obstacle,
)
