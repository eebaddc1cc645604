"""What the launcher starts, it starts for the process that asked for it, and for no other."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rig.sandbox.sandbox import Sandbox, of_system

_NOT_STARTED = 125


def test_nothing_starts_for_a_process_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(shutil.which("true") or "").resolve()
    paths, links = of_system(program)
    sandbox = Sandbox("emulator", 64 << 20, paths, {}, links=links)
    assert 0 == subprocess.run(sandbox.command([str(program)]), check=False).returncode
    # The launcher finds another parent than the one that made the command, as after its death.
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        orphaned = sandbox.command([str(program)])
    assert _NOT_STARTED == subprocess.run(orphaned, check=False).returncode
