"""Where the files of a mounted file system are on its disk, and what they hold: for an explanation or an export."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from contextlib import suppress

from rig.contract.places import FilePlaces
from rig.filesystems.fiemap import extents


def places(directory: str) -> Iterator[FilePlaces]:
    """Yield the directory itself and every file and directory below it, by name."""
    for folder, folders, names in os.walk(directory):
        folders.sort()
        yield _places(folder, directory)
        yield from (_places(os.path.join(folder, name), directory) for name in sorted(names))


def _places(path: str, directory: str) -> FilePlaces:
    status = os.lstat(path)
    places: list[tuple[int, int, int]] = []
    # Not every file system maps its directories, and a damaged one may map nothing.
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            places += [
                (extent.file_offset, extent.device_offset, extent.length)
                for extent in extents(file)
                if extent.is_on_device
            ]
        finally:
            os.close(file)
    return FilePlaces(
        os.path.relpath(path, directory), status.st_ino, os.path.isdir(path), status.st_size, tuple(places)
    )


def archive(directory: str) -> str:
    """Return everything below a directory as a tar archive, compressed with gzip, in base64."""
    # Few verifiers need it, and a user-mode machine boots for each job.
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as packed:
        for name in sorted(os.listdir(directory)):
            packed.add(os.path.join(directory, name), name)
    return base64.b64encode(buffer.getvalue()).decode()
