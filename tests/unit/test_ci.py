"""Continuous integration: it notices everything that tests leave behind, and property tests try new examples."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.host.test_host import alive

ROOT = Path(__file__).resolve().parents[2]


def checkout(folder: Path, recipe: str, goal: str = "test") -> list[str]:
    """Make a checkout with one goal that is a line of shell, and return the command that checks it."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    recipes = dict.fromkeys(("test", "docs", "rest"), "@:") | {goal: recipe}
    (folder / "Makefile").write_text("".join(f"{name}:\n\t{line}\n" for name, line in recipes.items()))
    return [str(folder / ".ci" / "check")]


def temporary(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir()
    # Under `make test` the inner make would inherit flags and print its directory.
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return {**own, "TMPDIR": str(folder / "tmp")}


def ends(pid: str) -> bool:
    """Whether a killed process ends, which takes a moment on a busy machine."""
    until_s = time.monotonic() + 30
    while alive(int(pid)) and time.monotonic() < until_s:
        time.sleep(0.02)
    return not alive(int(pid))


@pytest.mark.parametrize("goal", ["test", "docs", "rest"])
def test_the_check_is_as_green_as_each_goal_where_nothing_is_left(tmp_path: Path, goal: str) -> None:
    for code in (0, 7):
        folder = tmp_path / str(code)
        folder.mkdir()
        command = checkout(folder, f"@echo ran; sleep 0.1 & exit {code}", goal)
        done = subprocess.run(command, env=temporary(folder), capture_output=True, text=True, check=False, timeout=60)
        # make returns 2 if a recipe fails.
        assert ((2 if code else 0), "ran\n") == (done.returncode, done.stdout)
        assert [] == list((folder / "tmp").iterdir())


def test_what_the_tests_leave_behind_is_named_and_ended_and_turns_the_check_red(tmp_path: Path) -> None:
    # The check may end before a process that was just forked is another program.
    waits = "until grep -q sleep /proc/$$!/comm; do :; done"
    command = checkout(tmp_path, f"@setsid sleep 1000 >/dev/null 2>&1 & {waits}; touch $$TMPDIR/rig-socket")
    done = subprocess.run(command, env=temporary(tmp_path), capture_output=True, text=True, check=False, timeout=60)
    assert 1 == done.returncode
    head, process, file = done.stdout.splitlines()
    assert "ci: left behind:" == head
    assert process.endswith(": sleep 1000 ")
    assert f"file {tmp_path / 'tmp' / 'rig-socket'}" == file
    assert ends(process.split()[1].rstrip(":"))


def test_a_check_that_is_told_to_end_takes_what_it_started_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = checkout(tmp_path, f"@sleep 1000 & setsid sleep 1001 & echo $$! >{pids}; sleep 1002")
    with subprocess.Popen(command, env=temporary(tmp_path)) as check:
        until_s = time.monotonic() + 30
        while not (pids.exists() and pids.read_text()) and time.monotonic() < until_s:
            time.sleep(0.02)
        check.send_signal(signal.SIGTERM)
        assert 128 + signal.SIGTERM == check.wait(30)
    assert [] == list((tmp_path / "tmp").iterdir())
    assert ends(pids.read_text())


_INHERITED = "ulimit -S -n; ulimit -S -c; ulimit -S -s; umask; env; grep SigIgn /proc/self/status"


def test_the_checks_have_the_limits_and_the_environment_of_a_login_whatever_their_caller_has() -> None:
    own = {"HOME": "/home-of/someone", "USER": "someone", "LOGNAME": "someone", "SHELL": "/bin/bash"}
    of_the_caller = {"TMPDIR": "/elsewhere", "PYTHONPATH": "/elsewhere", "RIG_CACHE": "/elsewhere", "CI": "true"}
    of_clients = {"PIP_CERT": "/a certificate", "https_proxy": "proxy", "REQUESTS_CA_BUNDLE": "bundle"}

    def odd() -> None:
        os.umask(0o077)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 26, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    done = subprocess.run(
        [ROOT / ".ci" / "login", "bash", "-c", _INHERITED],
        env=own | of_the_caller | of_clients | {"PATH": "/bin"},
        capture_output=True, text=True, check=True, timeout=60, preexec_fn=odd,
    )  # fmt: skip
    open_files, core, stack, umask, *variables, ignored = done.stdout.splitlines()
    assert ("1024", "0", "8192", "0022") == (open_files, core, stack, umask)
    found = dict(line.partition("=")[::2] for line in variables)
    assert own | of_clients == {name: value for name, value in found.items() if name in {*own, *of_clients}}
    assert {"PATH", "LANG", "TERM"} == {*found} - {*own, *of_clients, "PWD", "SHLVL", "_"}
    assert 0 == int(ignored.split()[1], 16) & 1 << signal.SIGINT - 1


def test_property_tests_try_new_examples_each_time_even_where_ci_is_set() -> None:
    program = "from hypothesis import settings as s; import tests.conftest; print(s().derandomize, s().print_blob)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CI": "true"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "False True\n" == done.stdout
