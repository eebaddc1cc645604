"""The files of a guest image with which an engine runs on any Linux host of the same processor: programs and libraries.

They are unmodified. A program is started by the image's own dynamic loader, so the host's libraries do not matter.
debugfs reads the root disk as any user.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rig.contract.errors import HostError
from rig.host import processes
from rig.images.image import Image

LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LIMIT_S = 300
_ELF = b"\x7fELF"
_LIBRARY = re.compile(rf"/({LIBRARIES}/\S+) \(0x")


def pack(image: Image, patterns: Sequence[str], target: Path) -> None:
    """Write an archive with the files of an image that match patterns, and with the libraries that they need.

    Raise HostError if a pattern matches nothing.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="unpacking.") as scratch:
        root = Path(scratch).resolve()
        processes.run(["debugfs", "-R", "rdump /usr .", str(image.root_disk)], timeout_s=_LIMIT_S, cwd=root)
        names = {LOADER}
        for pattern in patterns:
            matching = {path for path in root.glob(pattern) if path.is_file() and path.resolve().is_relative_to(root)}
            if not matching:
                raise HostError(f"the guest image {image.name} has no {pattern}; build it again: rig image build")
            names |= {str(path.relative_to(root)) for path in matching}
        names |= {library for name in sorted(names) for library in _libraries(root, name)}
        # Links become files. gzip, because every host has it.
        command = ["tar", "--create", "--gzip", "--dereference", "--owner=0", "--group=0", "--file", str(target)]
        command += ["--directory", str(root), "--files-from", "-"]
        processes.run(command, timeout_s=_LIMIT_S, input="".join(f"{name}\n" for name in sorted(names)).encode())


def _libraries(root: Path, name: str) -> Iterator[str]:
    """Yield the libraries that a file needs, directly or through others; none if it is no program and no library."""
    with (root / name).open("rb") as file:
        if name == LOADER or file.read(len(_ELF)) != _ELF:
            return
    listing = [str(root / LOADER), "--library-path", str(root / LIBRARIES), "--list", str(root / name)]
    yield from _LIBRARY.findall(processes.run(listing, timeout_s=_LIMIT_S).decode())
