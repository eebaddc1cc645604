"""The guest image: built once from a recipe (`rig.images.recipes`) and cached under the recipe's digest.

An image is a folder with `vmlinuz`, `initrd.cpio` (busybox, modules, init), `root.img` (ext4, mounted read-only) and
`packages.txt` (the Debian packages that the recipe resolved to). It is built under a temporary name and then renamed,
so a half-built image is never used. No root is needed: `debian` unpacks packages as any user, and mke2fs fills a file
system from a folder.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rig.contract.errors import HostError, UsageError
from rig.engines.builds import ImageContents
from rig.host import processes
from rig.host.cache import cache_folder, lock, require_cache
from rig.host.files import require_space
from rig.host.wheels import missing, wheel, whole_set
from rig.images import debian, initrd, usermodekernel
from rig.images.recipes import WHEEL, Recipe

_BUILD_LIMIT_S = 1800
_LOOK_LIMIT_S = 60
_BUILD_BYTES = 1500 << 20


@dataclass(frozen=True)
class Image:
    """A built image."""

    name: str
    digest: str
    folder: Path

    @property
    def kernel(self) -> Path:
        """Return the kernel's file."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Return the initrd without our code."""
        return self.folder / "initrd.cpio"

    @property
    def root_disk(self) -> Path:
        """Return the read-only root disk."""
        return self.folder / "root.img"

    @property
    def contents(self) -> ImageContents:
        """Return what a program may find in the image."""
        return ImageContents((self.folder / "packages.txt").read_text(), self._has)

    def _has(self, path: str) -> bool:
        """Return whether the root disk has a file at an absolute path without blanks."""
        # debugfs exits with 0 in either case.
        output = processes.run(["debugfs", "-R", f"stat {path}", str(self.root_disk)], timeout_s=_LOOK_LIMIT_S)
        return b"Inode:" in output


def images() -> list[Image]:
    """Return the images in the cache."""
    folders = sorted((cache_folder() / "images").glob("*-*"))
    names = [(*folder.name.rpartition("-")[::2], folder) for folder in folders if (folder / "packages.txt").exists()]
    return [Image(name, digest, folder) for name, digest, folder in names]


def is_built(wanted: Recipe) -> bool:
    """Return whether the cache has the image of a recipe."""
    return _image_of(wanted).folder.exists()


def build(wanted: Recipe, says: Callable[[str], None] = lambda _: None) -> Image:
    """Return the image of a recipe; build it if the cache has none. Concurrent callers build it once.

    `says` takes a line about each step. Raise UsageError, with the name of the image, for a package or wheel that does
    not exist.
    """
    require_cache()
    image = _image_of(wanted)
    folder = image.folder
    if folder.exists():
        return image
    with lock(folder):
        if not folder.exists():
            require_space(folder.parent, _BUILD_BYTES, f"building the guest image {wanted.name}")
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building.") as scratch:
                try:
                    _build_in(Path(scratch), wanted, says)
                except UsageError as error:
                    raise UsageError(f"the guest image {wanted.name} cannot be built: {error}") from None
                shutil.rmtree(Path(scratch, "root"))
                Path(scratch).chmod(0o755)
                Path(scratch).rename(folder)
                # TemporaryDirectory removes its folder, so the folder must exist.
                Path(scratch).mkdir()
    return image


def remove(name: str) -> list[Path]:
    """Remove all images of a recipe name; return the folders removed."""
    folders = [image.folder for image in images() if image.name == name]
    for folder in folders:
        shutil.rmtree(folder)
    return folders


def _image_of(wanted: Recipe) -> Image:
    folder = cache_folder() / "images" / f"{wanted.name}-{wanted.digest}"
    return Image(wanted.name, wanted.digest, folder)


def _build_in(scratch: Path, wanted: Recipe, says: Callable[[str], None]) -> None:
    root = scratch / "root"
    says(f"building the guest image {wanted.name} (about a minute): fetching and unpacking Debian's packages")
    matches = [match for match in map(WHEEL.fullmatch, wanted.wheels) if match]
    wheels = [wheel(match["name"], match["version"], match["sha256"] or "") for match in matches]
    packages = debian.unpack(wanted.suite, (wanted.kernel, *wanted.packages), root, wheels)
    if lacking := missing(wheels, [line.partition("\t")[0] for line in packages]):
        whole = whole_set([f"{match['name']}=={match['version']}" for match in matches])
        hint = f", for example wheels = {json.dumps(whole)}" if whole else ""
        raise UsageError(
            f"its wheels come without their dependencies: {'; '.join(lacking)}; add them to `wheels`{hint}"
        )
    packages += [f"{match['name']}\t{match['version']}" for match in matches]
    says(f"building the guest image {wanted.name}: making its files")
    for path in [path for pattern in wanted.exclude for path in root.glob(pattern.lstrip("/"))]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (usermodekernel.fill if usermodekernel.is_in(root) else _fill)(scratch, root, wanted)
    (scratch / "packages.txt").write_text("".join(f"{line}\n" for line in packages))


def _fill(folder: Path, root: Path, wanted: Recipe) -> None:
    for name in ("proc", "sys", "dev", "tmp", "run", "mnt"):
        (root / name).mkdir(exist_ok=True)
    (modules,) = (root / "usr/lib/modules").iterdir()
    shutil.copy(root / f"boot/vmlinuz-{modules.name}", folder / "vmlinuz")
    (folder / "initrd.cpio").write_bytes(initrd.make(root, modules, wanted))
    shutil.rmtree(root / "boot")
    shutil.rmtree(root / "usr/lib/modules")
    _make_root_disk(folder, root, wanted)


def _make_root_disk(scratch: Path, root: Path, wanted: Recipe) -> None:
    # The files belong to the user who builds. Nothing in the guest depends on the owner: the agent runs as root.
    disk = scratch / "root.img"
    with open(disk, "wb") as file:
        file.truncate(wanted.root_disk_mib << 20)
    make = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(root), str(disk)]
    try:
        processes.run(make, timeout_s=_BUILD_LIMIT_S)
    except HostError as error:
        if "Could not allocate" not in str(error):
            raise
        size = f"root_disk_mib = {wanted.root_disk_mib}"
        raise UsageError(f"its packages do not fit on its root disk: its recipe needs more than {size}") from None
