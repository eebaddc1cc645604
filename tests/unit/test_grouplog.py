"""The example with group commit says the same in its languages, on this host; the machines are left out.

The one in Go is carried out by its README: no other test needs a compiler for Go.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from rig.host import processes

FOLDER = Path(__file__).parents[2] / "examples" / "grouplog"
RECORD_BYTES = 600


@pytest.fixture(scope="module", params=["grouplog.c", "grouplog", "grouplog.js"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program in a language."""
    source = FOLDER / str(request.param)
    if source.suffix != ".c":
        return source
    binary = tmp_path_factory.mktemp("c") / "grouplog"
    command = ["cc", "-static", "-pthread", "-Wall", "-Werror", "-o", str(binary), str(source)]
    processes.run(command, timeout_s=60)
    return binary


def fill_the_disk() -> None:
    """Let files of this process hold five records and a part of the sixth."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * RECORD_BYTES + 100, 5 * RECORD_BYTES + 100))


def carry_out(program: Path, folder: Path, *words: str, is_full: bool = False) -> list[str]:
    """Return the lines of a run, each `ack` and `fail` answered as the rig does."""
    command = [str(program), "run", "--seed", "7", *words]
    environment = {**os.environ, "RIG_SEED": "7", "RIG_TRANSACTIONS": words[1], "RIG_CLIENTS": "4"}
    lines = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=fill_the_disk if is_full else None,  # noqa: PLW1509 - this process has no other thread
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        for line in process.stdout:
            lines.append(line.rstrip())
            word, number = line.split()[:2]
            if word != "begin":
                process.stdin.write(f"ok {number}\n" if "--clients" in words else "ok\n")
                process.stdin.flush()
    assert 0 == process.returncode
    return lines


def shown(program: Path, folder: Path) -> list[str]:
    environment = {**os.environ, "RIG_SEED": "7"}
    command = [str(program), "recover"]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, check=True, capture_output=True
    ).stdout.splitlines()


def test_it_names_its_steps_and_goes_on_after_what_it_has(program: Path, tmp_path: Path) -> None:
    acks = [f"ack {number} checkpoint" if number % 10 == 0 else f"ack {number}" for number in range(1, 31)]
    assert acks[:24] == carry_out(program, tmp_path, "--transactions", "24")
    # A cut has torn what was written after the last transaction that is shown.
    with (tmp_path / "log").open("a") as log:
        log.write("25 7 xxx")
    assert [f"have {number}" for number in range(1, 25)] == shown(program, tmp_path)
    assert acks[24:] == carry_out(program, tmp_path, "--transactions", "30", "--after", "24")
    assert [f"have {number}" for number in range(1, 31)] == shown(program, tmp_path)


def test_its_clients_have_several_transactions_in_flight(program: Path, tmp_path: Path) -> None:
    lines = carry_out(program, tmp_path, "--transactions", "24", "--clients", "4")
    flights = [sum(1 if line.startswith("begin") else -1 for line in lines[:end]) for end in range(1, len(lines) + 1)]
    assert max(flights) > 1
    assert set(range(1, 25)) == {int(line.split()[1]) for line in lines if line.startswith("ack")}
    assert {f"have {number}" for number in range(1, 25)} == set(shown(program, tmp_path))


def test_it_takes_back_what_failed(program: Path, tmp_path: Path) -> None:
    lines = carry_out(program, tmp_path, "--transactions", "8", is_full=True)
    assert [f"ack {number}" for number in range(1, 6)] == lines[:5]
    assert ["fail 6", "fail 7", "fail 8"] == [" ".join(line.split()[:2]) for line in lines[5:]]
    assert [f"have {number}" for number in range(1, 6)] == shown(program, tmp_path)


def test_a_checkpoint_without_its_record_is_torn(program: Path, tmp_path: Path) -> None:
    carry_out(program, tmp_path, "--transactions", "10")
    os.truncate(tmp_path / "log", 9 * RECORD_BYTES)
    assert "torn 10 the checkpoint names a record that is not there" == shown(program, tmp_path)[-1]
