"""Places on a host: for a home, a folder or a KVM that may not be used, the message is one line with the fix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig.contract.errors import HostError
from rig.host import cache
from rig.images import image
from rig.machines import accelerator

RIG = Path(sys.executable).with_name("rig")
SCENARIO = "sqlite-ext4-wal_normal_powercut"
# Root may write and open everything unless it drops its capabilities.
AS_OWNER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
CACHE_FIX = "Permission denied; name a folder for guest images and templates: RIG_CACHE=FOLDER"


def rig(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"RIG_CACHE", "XDG_CACHE_HOME"}}
    return subprocess.run(
        [*AS_OWNER, RIG, *words],
        cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = tmp_path / "sealed"
    folder.mkdir(mode=0o555)
    return folder


@pytest.mark.parametrize(
    "words", [("run", SCENARIO), ("image", "build"), ("run", "--library=apsw==3.51.3.0", SCENARIO)]
)
def test_a_home_that_may_not_be_written_is_one_line_that_names_rig_cache(
    words: tuple[str, ...], sealed: Path, tmp_path: Path
) -> None:
    result = rig(*words, cwd=tmp_path, HOME=str(sealed))
    assert (3, "") == (result.returncode, result.stdout)
    assert f"rig: nothing can be written in {sealed}/.cache/powercut-rig: {CACHE_FIX}\n" == result.stderr
    assert [sealed] == list(tmp_path.iterdir())


def test_a_home_that_may_not_even_be_looked_into_is_the_same_line(sealed: Path, tmp_path: Path) -> None:
    (home := sealed / "home").parent.chmod(0o755)
    home.mkdir(mode=0o000)
    result = rig("image", "build", cwd=tmp_path, HOME=str(home))
    assert f"rig: nothing can be written in {home}/.cache/powercut-rig: {CACHE_FIX}\n" == result.stderr
    doctor = rig("doctor", cwd=tmp_path, HOME=str(home))
    assert (3, "") == (doctor.returncode, doctor.stderr)
    assert f"MISS cache: nothing can be written in {home}/.cache/powercut-rig: {CACHE_FIX}" in doctor.stdout


def test_a_folder_that_may_not_be_written_is_one_line_that_names_run_dir(sealed: Path, tmp_path: Path) -> None:
    fix = "Permission denied; name a folder for the run: --run-dir FOLDER"
    result = rig("run", SCENARIO, cwd=sealed, RIG_CACHE=str(tmp_path / "cache"))
    assert (3, "") == (result.returncode, result.stdout)
    assert f"rig: nothing can be written in {sealed}/runs: {fix}\n" == result.stderr
    # Reported before an image is built or a machine started.
    assert not (tmp_path / "cache").exists()
    assert f"current folder: nothing can be written in {sealed}: {fix}" in rig("doctor", cwd=sealed).stdout


def test_rig_cache_is_enough_where_the_home_may_not_be_written(sealed: Path, tmp_path: Path) -> None:
    result = rig("doctor", cwd=tmp_path, HOME=str(sealed), RIG_CACHE=str(tmp_path / "cache"))
    (line,) = [line for line in result.stdout.splitlines() if " cache: " in line]
    assert line.startswith("ok ")
    assert f" in {tmp_path / 'cache'};" in line


def test_the_cache_follows_the_conventions_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home-of/someone")
    monkeypatch.delenv("RIG_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert Path("/home-of/someone/.cache/powercut-rig") == cache.cache_folder()
    # Relative paths there must be ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Path("/home-of/someone/.cache/powercut-rig") == cache.cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert Path("/caches/powercut-rig") == cache.cache_folder()
    monkeypatch.setenv("RIG_CACHE", "mine")
    assert Path.cwd() / "mine" == cache.cache_folder()


def test_a_user_without_a_home_is_told_to_name_a_cache() -> None:
    """A user that is not in /etc/passwd, as in containers."""
    program = "import os; os.getuid = lambda: 4242424; from rig.host import cache; cache.cache_folder()"
    drop = {"HOME", "RIG_CACHE", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert "HostError: this user has no home directory; name a folder" in result.stderr


def test_a_kvm_that_cannot_be_used_is_one_short_line(tmp_path: Path) -> None:
    absent, denied, other = tmp_path / "absent", tmp_path / "denied", tmp_path
    denied.touch(mode=0o000)
    other.chmod(0o777)
    # Machines of root run as another user.
    words = (
        f"{denied} is open to root alone, and machines of root run as nobody (chmod 660 {denied} opens it)"
        if os.geteuid() == 0
        else f"this user may not open {denied} (on Debian and Ubuntu, members of the group kvm may)"
    )
    program = f"""
from pathlib import Path
from rig.machines.accelerator import _why_closed
for name in {[str(absent), str(denied), str(other), "/dev/null"]}:
    print(_why_closed(Path(name)))
"""
    result = subprocess.run([*AS_OWNER, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [
        f"this host has no {absent}",
        words,
        f"{other} cannot be opened: Is a directory",
        "",
    ] == result.stdout.splitlines()


def test_of_a_machine_lost_under_kvm_only_the_words_of_qemu_are_said() -> None:
    lost = (
        "virtual machine: it ended while we waited for RIG-READY (ended with -6 qemu-system-x86_64: error: failed to "
        "set MSR 0x10a to 0x69\nqemu-system-x86_64: kvm_buf_set_msrs: Assertion failed); console: ..."
    )
    assert "QEMU says: failed to set MSR 0x10a to 0x69" == accelerator._gist(lost)
    silent = "virtual machine: no RIG-READY within 20 s (still running); console: ...[    0.0] Linux"
    assert "the guest prints nothing" == accelerator._gist(silent)


def test_without_kvm_verifiers_run_in_emulation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(accelerator, "KVM", tmp_path / "kvm")
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    guest = image.Image("base", "0123", tmp_path)
    found = accelerator.best_accelerator(guest)
    assert ("tcg", f"this host has no {tmp_path / 'kvm'}") == (found.accelerator, found.reason)
    # This is known without starting a machine.
    assert [] == list(tmp_path.iterdir())


def test_a_cache_that_is_no_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_CACHE", "/dev/null")
    with pytest.raises(HostError, match="nothing can be written in /dev/null: Not a directory; name a folder"):
        cache.require_cache()
