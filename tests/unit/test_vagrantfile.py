"""The Vagrantfile describes a machine that Vagrant accepts, and the commands that it tells users to type exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

# Needs vagrant or ruby.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
VAGRANTFILE = ROOT / "Vagrantfile"


def check(argv: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "VAGRANT_HOME": str(directory / "home"),
        "VAGRANT_DOTFILE_PATH": str(directory / "state"),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
        "VAGRANT_NO_COLOR": "1",
    }
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, cwd=directory, env=environment)


def checker() -> list[str]:
    """Vagrant if the distribution has it, otherwise ruby; bootstrap.sh installs one of the two."""
    if shutil.which("vagrant"):
        return ["vagrant", "validate", "--ignore-provider"]
    assert shutil.which("ruby"), "neither vagrant nor ruby is installed: ./bootstrap.sh test"
    return ["ruby", "-c", "Vagrantfile"]


def test_vagrant_accepts_the_machine(tmp_path: Path) -> None:
    shutil.copy(VAGRANTFILE, tmp_path)
    done = check(checker(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_notices_a_broken_vagrantfile(tmp_path: Path) -> None:
    # Ruby alone checks the syntax but not the settings.
    damage = ("vm.box =", "vm.boxx =") if checker()[0] == "vagrant" else ("do |config|", "do |config")
    (tmp_path / "Vagrantfile").write_text(VAGRANTFILE.read_text().replace(*damage))
    assert check(checker(), tmp_path).returncode != 0


def test_the_commands_it_tells_are_the_two_of_the_makefile() -> None:
    told = re.findall(r"vagrant ssh -c 'cd /vagrant && make (\w+)'", VAGRANTFILE.read_text())
    goals = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert told == ["run", "test"]
    assert set(told) <= set(goals)


def test_the_machine_is_made_ready_by_the_same_script_as_a_clone() -> None:
    assert re.search(
        r'config\.vm\.provision "shell", inline: "cd /vagrant && \./bootstrap\.sh test"', VAGRANTFILE.read_text()
    )


def test_the_machine_is_large_enough_and_may_use_hardware_virtualisation() -> None:
    text = VAGRANTFILE.read_text()
    constants = {name: int(value) for name, value in re.findall(r"^([A-Z_]+) = (\d+)$", text, re.MULTILINE)}
    assert constants["PROCESSORS"] >= 2
    assert constants["MEMORY_MIB"] >= 4096
    assert 'libvirt.cpu_mode = "host-passthrough"' in text
    assert "libvirt.nested = true" in text
    assert '"--nested-hw-virt", "on"' in text
