"""A user-mode machine shows what an emulated one shows, in every byte, or its answer does not count."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.judging.outcome import summarise
from rig.analysis.show.table import table_text
from rig.campaign import campaign
from rig.campaign.session import VerifierSession
from rig.contract.errors import VmError
from rig.contract.findings import Finding, FindingKind
from rig.contract.results import VerdictKind
from rig.faults import CrashState, Fault, Logs, WriteLog, plan
from rig.images import cpio
from rig.machines import usermode
from rig.machines.guests import Machines
from rig.machines.machine import Machine
from rig.machines.template import Template
from rig.machines.usermode import UserMode
from rig.planning import matrix
from rig.planning.matrix import Profile
from rig.recordings.timeline import Timeline
from rig.store import Run
from tests.vm.samples import SHORT, Recorder, check, findings, open_recording, scenario_of


def plan_states(log: WriteLog, fault: Fault, count: int) -> list[CrashState]:
    setup = Timeline(log.marks).setup.entry_index
    return list(plan(fault, Logs(log), first_entry=setup, states_max=count, seed=1).states)


def summaries(found: list[Finding]) -> list[tuple[str, int | None, str, str, bool]]:
    return [(one.kind, one.recovered, one.detail, one.files, one.opened) for one in found]


@pytest.mark.parametrize("settings", ["wal_full", pytest.param("delete_off", marks=pytest.mark.representative)])
@pytest.mark.parametrize("fault", [Fault.POWERCUT, Fault.SHORN])
def test_both_kinds_of_machines_show_the_same(
    settings: str, fault: Fault, verifier: Template, user_mode: UserMode, recorded: Recorder
) -> None:
    scenario = scenario_of(settings)
    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(log, fault, 60)
        emulated, native = (summaries(findings(scenario, machines, log, states)) for machines in (verifier, user_mode))
    assert emulated == native
    assert len({files for _, _, _, files, _ in native}) > 5, "alike states would be alike in any machine"
    assert settings == "wal_full" or {"prefix"} < {kind for kind, *_ in native}, "no state is damaged"


@pytest.mark.parametrize("word", ["ext2", "ext3", "xfs", "btrfs", "nfs"])
def test_both_kinds_of_machines_have_the_file_system(
    word: str, verifier: Template, user_mode: UserMode, recorded: Recorder
) -> None:
    scenario = replace(scenario_of("wal_full"), filesystem=word)
    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(log, Fault.POWERCUT, 12)
        emulated, native = (summaries(findings(scenario, machines, log, states)) for machines in (verifier, user_mode))
    assert emulated == native
    assert {"prefix"} == {kind for kind, *_ in native}


@dataclass(frozen=True)
class Meddled(UserMode):
    """Machines that are each meddled with after some answers."""

    meddle: Callable[[Machine], None] = lambda _: None

    @contextmanager
    def clone(self, *, recording: Path | None = None) -> Iterator[Machine]:
        with super().clone(recording=recording) as machine:
            self.meddle(machine)
            yield machine


def meddle_with(source: UserMode, meddle: Callable[[Machine], None]) -> Meddled:
    return Meddled(source.kernel, source.guest, source.initrd, meddle)


@pytest.mark.parametrize("lost_count", [2, 8])
def test_a_state_whose_machine_is_lost_is_judged_in_the_other_kind_and_after_three_all_are(
    lost_count: int, verifier: Template, user_mode: UserMode, recorded: Recorder
) -> None:
    scenario = scenario_of("wal_full")
    clones: list[Machine] = []

    def kill(machine: Machine) -> None:
        clones.append(machine)
        if len(clones) <= lost_count:
            os.kill(machine.pid, signal.SIGKILL)

    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(log, Fault.POWERCUT, 8)
        source = meddle_with(user_mode, kill)
        found = list(check(scenario, source, log, states, reference=verifier))
        expected = findings(scenario, verifier, log, states)
    assert [(one.kind, one.files) for one in expected] == [(one.kind, one.files) for one in found]
    assert 3 == len(clones), "one that holds goes on, and after three that did not no further one is started"


@pytest.mark.representative
def test_a_scenario_on_which_the_two_kinds_disagree_is_judged_anew_by_the_emulator_alone(
    recorder: Template, verifier: Template, user_mode: UserMode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a lying machine found before it was found out is no broken promise, and fires no control."""
    ids = ["sqlite-ext4-wal_full_powercut"]
    scenarios = [replace(one, workload=SHORT) for one in matrix.select(ids)]
    machines = Machines(recorder, verifier, user_mode)
    profile = Profile("tiny", SHORT.transaction_count, 60, 20, exposure_min=5, repeats="none", side_states_max=80)
    run = Run.create(tmp_path / "run", {"scenarios": ids})
    true = VerifierSession._finding

    def lying(self: VerifierSession, state: CrashState, answer: dict[str, Any]) -> Finding:
        found = true(self, state, answer)
        is_native = "linux" in Path(f"/proc/{self._machine.pid}/comm").read_text()
        return replace(found, kind=FindingKind.UNOPENABLE, recovered=None) if is_native else found

    monkeypatch.setattr(VerifierSession, "_finding", lying)
    campaign.Campaign(run, profile, machines, campaign.Silent()).measure(scenarios)
    ((measured,), damaged) = run.results()
    assert ({}, []) == (run.failures(), damaged)
    assert measured.plan.state_count == len(measured.verdicts)
    assert {VerdictKind.DURABLE} == {one.kind for one in measured.verdicts}
    words = "judged under emulation alone, because two kinds of machines disagree on "
    assert measured.plan.emulated_because.startswith(words)
    assert words in table_text(summarise([measured], 5))


@pytest.mark.parametrize("part", ["recovered", "files", "kind"])
@pytest.mark.representative
def test_nothing_counts_if_the_two_kinds_disagree(
    part: str, verifier: Template, user_mode: UserMode, recorded: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_of("wal_full")
    wrong: dict[str, Any] = {"recovered": 1, "files": "of another disk", "kind": FindingKind.UNOPENABLE}
    true = VerifierSession._finding

    def lying(self: VerifierSession, state: CrashState, answer: dict[str, Any]) -> Finding:
        found = true(self, state, answer)
        is_native = "linux" in Path(f"/proc/{self._machine.pid}/comm").read_text()
        return replace(found, **{part: wrong[part]}) if is_native and state == states[-1] else found

    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(log, Fault.POWERCUT, 8)
        assert 8 == len(list(check(scenario, user_mode, log, states, reference=verifier)))
        monkeypatch.setattr(VerifierSession, "_finding", lying)
        with pytest.raises(VmError, match=r"(?s)two kinds of machines disagree on .* of sqlite-ext4-wal_full_powercut"):
            list(check(scenario, user_mode, log, states, reference=verifier))


def test_a_finding_that_may_be_the_machines_doing_is_the_other_kinds_to_make(
    verifier: Template, user_mode: UserMode, recorded: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_of("wal_full")
    true = VerifierSession._finding

    def get_stuck(self: VerifierSession, state: CrashState, answer: dict[str, Any]) -> Finding:
        is_native = "linux" in Path(f"/proc/{self._machine.pid}/comm").read_text()
        found = true(self, state, answer)
        return replace(found, kind=FindingKind.STUCK) if is_native else found

    monkeypatch.setattr(VerifierSession, "_finding", get_stuck)
    with open_recording(recorded(scenario)) as (_, log):
        states = plan_states(log, Fault.POWERCUT, 3)
        found = list(check(scenario, user_mode, log, states, reference=verifier))
    assert ["prefix"] * 3 == [one.kind for one in found]


def test_messages_of_any_length_arrive_and_are_answered(user_mode: UserMode) -> None:
    draw = random.Random(1)
    with user_mode.clone() as machine:
        for size in (
            1,
            4000,
            4096,
            5000,
            100_000,
            8_000_000,
            7_000_000,
            *(draw.randrange(1, 9000) for _ in range(400)),
        ):
            machine.send({"ping": "x" * size})
            assert {"pong": True} == machine.receive(60)
        # Ahead of the answers, as a session sends them.
        for _ in range(4):
            machine.send({"ping": "x" * 8_000_000})
        assert [{"pong": True}] * 4 == [machine.receive(60) for _ in range(4)]
        with pytest.raises(VmError, match="a message of 9000012 bytes is too long"):
            machine.send({"ping": "x" * 9_000_000})


@pytest.mark.representative
def test_threads_keep_their_registers(tmp_path: Path) -> None:
    """The kernel keeps the registers of the threads of a process apart, up to the widest of this processor.

    The program is all there is in the machine: its process 1.
    """
    (tmp_path / "registers.c").write_text(_REGISTERS)
    build = ["gcc", "-O2", "-static", "-pthread", "-o", "registers", "registers.c"]
    subprocess.run(build, cwd=tmp_path, check=True)
    devices = {"dev/.keep": (b"", 0o644), "init": ((tmp_path / "registers").read_bytes(), 0o755)}
    (tmp_path / "initrd").write_bytes(cpio.archive(devices))
    command = [
        "./linux", "mem=64M", f"initrd={tmp_path / 'initrd'}", "root=/dev/ram0", "con=null", "con0=null,fd:1",
        "console=tty0", "quiet", "uml_dir=/proc/self/",
    ]  # fmt: skip
    folder = usermode.build().folder
    environment = os.environ | usermode.kernel_environment(folder)
    kinds = 1 + ("avx2" in usermode.flags()) + ("avx512f" in usermode.flags())
    switches = 0
    # On a busy host a machine once ran all threads to their ends without a tick, which shows nothing.
    for _ in range(5):
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=False, timeout=300)
        said = done.stdout.decode()
        assert f"kinds {kinds} switches " in said
        assert "wrong 0" in said
        switches = int(said.partition("switches ")[2].split()[0])
        if switches > 100:
            break
    assert switches > 100


# Each of four threads fills registers of each kind with a value of its own, spins, and looks.
_REGISTERS = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPIN "1: sub $1, %1\n\tjnz 1b\n\t"
static long wrong;

__attribute__((noinline)) static long sse(uint64_t value, uint64_t n) {
    uint64_t found;
    __asm__ volatile("movq %2, %%xmm7\n\t" SPIN "movq %%xmm7, %0"
                     : "=r"(found), "+r"(n) : "r"(value) : "xmm7", "cc");
    return found != value;
}
__attribute__((noinline, target("avx2"))) static long avx(uint64_t value, uint64_t n) {
    uint64_t found;
    __asm__ volatile("vmovq %2, %%xmm8\n\tvpbroadcastq %%xmm8, %%ymm9\n\t" SPIN
                     "vextracti128 $1, %%ymm9, %%xmm8\n\tvmovq %%xmm8, %0"
                     : "=r"(found), "+r"(n) : "r"(value) : "xmm8", "xmm9", "cc");
    return found != value;
}
__attribute__((noinline, target("avx512f"))) static long avx512(uint64_t value, uint64_t n) {
    uint64_t high, mask;
    __asm__ volatile("vpbroadcastq %3, %%zmm30\n\tkmovw %k3, %%k5\n\t"
                     "1: sub $1, %2\n\tjnz 1b\n\t"
                     "vextracti64x4 $1, %%zmm30, %%ymm6\n\tvmovq %%xmm6, %0\n\tkmovw %%k5, %k1"
                     : "=r"(high), "=r"(mask), "+r"(n) : "r"(value) : "xmm6", "xmm30", "k5", "cc");
    return high != value || (uint16_t)mask != (uint16_t)value;
}
static void *work(void *number) {
    uint64_t value = 0x0123456789abcdef * (uint64_t)number;
    for (int i = 0; i < 60; i++) {
        long bad = sse(value, 10000000);
        if (__builtin_cpu_supports("avx2")) bad += avx(value + 1, 10000000);
        if (__builtin_cpu_supports("avx512f")) bad += avx512(value + 2, 10000000);
        __sync_fetch_and_add(&wrong, bad);
    }
    return 0;
}
int main(void) {
    pthread_t threads[4];
    struct rusage used;
    int kinds = 1 + !!__builtin_cpu_supports("avx2") + !!__builtin_cpu_supports("avx512f");
    for (uint64_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    getrusage(RUSAGE_SELF, &used);
    printf("kinds %d switches %ld wrong %ld\n", kinds, used.ru_nivcsw, wrong);
    fflush(stdout);
    reboot(RB_POWER_OFF);
}
"""
