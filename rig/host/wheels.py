"""Wheels from PyPI for the guest's Python: each fetched once, checked, and kept in the cache with its digest."""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from pathlib import Path

from rig.contract.errors import HostError, StoreError, UsageError
from rig.host import processes
from rig.host.cache import cache_folder, locked
from rig.host.files import atomic_write

# The Python of the guest image (vm-images/base.toml), and the range of C libraries for which a wheel may be built.
GUEST_PYTHON = "313"
_GLIBC_MINORS = range(17, 42)
_PIP_LIMIT_S = 300
_OFFERED = re.compile(r"\(from versions: ([^)]*)\)")
_OTHER_HASH = "DO NOT MATCH THE HASHES"


def wheel(name: str, version: str, sha256: str = "") -> Path:
    """Return the wheel of a release; `sha256` is the digest that it must have, empty for any that PyPI vouches for.

    Raise UsageError if no wheel fits the guest or the digest differs, HostError if PyPI does not answer, StoreError if
    the kept wheel is damaged.
    """
    folder = cache_folder() / "wheels" / f"{name}-{version}-cp{GUEST_PYTHON}"
    stamp = folder / "sha256"
    with locked(folder):
        if not stamp.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching.") as scratch:
                fetched = _downloaded(name, version, sha256, Path(scratch))
                folder.mkdir(exist_ok=True)
                atomic_write(folder / fetched.name, fetched.read_bytes())
            atomic_write(stamp, _sha256(folder / fetched.name).encode())
        (found,) = folder.glob("*.whl")
        has = _sha256(found)
        if has != stamp.read_text():
            raise StoreError(f"{found} is damaged; remove {folder} to fetch it again")
    if sha256 and has != sha256:
        raise _other_digest(name, version, sha256)
    return found


def _downloaded(name: str, version: str, sha256: str, folder: Path) -> Path:
    wanted = folder / "wanted"
    wanted.write_text(f"{name}=={version}{f' --hash=sha256:{sha256}' if sha256 else ''}\n")
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in _GLIBC_MINORS]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    options = ["--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20", f"--dest={folder}"]
    abis = [f"--abi={abi}" for abi in (f"cp{GUEST_PYTHON}", "abi3", "none")]
    python = [f"--python-version={GUEST_PYTHON}", "--implementation=cp", *abis]
    try:
        processes.run(
            [*pip, *options, *python, *platforms, "--quiet", f"--requirement={wanted}"], timeout_s=_PIP_LIMIT_S
        )
    except HostError as error:
        if _OTHER_HASH in str(error):
            raise _other_digest(name, version, sha256) from None
        offered = _OFFERED.search(str(error))
        if offered and offered[1] != "none":
            newest = ", ".join(offered[1].split(", ")[-5:])
            raise UsageError(f"PyPI has no wheel of {name} {version} for the guest; the newest are: {newest}") from None
        raise HostError(
            f"{name} {version} could not be fetched from PyPI; is the network up? Is that its name? {error}"
        ) from None
    (found,) = folder.glob("*.whl")
    return found


def _other_digest(name: str, version: str, sha256: str) -> UsageError:
    return UsageError(f"the wheel of {name} {version} on PyPI does not have the SHA-256 that was asked for: {sha256}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
