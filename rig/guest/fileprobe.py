"""Carry out one experiment with a file system in this guest, on two empty disks in its RAM.

Three experiments work with any file system. `places`: is a file where FIEMAP says? `repair`: is a damaged file system
whole after its repair? `client`: does a client see the files that its server has? Others are in a package that the host
names, each in a module with the name of the file system's own. `ENGINE.NAME` runs an engine on two hosts, and is in a
module with the name of the engine.
"""

from __future__ import annotations

import importlib
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from rig.filesystems import FileSystem, filesystem_named
from rig.filesystems.fiemap import extents
from rig.guest import filecontent
from rig.guest.devices import disks, mounts, serving

_DISK_COUNT = 2
# Sparse: only what is written takes memory.
_DISK_MIB = 256
# The name is stored in a directory, so the flipped bits are metadata.
_NAME = "a-name-that-is-nowhere-else"
_BLOCK_BYTES = 4096
_FILE_BYTES = 16 * _BLOCK_BYTES
_READ_BYTES = 1 << 20


def carry_out(filesystem: str, name: str, package: str) -> dict[str, Any]:
    """Return what an experiment found."""
    measured = filesystem_named(filesystem)
    serving.require_modules(measured)
    size_mib = max(_DISK_MIB, measured.disk_mib_min)
    nodes = [disks.add_cached_disk(number, size_mib) for number in range(_DISK_COUNT)]
    try:
        if name in _OF_ANY:
            return _OF_ANY[name](measured, nodes[0])
        engine, _, probe = name.rpartition(".")
        module = engine or type(measured).__module__.rpartition(".")[2]
        carry_out = importlib.import_module(f"{package}.{module}").PROBES[probe]
        if engine:
            return _on_hosts(measured, nodes[0], carry_out)
        with tempfile.TemporaryDirectory() as folder:
            return dict(carry_out(nodes, folder))
    finally:
        disks.remove_cached_disks()


def _places(filesystem: FileSystem, node: str) -> dict[str, int]:
    """Write a file and rewrite a part of it; count the bytes that FIEMAP finds, and how many the disk has there."""
    content = bytearray(random.Random(1).randbytes(_FILE_BYTES))
    on_device = []
    filesystem.make(node)
    with mounts.mount_point(node, filesystem.kernel_type, filesystem.mount_options) as folder:
        file = os.open(f"{folder}/{_NAME}", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _write_durably(file, content, 0)
            content[_BLOCK_BYTES : 3 * _BLOCK_BYTES] = random.Random(2).randbytes(2 * _BLOCK_BYTES)
            _write_durably(file, content[_BLOCK_BYTES : 3 * _BLOCK_BYTES], _BLOCK_BYTES)
            on_device = [extent for extent in extents(file) if extent.is_on_device]
        finally:
            os.close(file)
    with open(node, "rb") as disk:
        right_bytes = 0
        for extent in on_device:
            disk.seek(extent.device_offset)
            part = content[extent.file_offset :][: extent.length]
            right_bytes += extent.length if disk.read(extent.length) == part else 0
    return {
        "file_bytes": len(content),
        "found_bytes": sum(extent.length for extent in on_device),
        "right_bytes": right_bytes,
    }


def _on_hosts(filesystem: FileSystem, node: str, carry_out: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    """Carry out a probe of an engine on hosts that share no cache."""
    filesystem.make(node)
    with (
        mounts.mount_point(node, filesystem.kernel_type, filesystem.mount_options) as folder,
        serving.hosts(filesystem, node, folder) as hosts,
    ):
        return dict(carry_out(hosts))


def _write_durably(file: int, data: bytes | bytearray, offset: int) -> None:
    os.pwrite(file, data, offset)
    os.fsync(file)


def _repair(filesystem: FileSystem, node: str) -> dict[str, Any]:
    """Flip a bit wherever the disk has a file's name; return what check and repair say, and how many files are left."""
    filesystem.make(node)
    with mounts.mount_point(node, filesystem.kernel_type, filesystem.mount_options) as folder:
        file = os.open(f"{folder}/{_NAME}", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _write_durably(file, b"content", 0)
        finally:
            os.close(file)
    result = {"sound": filesystem.damage(node), "flipped": _flip_bits(node), "damaged": filesystem.damage(node)}
    result |= {"repair": filesystem.repair(node), "repaired": filesystem.damage(node), "again": filesystem.repair(node)}
    with mounts.mount_point(node, filesystem.kernel_type, filesystem.mount_options) as folder:
        result["files"] = sum(len(files) for _, _, files in os.walk(folder))
    return result


def _flip_bits(node: str) -> int:
    """Flip a bit at each place where the disk has the name; return the number of places."""
    name, places = _NAME.encode(), []
    with open(node, "r+b") as disk:
        for begin in range(0, os.lseek(disk.fileno(), 0, os.SEEK_END), _READ_BYTES):
            part = os.pread(disk.fileno(), _READ_BYTES + len(name) - 1, begin)
            at = part.find(name)
            while at >= 0:
                places.append(begin + at)
                at = part.find(name, at + 1)
        for place in places:
            os.pwrite(disk.fileno(), bytes([name[0] ^ 1]), place)
        os.fsync(disk.fileno())
    return len(places)


def _client(filesystem: FileSystem, node: str) -> dict[str, Any]:
    """Write files through one client; return what the server then has, and what a new client sees."""
    filesystem.make(node)
    with mounts.mount_point(node, filesystem.kernel_type, filesystem.mount_options) as folder:
        digests = {"empty": filecontent.digest(folder)}
        with serving.serve(filesystem, folder):
            for number, mode in enumerate((0o600, 0o644, 0o755)):
                os.mkdir(f"{folder}/{number}", mode)
                file = os.open(f"{folder}/{number}/{_NAME}", os.O_RDWR | os.O_CREAT, mode)
                try:
                    _write_durably(file, random.Random(number).randbytes(_FILE_BYTES + number), 0)
                finally:
                    os.close(file)
            os.symlink(_NAME, f"{folder}/link")
        digests["server"] = filecontent.digest(folder)
        with serving.serve(filesystem, folder):
            return {**digests, "client": filecontent.digest(folder)}


_OF_ANY: Mapping[str, Callable[[FileSystem, str], dict[str, Any]]] = {
    "places": _places, "repair": _repair, "client": _client,
}  # fmt: skip
