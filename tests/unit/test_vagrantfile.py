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


# Vagrant reads a provider's block only if the provider is installed, and asks VirtualBox nothing but its version.
_VERSION_OF_VIRTUALBOX = "#!/bin/sh\necho 7.0.20r163906\n"
# What the manuals of the providers list, as far as we use it.
_SETTINGS = {"libvirt": {"cpus", "memory", "cpu_mode", "nested"}, "virtualbox": {"cpus", "memory"}}
# Runs the file and each provider's block, and prints what they set.
_RECORDER = """
class Recorder < BasicObject
  def initialize(path) = @path = path
  def method_missing(name, *words, **options, &block)
    ::Kernel.puts [@path, name, *words].join(" ") unless words.empty?
    below = ::Recorder.new([@path, name, *words.first(1)].join("."))
    block&.call(below)
    below
  end
  def respond_to_missing?(*) = true
end
module Vagrant
  def self.configure(version) = yield(Recorder.new("config"))
end
load "Vagrantfile"
"""


def settings_of(text: str, folder: Path) -> dict[str, dict[str, str]]:
    """Run a Vagrantfile in Ruby and return what each provider's block sets."""
    (folder / "Vagrantfile").write_text(text)
    done = check(["ruby", "-e", _RECORDER], folder)
    assert 0 == done.returncode, done.stderr
    found: dict[str, dict[str, str]] = {}
    lines = re.findall(r"^config\.vm\.provider\.(\w+) (\w+)=? (.*)$", done.stdout, re.MULTILINE)
    for provider, name, value in lines:
        found.setdefault(provider, {})[name] = value
    return found


def test_the_blocks_of_both_providers_set_only_what_exists(tmp_path: Path) -> None:
    found = settings_of(VAGRANTFILE.read_text(), tmp_path)
    assert _SETTINGS["libvirt"] == found["libvirt"].keys()
    assert {*_SETTINGS["virtualbox"], "customize"} == found["virtualbox"].keys()
    assert "modifyvm id --nested-hw-virt on" == found["virtualbox"]["customize"]
    assert ("2", "6144") == (found["libvirt"]["cpus"], found["virtualbox"]["memory"])
    wrong = settings_of(VAGRANTFILE.read_text().replace("libvirt.cpus", "libvirt.cpuss"), tmp_path)
    assert {"cpuss"} == wrong["libvirt"].keys() - _SETTINGS["libvirt"]


def test_vagrant_accepts_the_block_of_virtualbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if checker()[0] != "vagrant":
        # The blocks were run by Ruby, above.
        return
    (tmp_path / "VBoxManage").write_text(_VERSION_OF_VIRTUALBOX)
    (tmp_path / "VBoxManage").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("VAGRANT_DEFAULT_PROVIDER", "virtualbox")
    text = VAGRANTFILE.read_text()
    for damaged, words in ((text, ""), (text.replace("virtualbox.cpus", "virtualbox.cpuss"), "cpuss")):
        (tmp_path / "Vagrantfile").write_text(damaged)
        done = check(["vagrant", "validate"], tmp_path)
        assert bool(words) is (done.returncode != 0), done.stdout + done.stderr
        assert words in done.stdout + done.stderr


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
