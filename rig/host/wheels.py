"""Wheels from PyPI for the guest's Python: each fetched once, checked, and kept in the cache with its digest."""

from __future__ import annotations

import email
import hashlib
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rig.contract.errors import HostError, StoreError, UsageError
from rig.host import processes
from rig.host.cache import cache_folder, lock
from rig.host.files import atomic_write

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# The Python of the guest image (vm-images/base.toml), and the range of C libraries for which a wheel may be built.
GUEST_PYTHON = "313"
_GLIBC_MINORS = range(17, 42)
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
_PIP_LIMIT_S = 300
_OFFERED = re.compile(r"\(from versions: ([^)]*)\)")
# What markers of requirements are evaluated for.
_GUEST = {
    "python_version": "3.13", "python_full_version": "3.13.5", "implementation_name": "cpython",
    "platform_python_implementation": "CPython", "sys_platform": "linux", "platform_system": "Linux",
    "platform_machine": "x86_64", "os_name": "posix", "extra": "",
}  # fmt: skip
_OTHER_HASH = "DO NOT MATCH THE HASHES"


def wheel(name: str, version: str, sha256: str = "") -> Path:
    """Return the wheel of a release; `sha256` is the digest that it must have, empty for any that PyPI vouches for.

    Raise UsageError if no wheel fits the guest or the digest differs, HostError if PyPI does not answer, StoreError if
    the kept wheel is damaged.
    """
    folder = cache_folder() / "wheels" / f"{name}-{version}-cp{GUEST_PYTHON}"
    stamp = folder / "sha256"
    with lock(folder):
        if not stamp.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching.") as scratch:
                fetched = _download(name, version, sha256, Path(scratch))
                folder.mkdir(exist_ok=True)
                atomic_write(folder / fetched.name, fetched.read_bytes())
            atomic_write(stamp, _sha256(folder / fetched.name).encode())
        (path,) = folder.glob("*.whl")
        has = _sha256(path)
        if has != stamp.read_text():
            raise StoreError(f"{path} is damaged; remove {folder} to fetch it again")
    if sha256 and has != sha256:
        raise _other_digest(name, version, sha256)
    return path


def whole_set(wanted: Sequence[str]) -> list[str]:
    """Return `NAME==VERSION` for wheels and all that they need, as pip chooses them for the guest.

    It is empty if pip finds no such set.
    """
    with tempfile.TemporaryDirectory(prefix="rig-") as folder:
        dry = ["install", "--dry-run", "--ignore-installed", "--report=-", f"--target={folder}"]
        try:
            report = json.loads(processes.run([*_PIP, *dry, *_for_guest(), *wanted], timeout_s=_PIP_LIMIT_S))
        except HostError:
            return []
    return [f"{item['metadata']['name']}=={item['metadata']['version']}" for item in report["install"]]


def _for_guest() -> list[str]:
    """Return the options with which pip takes wheels for the guest only."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in _GLIBC_MINORS]
    abis = [f"--abi={abi}" for abi in (f"cp{GUEST_PYTHON}", "abi3", "none")]
    python = [f"--python-version={GUEST_PYTHON}", "--implementation=cp", *abis]
    return ["--only-binary=:all:", "--retries=1", "--timeout=20", "--quiet", *python, *platforms]


def _download(name: str, version: str, sha256: str, folder: Path) -> Path:
    wanted = folder / "wanted"
    wanted.write_text(f"{name}=={version}{f' --hash=sha256:{sha256}' if sha256 else ''}\n")
    options = ["download", "--no-deps", f"--dest={folder}", f"--requirement={wanted}"]
    try:
        processes.run([*_PIP, *options, *_for_guest()], timeout_s=_PIP_LIMIT_S)
    except HostError as error:
        if _OTHER_HASH in str(error):
            raise _other_digest(name, version, sha256) from None
        offered = _OFFERED.search(str(error))
        if offered and offered[1] != "none":
            newest = ", ".join(offered[1].split(", ")[-5:])
            raise UsageError(f"PyPI has no wheel of {name} {version} for the guest; the newest are: {newest}") from None
        if _has_sources(name, version, folder):
            raise UsageError(
                f"PyPI has only the sources of {name} {version}, and the guest builds nothing: name a version with a "
                "wheel, or build one and add its files to the recipe"
            ) from None
        raise HostError(
            f"{name} {version} could not be fetched from PyPI: check the network and the spelling. {error}"
        ) from None
    (path,) = folder.glob("*.whl")
    return path


def _has_sources(name: str, version: str, folder: Path) -> bool:
    """Return whether PyPI knows a release, as sources that pip would have to build."""
    try:
        asked = [*_PIP, "index", "versions", name, "--no-binary=:all:"]
        known = processes.run(asked, timeout_s=_PIP_LIMIT_S, cwd=folder).decode()
    except HostError:
        return False
    return version in re.split(r"[,\s]+", known)


def missing(wheels: Sequence[Path], packages: Collection[str] = ()) -> list[str]:
    """Return `NAME needs OTHER` for each requirement of a wheel that neither the wheels nor `packages` have.

    Requirements of extras, and those for another Python or system than the guest's, are left out.
    """
    names = {_plain(path.name.partition("-")[0]) for path in wheels}
    has = names | {_plain(package.removeprefix("python3-")) for package in packages if package.startswith("python3-")}
    lacking = []
    for path in wheels:
        for requirement in _requirements(path):
            if requirement.marker and not requirement.marker.evaluate(_GUEST):
                continue
            if _plain(requirement.name) not in has:
                lacking.append(f"{path.name.partition('-')[0]} needs {requirement}".partition(";")[0].strip())
    return lacking


def _requirements(path: Path) -> list[Requirement]:
    from packaging.requirements import Requirement

    with zipfile.ZipFile(path) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = email.message_from_bytes(archive.read(metadata))
    return [Requirement(text) for text in message.get_all("Requires-Dist") or ()]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _other_digest(name: str, version: str, sha256: str) -> UsageError:
    return UsageError(f"the wheel of {name} {version} on PyPI does not have the SHA-256 that was asked for: {sha256}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
