"""A supervised workload: files opened without O_SYNC and O_DSYNC though it asks for them, and memory that is mapped."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

from rig.engines.syncs import CallName
from rig.guest.site import Site
from rig.guest.watch.addedsyncs import SyncAdder
from rig.guest.watch.calls import Teller
from rig.guest.watch.drops import _DroppingAll
from rig.guest.watch.forks import Send
from rig.guest.watch.supervisor import supervise, tell
from rig.planning import matrix


def _flags_of(descriptor: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines[:2])["flags"], 8)


def _store(folder: Path) -> None:
    """Write to mapped memory, sync a part of it, and then write to a file whose writes are synced."""
    with (folder / "db").open("w+b") as file:
        file.truncate(4 * mmap.PAGESIZE)
        tell("setup")
        tell("begin-1")
        memory = mmap.mmap(file.fileno(), 4 * mmap.PAGESIZE)
        memory[:] = bytes(len(memory))
        memory.flush(mmap.PAGESIZE, mmap.PAGESIZE)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
        os.write(log, b"12")
        os.posix_fallocate(log, 2, 100)
        tell("committed-1")
        tell("ack-1")


def test_mapped_memory_the_part_of_it_that_is_synced_and_writes_that_are_syncs_are_told(tmp_path: Path) -> None:
    site = Site(matrix.select(["sqlite-ext4-wal_full_powercut"])[0].orders, str(tmp_path))
    watch = Teller(str(tmp_path))
    supervise(site, lambda _: _store(tmp_path), watch, details=True).require("the workload")
    told = [(call.name, call.path, call.offset_bytes, call.length_bytes) for call in watch.calls if call.number == 1]
    assert [
        (CallName.MAP, "db", -1, -1), (CallName.SYNC, "db", mmap.PAGESIZE, mmap.PAGESIZE),
        (CallName.CREATE, "log", -1, -1), (CallName.WRITE, "log", 0, 2), (CallName.SYNC, "log", -1, -1),
        (CallName.ALLOCATE, "log", 2, 100),
    ] == told  # fmt: skip


def test_a_sync_is_added_for_a_mapped_file_that_no_call_writes_to(tmp_path: Path) -> None:
    site = Site(matrix.select(["sqlite-ext4-wal_full_powercut"])[0].orders, str(tmp_path))
    for wanted, count in (("db", 1), ("log", 1), ("*", 3), ("other", 0)):
        watch = SyncAdder(str(tmp_path), frozenset({wanted}))
        supervise(site, lambda _: _store(tmp_path), watch, details=True).require("the workload")
        assert count == watch.count, wanted
        (tmp_path / "log").unlink()


def test_files_of_the_workload_are_opened_without_a_sync_of_each_write_and_otherwise_as_asked(tmp_path: Path) -> None:
    site = Site(matrix.select(["sqlite-ext4-wal_full_powercut"])[0].orders, str(tmp_path / "mount"))
    own, other = Path(site.engine_directory), tmp_path / "other"
    own.mkdir(parents=True, exist_ok=True)
    (own / "there").write_text("kept")

    def body(send: Send) -> None:
        os.umask(0o027)
        os.chdir(own)
        made = os.open("made", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DSYNC | os.O_APPEND, 0o666)
        os.write(made, b"1")
        there = os.open(own / "there", os.O_RDONLY | os.O_SYNC)
        errors = []
        for name, flags in (("made", os.O_CREAT | os.O_EXCL), ("absent", 0)):
            try:
                os.open(name, os.O_WRONLY | os.O_DSYNC | flags)
            except OSError as error:
                errors.append(error.errno)
        outside = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
        send([[_flags_of(descriptor) for descriptor in (made, there, outside)], os.read(there, 9).decode(), errors])

    ending = supervise(site, body, _DroppingAll(), writes=False, unsynced=True)
    ending.require("the workload")
    ((flags, text, errors),) = ending.messages
    made, there, outside = flags
    assert [os.O_RDWR | os.O_APPEND, os.O_RDONLY] == [
        each & (os.O_ACCMODE | os.O_APPEND | os.O_SYNC) for each in (made, there)
    ]
    assert made & os.O_CLOEXEC
    assert outside & os.O_DSYNC
    assert "kept" == text
    assert [errno.EEXIST, errno.ENOENT] == errors
    assert 0o640 == (own / "made").stat().st_mode & 0o777
    assert b"1" == (own / "made").read_bytes()


def test_what_is_copied_from_another_file_is_a_write_to_the_file_that_gets_it(tmp_path: Path) -> None:
    site = Site(matrix.select(["sqlite-ext4-wal_full_powercut"])[0].orders, str(tmp_path))

    def body(_: Send) -> None:
        (tmp_path / "source").write_text("12345678")
        source = os.open(tmp_path / "source", os.O_RDONLY)
        log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
        reader, writer = os.pipe()
        tell("setup")
        tell("begin-1")
        os.sendfile(log, source, 0, 4)
        os.copy_file_range(source, log, 4, 4)
        os.write(writer, b"90")
        os.splice(reader, log, 2)
        tell("ack-1")

    watch = Teller(str(tmp_path))
    supervise(site, body, watch, details=True).require("the workload")
    # How much such a call writes is known only when it has returned.
    assert [(CallName.WRITE, "log", place, -1) for place in (0, 4, 8)] == [
        (call.name, call.path, call.offset_bytes, call.length_bytes) for call in watch.calls if call.number == 1
    ]
    assert b"1234567890" == (tmp_path / "log").read_bytes()
