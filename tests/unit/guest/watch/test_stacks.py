"""The call stack of a thread that waits in a system call, and that it goes on as if nobody had looked."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from rig.guest.watch.stacks import interrupted_stack
from rig.host import processes

# One function has a name as a compiler of C++ makes it.
_SOURCE = """
#include <unistd.h>
char read_page(void) __asm__("_ZN5table9read_pageEv");
__attribute__((noinline)) char read_page(void) { char page = 0; read(0, &page, 1); return page + 1; }
__attribute__((noinline)) void commit(void) { char answer = read_page(); write(1, &answer, 1); }
int main(void) { commit(); return 0; }
"""
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", [["-O2"], ["-O2", "-static"], ["-O0", "-fno-omit-frame-pointer"]])
def test_a_waiting_thread_tells_its_functions_and_makes_its_call_again(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "source.c").write_text(_SOURCE)
    processes.run(["cc", *how, "-o", str(tmp_path / "program"), str(tmp_path / "source.c")], timeout_s=60)
    with subprocess.Popen([tmp_path / "program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        until_s = time.monotonic() + 60
        # Until it is in `read` of its standard input.
        while not Path(f"/proc/{process.pid}/syscall").read_text().startswith("0 0x0 "):
            assert time.monotonic() < until_s
        for _ in range(2):
            stack = interrupted_stack(process.pid)
            assert stack
            own = [name for name in stack if name in {"table::read_page", "commit", "main"}]
            assert ["table::read_page", "commit", "main"] == own, stack
        printed, _ = process.communicate(b"A")
    assert (b"B", 0) == (printed, process.returncode)


def test_a_thread_that_has_ended_has_no_stack() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert interrupted_stack(process.pid) is None
