"""What a run inherits: `rig doctor` names each limit that is too small, with the command that raises it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rig.front import inherited
from rig.host.processes import available_memory_bytes

RIG = Path(sys.executable).with_name("rig")
# What the doctor says, the limit that is lowered, to what, and what raises it.
SMALL = {
    "open files": (resource.RLIMIT_NOFILE, 200, "ulimit -n 512"),
    "address space": (resource.RLIMIT_AS, 8 << 30, "ulimit -v unlimited"),
    "file size": (resource.RLIMIT_FSIZE, 1 << 30, "ulimit -f unlimited"),
}


@pytest.mark.parametrize("what", SMALL)
def test_doctor_names_a_limit_that_is_too_small_and_what_raises_it(what: str, tmp_path: Path) -> None:
    number, limit, fix = SMALL[what]

    def lower() -> None:
        resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))

    done = subprocess.run(
        [RIG, "doctor"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "RIG_CACHE": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=60, preexec_fn=lower,
    )  # fmt: skip
    assert 3 == done.returncode
    assert f"MISS {what}: the limit is {limit}; raise it: {fix}" in done.stdout.splitlines()


def test_a_kernel_that_is_hardened_or_lacks_a_setting_is_told_apart() -> None:
    value = Path("/proc/sys/kernel/pid_max")
    assert inherited._kernel_setting(value, 1 << 30, "why").ok
    strict = inherited._kernel_setting(value, 1, "why it matters")
    assert (False, True, "kernel.pid_max") == (strict.ok, strict.optional, strict.what)
    assert strict.detail.endswith(", where at most 1 is needed: why it matters")
    assert "this kernel does not have it" == inherited._kernel_setting(value.with_name("absent"), 1, "why").detail


def test_shared_memory_that_is_missing_or_full_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inherited, "_SHARED_MEMORY", tmp_path / "absent")
    missing = inherited._shared_memory()
    assert (False, True) == (missing.ok, missing.optional)
    assert missing.detail.startswith("No such file or directory; mount it as a tmpfs")
    monkeypatch.setattr(inherited, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(inherited, "_SHARED_MEMORY_BYTES", 1 << 60)
    assert not inherited._shared_memory().ok


def test_memory_is_what_the_smallest_control_group_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (inner := tmp_path / "system.slice" / "ci.service").mkdir(parents=True)
    for folder, most, current in ((tmp_path / "system.slice", "max", 1 << 30), (inner, str(4 << 30), 3 << 30)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{current}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {1 << 20}\nactive_file {2 << 20}\n")
    (groups := tmp_path / "cgroup").write_text("4:memory:/of/version/1\n0::/system.slice/ci.service\n")
    (memory := tmp_path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {8 << 20} kB\n")
    monkeypatch.setattr("rig.host.processes._MEMORY", memory)
    assert 8 << 30 == min(8 << 30, available_memory_bytes())
    monkeypatch.setattr("rig.host.processes._GROUPS", groups)
    monkeypatch.setattr("rig.host.processes._GROUP_ROOT", tmp_path)
    assert (1 << 30) + (3 << 20) == available_memory_bytes()
