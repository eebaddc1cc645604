"""Templates and clones: identical at the start, independent afterwards, made once; a failed boot is never silent."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rig.campaign.session import VerifierSession
from rig.contract.errors import VmError
from rig.engines.builds import Library
from rig.faults import CrashState, WriteLog, epochs, everything_unflushed_lost
from rig.filesystems.ext import DISK_MIB
from rig.images import guestcode
from rig.images.image import Image
from rig.machines import template as vm_template
from rig.machines.argv import Role
from rig.machines.machine import Machine
from rig.machines.template import Template, template
from rig.recordings.archive import Recording
from tests.vm.samples import Recorder, open_recording, scenario_of

_ANSWER_LIMIT_S = 30
_ZEROS_SHA256 = hashlib.sha256(bytes(DISK_MIB << 20)).hexdigest()
_NOTHING = {"state": "nothing", "advance": "", "extents": "", "digest": True}


@pytest.fixture(scope="module")
def wal_normal(recorded: Recorder) -> Recording:
    return recorded(scenario_of("wal_normal"))


@pytest.fixture
def log(wal_normal: Recording) -> Iterator[tuple[Path, WriteLog]]:
    with open_recording(wal_normal) as (path, opened_log):
        yield path, opened_log


def content(machine: Machine) -> str:
    machine.send(_NOTHING)
    return str(machine.receive(_ANSWER_LIMIT_S)["sha256"])


def test_clones_answer_apart_and_neither_they_nor_their_death_change_the_template(
    verifier: Template, image: Image, log: tuple[Path, WriteLog]
) -> None:
    path, write_log = log
    with verifier.clone(recording=path) as one, verifier.clone() as other:
        session = VerifierSession(one, scenario_of("wal_normal"), write_log)
        other.send(asdict(scenario_of("delete_off").orders))
        assert {"ready": True} == one.receive(_ANSWER_LIMIT_S)
        assert {"ready": True} == other.receive(_ANSWER_LIMIT_S)
        one.send({**_NOTHING, "advance": session.request(whole_disk(write_log))["advance"]})
        changed = str(one.receive(_ANSWER_LIMIT_S)["sha256"])
        assert changed not in {_ZEROS_SHA256, content(other)}
        assert _ZEROS_SHA256 == content(other)
        other.process.kill()
        with pytest.raises(VmError, match="virtual machine"):
            content(other)
        assert changed == content(one)
    with verifier.clone() as third:
        third.send(asdict(scenario_of("delete_off").orders))
        third.receive(_ANSWER_LIMIT_S)
        assert _ZEROS_SHA256 == content(third)
    assert verifier.identity == vm_template.content_digest(verifier.folder)
    with template(Role.VERIFIER, image) as again:
        assert verifier == again


def whole_disk(log: WriteLog) -> CrashState:
    return everything_unflushed_lost(log, epochs(log), log.entry_count)


def test_a_failed_boot_is_tried_again_and_said_aloud_and_the_template_is_then_reused(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    patient_s = vm_template._BOOT_LIMIT_S
    monkeypatch.setattr(vm_template, "_BOOT_LIMIT_S", 0.2)

    class PatientAfterAWarning(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            vm_template._BOOT_LIMIT_S = patient_s

    handler = PatientAfterAWarning(logging.WARNING)
    vm_template._log.addHandler(handler)
    try:
        with template(Role.VERIFIER, image) as first, first.clone() as machine:
            assert machine.process.poll() is None
        with template(Role.VERIFIER, image) as second:
            assert first == second
    finally:
        vm_template._log.removeHandler(handler)
    (warning,) = caplog.records
    assert "boot 1 of the verifier failed, trying again" in warning.getMessage()
    assert "no RIG-READY within 0.2 s" in warning.getMessage()
    assert [first.folder] == vm_template.remove_templates()


def test_when_every_boot_fails_the_error_tells_what_the_console_said(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    broken = replace(image, folder=tmp_path)
    (tmp_path / "vmlinuz").symlink_to(image.kernel)
    (tmp_path / "root.img").symlink_to(image.root_disk)
    (tmp_path / "initrd.cpio").write_bytes(b"")
    monkeypatch.setattr(guestcode, "_CODE", ())
    with pytest.raises(VmError, match=r"(?s)3 boots of the verifier failed.*panic"), template(Role.VERIFIER, broken):
        pass
    assert not list((tmp_path / "cache" / "templates").glob("*/identity"))


def test_other_guest_code_makes_another_template(
    verifier: Template, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(verifier.spec, initrd=image.initrd)
    name = f"verifier-{vm_template._digest(spec, image, guestcode.common(image.digest))}"
    assert verifier.folder.name == name
    monkeypatch.setattr(guestcode, "_CODE", guestcode._CODE[:-1])
    assert name != f"verifier-{vm_template._digest(spec, image, guestcode.common(image.digest))}"
    assert name != f"verifier-{vm_template._digest(replace(spec, memory_mib=641), image, b'')}"


def test_what_comes_from_outside_is_added_to_the_template_without_it_and_other_content_makes_another(
    verifier: Template, image: Image, tmp_path: Path
) -> None:
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\nexit 1\n")
    library = Library("program", "elf-0", path)
    begun = (verifier.folder / "console").stat().st_mtime_ns
    with template(Role.VERIFIER, image, libraries=[library]) as first, first.clone() as machine:
        machine.send({"ping": True})
        assert {"pong": True} == machine.receive(_ANSWER_LIMIT_S)
    assert verifier.identity == vm_template.content_digest(verifier.folder) != first.identity
    assert begun == (verifier.folder / "console").stat().st_mtime_ns
    path.write_text("#!/bin/sh\nexit 2\n")
    with template(Role.VERIFIER, image, libraries=[library]) as second:
        assert 3 == len({verifier.folder, first.folder, second.folder})
        assert first.folder.exists()


def test_a_template_can_be_shared_and_is_not_removed_while_it_is_in_use(
    verifier: Template, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with template(Role.VERIFIER, image) as shared:
        assert verifier == shared
    # The templates of other images stay: to make them again takes minutes.
    (tmp_path / "templates").mkdir()
    for path in (verifier.folder, Path(f"{verifier.folder}.lock")):
        (tmp_path / "templates" / path.name).symlink_to(path)
    monkeypatch.setenv("RIG_CACHE", str(tmp_path))
    assert not vm_template.remove_templates()
    assert verifier.folder.exists()


def test_orders_that_do_not_fit_are_refused(recorder: Template) -> None:
    with pytest.raises(VmError, match="orders of 5000 bytes do not fit into 4096"), recorder.clone(orders=b"x" * 5000):
        pass


def test_a_template_whose_state_is_damaged_is_named(verifier: Template, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes((verifier.folder / "state").read_bytes()[:1000])
    for name in ("ram", "initrd.cpio"):
        (tmp_path / name).symlink_to(verifier.folder / name)
    with pytest.raises(VmError, match="could not be restored"), replace(verifier, folder=tmp_path).clone():
        pass
