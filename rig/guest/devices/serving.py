"""File systems that programs reach through a server, which runs in the same machine for as long as it is needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rig.contract.errors import UsageError
from rig.filesystems import FileSystem, Served
from rig.guest.devices import disks, mounts


def require_modules(filesystem: FileSystem) -> None:
    """Load the kernel modules of a file system and of its server, if it has one; raise OSError naming one."""
    disks.require_modules(filesystem.modules)
    if isinstance(filesystem, Served):
        disks.require_modules(filesystem.serving_modules)


@contextmanager
def serve(filesystem: FileSystem, directory: str) -> Iterator[None]:
    """For the length of a block, let programs reach a directory's mount through the file system's server, if any."""
    if not isinstance(filesystem, Served):
        yield
        return
    filesystem.serve(directory, directory)
    try:
        yield
    finally:
        mounts.release(directory)
        filesystem.stop()


@contextmanager
def hosts(filesystem: FileSystem, device: str, directory: str) -> Iterator[tuple[str, str, str]]:
    """For a block, give three directories: a device mounted at `directory` as two hosts and the server itself see it.

    Raise UsageError if the file system has no server.
    """
    if not isinstance(filesystem, Served):
        raise UsageError(f"{filesystem.word} has no server, so two hosts cannot reach it")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        other, server = (str(Path(folder, name)) for name in ("other", "server"))
        for point in (other, server):
            Path(point).mkdir()
        mounts.mount(device, filesystem.kernel_type, filesystem.mount_options, server)
        stack.callback(mounts.release, server)
        stack.enter_context(serve(filesystem, directory))
        filesystem.join(other)
        stack.callback(mounts.release, other)
        yield directory, other, server
