"""Rehearse a user's program: carry it out once in a guest, without a cut (`rig.guest.watch.rehearsal`)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rig.campaign.session import STUCK_SHARE
from rig.contract.errors import HostError
from rig.contract.messages import decode
from rig.contract.orders import ADDED
from rig.contract.scenario import Scenario
from rig.engines.builds import Library
from rig.images import guestcode
from rig.machines.template import Template

# As many as a sample (`rig.guest.watch.sample`) has, and a few of each client.
_TRANSACTION_COUNT, _OF_A_CLIENT_COUNT = 12, 3
_LIMIT_S = 900


@dataclass(frozen=True)
class FileCalls:
    """How often the files of one name were made, changed and synced."""

    made: int
    changed: int
    synced: int
    renamed: int = 0


@dataclass(frozen=True)
class ProgramStep:
    """One start of the program: what was asked, its answer, what it said on standard error, and what was wrong."""

    name: str
    s: float
    answer: str
    last_words: str
    wrong: str
    files: dict[str, FileCalls]
    # Whether it took longer than it may.
    is_stuck: bool = False


def rehearse(scenario: Scenario, program: Library, template: Template) -> Sequence[ProgramStep]:
    """Carry out the steps in a clone of a verifier's template that does not have the program yet.

    Raise HostError if a step took too long because the machine hardly had a processor.
    """
    with_program = replace(scenario, tuning={**scenario.tuning, "library": program.name})
    count = max(_TRANSACTION_COUNT, _OF_A_CLIENT_COUNT * scenario.workload.client_count)
    orders = replace(with_program.orders, transaction_count=count)
    added = guestcode.addition(template.image.rpartition("-")[2], [program], scenario.processor, warms=False)
    with tempfile.NamedTemporaryFile() as file:
        file.write(added)
        file.flush()
        with template.clone(recording=Path(file.name)) as machine:
            machine.send({ADDED: len(added)})
            machine.send({"rehearsal": asdict(orders)})
            steps = [decode(ProgramStep, step) for step in machine.receive(_LIMIT_S)["steps"]]
            had_s, took_s = machine.answered_in_s, sum(step.s for step in steps)
    if steps[-1].is_stuck and had_s < STUCK_SHARE * took_s:
        raise HostError(
            f"{steps[-1].name}: {steps[-1].wrong}, but the machine had a processor for only {had_s:.1f} s of "
            f"{took_s:.1f} s: this host is too busy, try again later"
        )
    return steps
