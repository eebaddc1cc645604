"""A test that leaves something behind is red and names it, and so is one that there was no time for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Each starts pytest.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Body of a test -> how what it leaves behind is named.
LEAKS = {
    "more_files(); kept.extend(os.open('/dev/null', os.O_RDONLY) for _ in range(2000))": "2000 descriptors: ",
    "kept.append(open(path, 'w+b')); kept[0].truncate(4096); os.unlink(path)": "1 descriptors: ",
    "with open(path, 'w+b') as f: f.truncate(9); kept.append(mmap.mmap(f.fileno(), 9)); os.unlink(path)":
        "1 mappings of deleted files: ",
    "kept.append(threading.Thread(target=time.sleep, args=(2,))); kept[0].start()": "1 threads: Thread-",
    "kept.append(subprocess.Popen(['sleep', '2']))": "1 children: process ",
    "kept.append(os.fork()) or kept[-1] or os._exit(0); time.sleep(0.2)": "has ended, and nobody waited for it",
    "ctypes.CDLL(None).prctl(36, 1)": "1 adoptions of orphans: ",
    # The product's own: an engine that leaves its files open when its session is closed.
    "more_files(); [session(tmp_path / str(number)) for number in range(2000)]": "2000 descriptors: ",
}  # fmt: skip
_MODULE = """
import ctypes, mmap, os, resource, subprocess, threading, time
from rig.engines.files import driver
from rig.engines.own import Task
kept = []

def more_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def session(folder):
    folder.mkdir()
    one = driver.session(None, Task({{'pattern': 'append-fsync'}}, str(folder), 1, 9))
    one.commit(1)
    one.close()

def test_it(tmp_path):
    path = str(tmp_path / "file")
    {body}

def test_another():
    pass
"""


def pytest_on(folder: Path, body: str, **environment: str) -> str:
    (folder / "test_it.py").write_text(_MODULE.format(body=body))
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", "-p", "no:cacheprovider", folder / "test_it.py"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize(("body", "named"), LEAKS.items())
def test_a_test_that_leaves_something_behind_is_red_and_names_it(body: str, named: str, tmp_path: Path) -> None:
    said = pytest_on(tmp_path, body)
    assert f"the test left behind: {named}" in said or ("the test left behind: " in said and named in said), said
    assert "2 passed, 1 error" in said, said


def test_a_test_that_gives_back_all_that_it_took_is_green(tmp_path: Path) -> None:
    assert "2 passed in" in pytest_on(tmp_path, "open(path, 'w').close(); subprocess.run(['true'])")


def test_a_test_that_has_not_begun_in_time_is_named_and_red(tmp_path: Path) -> None:
    said = pytest_on(tmp_path, "assert False, 'it ran'", RIG_TESTS_END=str(time.time() - 1))
    assert "2 errors" in said
    assert "it ran" not in said
    for name in ("test_it", "test_another"):
        assert f"ERROR at setup of {name} " in said, said
    assert 2 == said.count("not run: the time for all tests (RIG_TESTS_END) is over")
