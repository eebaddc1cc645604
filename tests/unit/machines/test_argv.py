"""QEMU's command line follows from a machine's spec alone; a clone differs from its template only in its plugs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from rig.contract.orders import Processor
from rig.machines.argv import Accelerator, MachineSpec, Plugs, Role, Use, argv

SPEC = MachineSpec(Role.RECORDER, Accelerator.TCG, 640, Path("/i/vmlinuz"), Path("/i/initrd"), Path("/i/root.img"))
PLUGS = Plugs(Path("/t/ram"), Use.BOOT, Path("/t/console"), Path("/t/orders"), Path("/t/recording"), 5, 6)
EVERY_SPEC = [replace(SPEC, role=r, accelerator=a) for r, a in itertools.product(Role, Accelerator)]


@pytest.mark.parametrize("role", Role)
def test_the_processor_is_the_plain_one_unless_a_modern_one_is_asked_for_and_none_reads_random_numbers(
    role: Role,
) -> None:
    plain = replace(SPEC, role=role)
    modern = replace(plain, processor=Processor.MODERN)
    assert ["qemu64,cx16=off"] == values(line(plain), "-cpu")
    assert ["max,cx16=off,rdrand=off,rdseed=off"] == values(line(modern), "-cpu")
    assert ["host"] == values(line(replace(modern, accelerator=Accelerator.KVM)), "-cpu")


def line(spec: MachineSpec, plugs: Plugs = PLUGS) -> list[str]:
    return argv("qemu", spec, plugs)


def values(words: list[str], option: str) -> list[str]:
    return [words[rank + 1] for rank, word in enumerate(words) if word == option]


@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: f"{spec.role}-{spec.accelerator}")
def test_a_clone_differs_from_its_template_only_in_share_and_that_it_waits_for_a_state(
    spec: MachineSpec,
) -> None:
    template = line(spec)
    clone = line(spec, replace(PLUGS, use=Use.CLONE))
    assert ["-S", "-incoming", "defer"] == clone[len(template) :]
    differing = [(old, new) for old, new in zip(template, clone, strict=False) if old != new]
    assert [("share=on", "share=off")] == [(old.rsplit(",", 1)[1], new.rsplit(",", 1)[1]) for old, new in differing]
    assert all(old.rsplit(",", 1)[0] == new.rsplit(",", 1)[0] for old, new in differing)
    assert line(spec) == template
    assert line(spec, replace(PLUGS, use=Use.EXTEND)) == [*template, "-S", "-incoming", "defer"]


def test_other_files_and_sockets_change_what_is_behind_the_devices_and_no_device() -> None:
    other = Plugs(Path("/c/ram"), Use.BOOT, Path("/c/console"), Path("/c/orders"), Path("/c/recording"), 15, 16)
    first, second = line(SPEC), line(SPEC, other)
    named = {"/t/ram": "/c/ram", "/t/console": "/c/console", "/t/orders": "/c/orders", "/t/recording": "/c/recording"}
    for old, new in {**named, "fd=5": "fd=15", "fd=6": "fd=16"}.items():
        assert 1 == sum(old in word for word in first), old
        first = [word.replace(old, new) for word in first]
    assert second == first
    assert values(line(SPEC), "-device") == values(second, "-device")


@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: f"{spec.role}-{spec.accelerator}")
def test_only_a_recorder_under_tcg_counts_instructions(spec: MachineSpec) -> None:
    words = line(spec)
    assert ("-icount" in words) is (spec.role is Role.RECORDER and spec.accelerator is Accelerator.TCG)
    assert 1 == len(values(words, "-accel"))
    assert values(words, "-accel")[0].split(",")[0] == spec.accelerator.partition("-")[0]
    assert f"RIG_ROLE={spec.role}" in values(words, "-append")[0].split()


def test_under_kvm_a_guest_has_the_processor_of_the_host_or_all_but_the_feature_that_qemu_cannot_set() -> None:
    def processor(accelerator: Accelerator) -> list[str]:
        return values(line(replace(SPEC, accelerator=accelerator)), "-cpu")

    assert ["host"] == processor(Accelerator.KVM)
    assert ["host,-arch-capabilities"] == processor(Accelerator.KVM_WITHOUT_ARCH_CAPABILITIES)


@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: f"{spec.role}-{spec.accelerator}")
def test_a_guest_has_no_network_a_sandbox_and_read_only_disks(spec: MachineSpec) -> None:
    words = line(spec, replace(PLUGS, use=Use.CLONE))
    assert (["none"], []) == (values(words, "-nic"), values(words, "-netdev"))
    assert ["on,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny,spawn=deny"] == values(words, "-sandbox")
    assert [] == values(words, "-drive")
    disks = values(words, "-blockdev")
    assert 2 == len(disks)
    assert all({"read-only=on", "file.read-only=on"} < set(disk.split(",")) for disk in disks)
    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(words)
    assert ["640"] == values(words, "-m")
    assert "size=640M" in values(words, "-object")[0]


def test_commas_in_paths_are_doubled_where_qemu_parses_options_and_nowhere_else() -> None:
    folder = Path("/a,b")
    spec = replace(SPEC, kernel=folder / "vmlinuz", initrd=folder / "initrd", root_disk=folder / "root")
    words = line(spec, Plugs(folder / "ram", Use.CLONE, folder / "console", folder / "orders", folder / "rec", 5, 6))
    assert (["/a,b/vmlinuz"], ["/a,b/initrd"]) == (values(words, "-kernel"), values(words, "-initrd"))
    parsed = (
        values(words, "-object") + values(words, "-fw_cfg") + values(words, "-blockdev") + values(words, "-chardev")
    )
    for name in ("ram", "console", "orders", "rec", "root"):
        assert 1 == sum(f"/a,,b/{name}" in word for word in parsed), name
    assert all("/a,b" not in word for word in parsed)


def test_every_word_is_text_of_its_own_and_the_program_comes_first() -> None:
    words = argv("/opt/qemu system", SPEC, PLUGS)
    assert "/opt/qemu system" == words[0]
    assert all(type(word) is str and word for word in words)
