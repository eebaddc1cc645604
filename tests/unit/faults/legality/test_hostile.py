"""Ids that nobody planned: a mutated id is refused, or it names a state that the independent checker calls legal."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.faults import CrashState, Fault, Logs, StateIdError, WriteLog, epochs, parse_state, plan
from rig.faults.legality.legality import Checker, Rule
from rig.faults.states.damage import Discarded, Garbage
from tests.unit.faults.disks import DISK_SECTORS, ONE_DISK, SECTOR, Op, emit, rebuild_device
from tests.unit.faults.histories import some_logs


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "log"


def mutate(chosen: Random, ids: list[str]) -> str:
    """An id with a few parts dropped, taken from other ids, or with other numbers."""
    text = chosen.choice(ids)
    for _ in range(chosen.randint(1, 3)):
        parts = re.findall(r"\.?[^.]+", text)
        others = re.findall(r"\.?[^.]+", chosen.choice(ids))
        match chosen.randrange(4):
            case 0:
                parts.insert(chosen.randint(1, len(parts)), chosen.choice(others))
            case 1:
                parts[chosen.randrange(len(parts))] = chosen.choice(others)
            case 2 if len(parts) > 2:
                parts.pop(chosen.randrange(1, len(parts)))
            case _:
                rank = chosen.randrange(len(parts))
                numbers = list(re.finditer(r"(?<![0-9a-f])\d{1,9}(?![0-9a-f])", parts[rank]))
                for number in chosen.sample(numbers, min(1, len(numbers))):
                    other = max(0, int(number.group()) + chosen.choice([-8, -1, 1, 2, 7, 8]))
                    part = parts[rank]
                    parts[rank] = f"{part[: number.start()]}{other}{part[number.end() :]}"
        text = "".join(parts)
    return text


def rule_of(state: CrashState) -> Rule | None:
    """The rule that an honest disk's state obeys; None if the disk lies."""
    kinds = {type(damage) for damage in state.damages}
    if state.window or kinds - {Garbage, Discarded}:
        return None
    if Garbage in kinds:
        return Rule.SHORN
    is_torn = state.tears or (state.draw and state.draw.unit_bytes)
    return Rule.DISCARDS if kinds else Rule.TORN if is_torn else Rule.WHOLE


@pytest.mark.parametrize("faults", [[Fault.SHORN], ONE_DISK], ids=["shorn", "all"])
@settings(max_examples=30)
@given(entries=some_logs(12, writes_max=6, fills=[0, 1, 2], with_discards=True), seed=st.integers(0, 2**32 - 1))
def test_a_mutated_id_is_refused_or_names_a_legal_state(
    place: Path, faults: list[Fault], entries: list[Op], seed: int
) -> None:
    emit(place, [*entries, Op("mark")], 1)
    chosen = Random(seed)
    with WriteLog.open(place) as log:
        states_max = 24 if len(faults) == 1 else 4
        plans = (plan(fault, Logs(log), first_entry=-1, states_max=states_max, seed=1) for fault in faults)
        ids = [state.id for one in plans for state in one.states]
        checker, split = Checker(log, DISK_SECTORS * SECTOR), epochs(log)
        for _ in range(40 if ids else 0):
            text = mutate(chosen, ids)
            try:
                state = parse_state(text, log, split)
            except StateIdError:
                continue
            assert state.id == text
            if rule := rule_of(state):
                answer = checker.check(rebuild_device(log, state), state.latest_instant, rule)
                assert "legal" == str(answer), text


def test_a_discard_takes_effect_only_beside_whole_writes(place: Path) -> None:
    """No rule of the checker covers torn writes and discards together, and no fault makes them."""
    before = [Op("write", 0, 8, 1), Op("flush"), Op("discard", 0, 2)]
    emit(place, [*before, Op("write", 4, 4, 2), Op("flush"), Op("mark")], 1)
    with WriteLog.open(place) as log:
        assert "e4.f0.w3.d2" == parse_state("e4.f0.w3.d2", log, epochs(log)).id
        for torn in (".t3:512:0", ".r0000000000000000p50u512"):
            assert f"e4.f0{torn}" == parse_state(f"e4.f0{torn}", log, epochs(log)).id
            with pytest.raises(StateIdError, match="whole writes"):
                parse_state(f"e4.f0{torn}.d2", log, epochs(log))
