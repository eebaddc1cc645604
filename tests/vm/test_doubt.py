"""Doubt in real recordings: what a program overwrites before it is durable is known, or else the run says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig.faults import LogFile, epochs
from rig.recordings import archive
from rig.recordings.timeline import Timeline
from rig.store import Run
from tests.unit.engines import outside as engines

RIG = Path(sys.executable).with_name("rig")
OVERWRITTEN, RACED = (f"blocks-ext4-always_{word}_powercut" for word in ("overwritten", "raced"))
_LIMIT_S = 1200
_SPEC = {
    '"sync": ("always", "never")}': '"sync": ("always", "never"), "block": ("overwritten", "raced")}',
    '("always",)': '("always_overwritten", "always_raced")',
    '("always", "never"),\n    warm': "(),\n    warm",
}
# The log, and a block next to it that is written past the page cache; with O_DSYNC Linux writes it with FUA. It is
# written again only when the log is closed. Either FUA follows a plain write at the end of the setup, without a FLUSH
# between them; or after the setup the two are in flight together.
_OPEN = "    return AppendLog(directory, settings)"
_BLOCK = """    return Blocks(directory, settings)


class Blocks(AppendLog):
    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        super().__init__(directory, settings)
        self._kind = settings["block"]
        self._has_written = False

    def settings(self) -> dict[str, str]:
        return super().settings() | {"block": self._kind}

    def create(self, tables: Sequence[Table], rows: Sequence[Operation]) -> None:
        super().create(tables, rows)
        self._block(b"a")
        os.sync()
        if self._kind == "overwritten":
            self._block(b"b")
            self._block(b"c", os.O_DSYNC)

    def commit(self, operations: Sequence[Operation]) -> None:
        if self._kind == "raced" and not self._has_written:
            import threading

            other = threading.Thread(target=self._block, args=(b"c", os.O_DSYNC))
            other.start()
            self._block(b"d")
            other.join()
            self._has_written = True
        super().commit(operations)

    def close(self) -> None:
        if self._has_written or self._kind == "overwritten":
            self._block(b"z")
        super().close()

    def _block(self, fill: bytes, flags: int = 0) -> None:
        import mmap

        data = mmap.mmap(-1, 4096)
        data.write(fill * 4096)
        file = os.open(Path(self._directory) / "block", os.O_RDWR | os.O_CREAT | os.O_DIRECT | flags)
        os.pwrite(file, data, 0)
        os.close(file)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run both on a disk with delays, so that two requests can be in flight together."""
    folder = tmp_path_factory.mktemp("blocks")
    engines.write(folder, "blocks", driver={_OPEN: _BLOCK}, spec=_SPEC)
    words = ("--no-controls", "--device", "hdd7200", OVERWRITTEN, RACED, "--run-dir", folder / "run")
    said = subprocess.run(
        [RIG, "run", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=_LIMIT_S,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(folder)},
    )  # fmt: skip
    return folder / "run", said


def doubtful(folder: Path, scenario_id: str) -> Iterator[list[bool]]:
    """Yield which epochs that can be cut are doubtful: as judged, and by the log alone."""
    run = Run.open(folder)
    recording = archive.load(run.recording_folder(run.scenario(scenario_id)))
    assert recording
    with recording.unpack() as file:
        for one in (file, replace(file, traces=())):
            yield _doubtful(one)


def _doubtful(file: LogFile) -> list[bool]:
    with file.open() as logs:
        setup = Timeline(logs.first.marks).setup.entry_index
        return [epoch.doubtful for epoch in epochs(logs.first) if epoch.end > setup]


def test_a_block_overwritten_with_fua_at_the_end_of_the_setup_puts_nothing_in_doubt(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, said = ran
    judged, alone = doubtful(folder, OVERWRITTEN)
    assert sum(alone) > len(alone) / 2, said.stdout + said.stderr
    assert not any(judged)
    assert f"inconclusive {OVERWRITTEN}: control never" in said.stdout


def test_a_recording_of_which_most_epochs_are_in_doubt_is_inconclusive_by_that_name(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, said = ran
    judged, _ = doubtful(folder, RACED)
    assert sum(judged) > len(judged) / 2, said.stdout + said.stderr
    assert 3 == said.returncode
    (line,) = [line for line in said.stdout.splitlines() if line.startswith(f"inconclusive {RACED}: ")]
    assert f"{sum(judged)} of {len(judged)} epochs are doubtful and could hardly be cut" in line
    assert re.search(r"byte \d+ of the disk was written with FUA and, as entry \d+, without", line)
    assert "record with another --seed" in line
    assert line.split(": ", 1)[1].partition("; ")[0] in (folder / "report.html").read_text()
