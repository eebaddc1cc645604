"""A noisy neighbour: it syncs its file at its pace, faster while a transaction is under way; the file is no content."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.guest import filecontent
from rig.guest.devices import neighbour


@pytest.fixture(autouse=True)
def socket_in_a_folder_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "_SOCKET", tmp_path / "socket")


def size(folder: Path) -> int:
    path = folder / neighbour.FOLDER / "file"
    return path.stat().st_size if path.exists() else 0


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_it_syncs_without_a_pause_while_a_transaction_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a word from the workload it would sync once.
    monkeypatch.setattr(neighbour, "_IDLE_MS", 10**6)
    folder = tmp_path / "mounted"
    folder.mkdir()
    with neighbour.beside(str(folder), 9):
        wait_until(lambda: size(folder) > 0)
        assert 512 == size(folder)
        with neighbour.busy():
            # The last record that it has written may not be synced yet.
            wait_until(lambda: size(folder) > 512 * 9)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert not (tmp_path / "socket").exists()


def test_one_that_syncs_too_seldom_is_an_error(tmp_path: Path) -> None:
    words = r"the neighbour synced its file [1-9]\d* times, and not at least 1000000"
    with pytest.raises(RuntimeError, match=words), neighbour.beside(str(tmp_path), 10**6):
        # It has written the second record, so it has synced the first.
        wait_until(lambda: size(tmp_path) > 512)


def test_one_that_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "_RECORD", "no bytes")
    with pytest.raises(RuntimeError, match="synced its file 0 times"), neighbour.beside(str(tmp_path), 1):
        wait_until((tmp_path / neighbour.FOLDER / "file").exists)


def test_its_folder_is_no_part_of_the_file_content(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "own").write_text("data")
    before = filecontent.digest(str(folder))
    with neighbour.beside(str(folder), 1):
        wait_until(lambda: size(folder) > 512)
    assert before == filecontent.digest(str(folder))
    (folder / "other").write_text("data")
    assert before != filecontent.digest(str(folder))
