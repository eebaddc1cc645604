"""The gateway to the host: programs end in time and fail with helpful messages; files are written whole or not."""

from __future__ import annotations

import errno
import logging
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.contract.errors import HostError, StoreError
from rig.host.files import atomic_write, free_bytes, require_space
from rig.host.processes import PACKAGE_OF_PROGRAM, available_memory_bytes, run
from tests.unit.host.littleroom import little_room, output

ROOT = Path(__file__).resolve().parents[3]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def test_run_returns_the_standard_output_and_nothing_of_the_standard_error() -> None:
    assert run(["sh", "-c", "echo out; echo err >&2"], timeout_s=10) == b"out\n"


def test_run_passes_the_input_on_and_gives_an_empty_one_otherwise() -> None:
    assert run(["cat"], input=b"\x00line\n", timeout_s=10) == b"\x00line\n"
    assert run(["cat"], timeout_s=10) == b""


def test_run_adds_to_the_environment_and_works_in_the_directory_it_is_told(tmp_path: Path) -> None:
    output = run(["sh", "-c", 'echo "$COLOUR $HOME"; pwd'], env={"COLOUR": "blue"}, cwd=tmp_path, timeout_s=10)
    assert output.decode().splitlines() == [f"blue {os.environ.get('HOME', '')}", str(tmp_path)]


def test_run_never_hands_words_to_a_shell() -> None:
    assert run(["printf", "%s|", "a b", "$HOME", "; false"], timeout_s=10) == b"a b|$HOME|; false|"
    with pytest.raises(TypeError, match="list of words"):
        run("echo hello", timeout_s=10)
    with pytest.raises(TypeError, match="list of words"):
        run([], timeout_s=10)


def test_a_failing_program_is_named_with_its_status_its_last_words_and_a_line_to_paste() -> None:
    script = "for i in $(seq 20); do echo word $i >&2; done; exit 7"
    with pytest.raises(HostError) as caught:
        run(["sh", "-c", script], env={"A": "b c"}, timeout_s=10)
    message = str(caught.value)
    assert "sh failed with exit status 7" in message
    assert "word 20" in message
    assert "word 12\n" not in message
    assert message.endswith(shlex.join(["env", "A=b c", "sh", "-c", script]))


def test_a_program_killed_by_a_signal_says_which() -> None:
    with pytest.raises(HostError, match=r"was killed by signal 9 \(Killed\); it wrote nothing"):
        run(["sh", "-c", "kill -9 $$"], timeout_s=10)


def test_a_missing_program_names_its_debian_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rig.host.processes._SYSTEM_DIRECTORIES", ())
    with pytest.raises(HostError, match="apt-get install --no-install-recommends qemu-system-x86"):
        run(["qemu-system-x86_64", "--version"], timeout_s=10)
    with pytest.raises(HostError, match="the program no-such-thing is not installed: install it, or put"):
        run(["no-such-thing"], timeout_s=10)


def test_a_program_in_a_system_directory_is_found_without_it_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run(["mke2fs", "-V"], timeout_s=10)


def test_a_file_that_cannot_be_executed_is_an_error_of_the_host(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(HostError, match="could not be started"):
        run([str(script)], timeout_s=10)


def test_a_program_that_hangs_is_killed_with_its_children_and_the_limit_is_named(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(
        HostError, match=r"sh was not done after its limit of 0\.5 s and was killed; its last words:\n  hm"
    ):
        run(["sh", "-c", f"echo hm >&2; sleep 60 & echo $$ $! > {pids}; wait"], timeout_s=0.5)
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) == 2
    # A killed process takes a moment to end on a busy machine; those two would sleep for a minute.
    until_s = time.monotonic() + 30
    while any(map(alive, left)) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert [False, False] == [alive(pid) for pid in left]


def test_each_command_is_logged_as_a_line_that_can_be_pasted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.DEBUG, logger="rig.host"):
        output = run(["echo", "it's", "a b"], cwd=tmp_path, timeout_s=10)
    (line,) = caplog.messages
    assert output == subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout


def test_the_packages_named_to_the_user_are_those_that_bootstrap_installs() -> None:
    bootstrap = (ROOT / "bootstrap.sh").read_text()
    installed = dict(
        line.strip().strip('"').split()
        for line in bootstrap.splitlines()
        if line.startswith('    "') and "|" not in line and len(line.split()) == 2
    )
    assert "qemu-system-x86_64" in installed
    # Programs that only make, a compiler or the tests need, and those that the package of an engine names itself.
    others = {"make", "/usr/include/stdio.h", "$DEBIAN_KEYRING", "cpio", "db_bench", "mdb_dump", "rustc", "javac"}
    ours = {program: package for program, package in installed.items() if program not in others}
    assert ours == {program: PACKAGE_OF_PROGRAM.get(program) for program in ours}


def test_free_space_is_that_of_the_file_system_even_before_the_directory_is_made(tmp_path: Path) -> None:
    facts = os.statvfs(tmp_path)
    assert free_bytes(tmp_path / "not" / "yet" / "made") == pytest.approx(facts.f_bavail * facts.f_frsize, rel=0.05)


def test_space_that_is_there_is_no_error_and_space_that_is_not_is_one_before_the_write(tmp_path: Path) -> None:
    require_space(tmp_path, 1, "a recording")
    with pytest.raises(HostError, match=r"a recording needs \d+ MiB in .* free \d+ MiB there.*Nothing was written"):
        require_space(tmp_path, free_bytes(tmp_path) + (1 << 40), "a recording")


def test_a_written_file_has_the_new_content_and_leaves_no_temporary_name(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    atomic_write(path, b"one")
    atomic_write(path, b"two")
    assert path.read_bytes() == b"two"
    assert [path] == list(tmp_path.iterdir())


def test_the_data_is_synced_before_the_rename_and_the_directory_after_it(tmp_path: Path) -> None:
    """The real calls in order: without the first the data could be lost, without the last the name."""
    calls: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        calls.append("fsync " + str(Path(f"/proc/self/fd/{descriptor}").readlink()).replace(str(tmp_path), "DIR"))

    def replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return real_replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(Path, "replace", replace)
        atomic_write(tmp_path / "a", b"data")
    assert len(calls) == 3
    assert calls[0].startswith("fsync DIR/.a.")
    assert calls[1:] == ["rename", "fsync DIR"]


def test_a_directory_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone/a could not be written \(1 bytes\).*it was not created"):
        atomic_write(tmp_path / "gone" / "a", b"x")


FULL_DISK = """
import sys
from pathlib import Path
from rig.contract.errors import StoreError
from rig.host.files import atomic_write
{limit}
directory = Path(sys.argv[1])
path = directory / "manifest.json"
atomic_write(path, b"old")
try:
    atomic_write(path, b"n" * 1_000_000)
except StoreError as error:
    print(error)
    print(path.read_bytes(), [entry.name for entry in directory.iterdir()])
"""


def test_on_a_full_disk_the_old_content_stays_and_the_error_says_so(tmp_path: Path) -> None:
    prefix, reason = little_room(tmp_path, 64 << 10)
    message, kept = output([*prefix, sys.executable, "-c", FULL_DISK.format(limit=""), str(tmp_path)])
    assert f"{tmp_path}/manifest.json could not be written (1000000 bytes): {os.strerror(reason)}" in message
    remedy = {
        errno.ENOSPC: "The disk is full: free some space",
        errno.EFBIG: "The limit on the size of files is too low",
    }
    assert f"its earlier content is unchanged. {remedy[reason]}" in message
    assert kept == "b'old' ['manifest.json']"


def test_beyond_the_limit_on_file_size_the_old_content_stays_and_the_error_says_so(tmp_path: Path) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, {resource.RLIM_INFINITY}))"
    message, kept = output([sys.executable, "-c", FULL_DISK.format(limit=limit), str(tmp_path)])
    assert os.strerror(errno.EFBIG) in message
    assert "its earlier content is unchanged. The limit on the size of files is too low" in message
    assert kept == "b'old' ['manifest.json']"


def test_memory_that_the_page_cache_takes_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A host that has read many files: next to nothing is free, and most can be had.
    table = tmp_path / "meminfo"
    table.write_text("MemTotal: 24684544 kB\nMemFree: 1024 kB\nMemAvailable: 8388608 kB\nHugePages_Total: 0\n")
    monkeypatch.setattr("rig.host.processes._MEMORY", table)
    assert 8 << 30 == available_memory_bytes()


def test_the_memory_of_this_host_is_read() -> None:
    assert 0 < available_memory_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
