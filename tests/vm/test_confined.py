"""What a machine may do on its host: each kind is started with no way to more privileges."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.machines.pool import Clones
from rig.machines.template import Template


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}


@pytest.mark.representative
def test_no_machine_can_get_privileges_that_its_user_has_not(checker: Clones, recorder: Template) -> None:
    with checker.clone() as verifying, recorder.clone() as recording:
        for machine in (verifying, recording):
            assert "1" == status(machine.process.pid)["NoNewPrivs"]
            for child in Path(f"/proc/{machine.process.pid}/task/{machine.process.pid}/children").read_text().split():
                assert "1" == status(int(child))["NoNewPrivs"]
