"""The list of fault models, and how to add one.

A new fault model is a module here, one line of `Fault`, and a `FaultSpec` whose `model` is the word of that line. The
module says in prose which states it makes and why each is legal, and has one function with the arguments of
`powercut.states`. The function builds states with `rig.faults.states.state`, so `rig.faults.states.addresses` can read
their ids. The line names the word, that function, and the rule of `rig.faults.legality.legality` against which an
independent checker tests the states. A disk that lies has no rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, Self

from rig.faults.choosing.selection import Plan
from rig.faults.legality.legality import Rule
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.models import (
    bitflip,
    bitrot,
    discard,
    lostrange,
    lyingflush,
    misdirected,
    oscrash,
    plp,
    powercut,
    shorn,
    torn,
    twodisk,
)
from rig.faults.states.logs import Logs


class _States(Protocol):
    def __call__(
        self, log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int
    ) -> Plan: ...


class _Planner(Protocol):
    def __call__(
        self, logs: Logs, among: Sequence[Epoch] | None, *, first_entry: int, states_max: int, seed: int
    ) -> Plan: ...


def _of_one_disk(states: _States) -> _Planner:
    def planned(logs: Logs, among: Sequence[Epoch] | None, *, first_entry: int, states_max: int, seed: int) -> Plan:
        log_epochs = logs.epochs if among is None else among
        return states(logs.first, log_epochs, first_entry=first_entry, states_max=states_max, seed=seed)

    return planned


def _of_two_disks(logs: Logs, among: Sequence[Epoch] | None, *, first_entry: int, states_max: int, seed: int) -> Plan:
    if among is not None:
        raise ValueError("two disks have no epochs in common, so no epochs can be chosen")
    first_mark = logs.pair.mark_number(first_entry)
    return twodisk.states(logs.pair, logs.pair_index, first_mark=first_mark, states_max=states_max, seed=seed)


class Fault(StrEnum):
    """Fault models; the value is the spelling in fault specifications."""

    planner: _Planner
    # None for a disk that lies.
    rule: Rule | None

    def __new__(cls, word: str, planner: _Planner, rule: Rule | None = None) -> Self:
        """Make a model from its word, its planner, and the rule that its states obey."""
        model = str.__new__(cls, word)
        model._value_ = word
        model.planner = planner
        model.rule = rule
        return model

    @classmethod
    def of(cls, word: str) -> Self:
        """Return the model with this word; raise KeyError for an unknown word."""
        return cls[word.upper()]

    POWERCUT = "powercut", _of_one_disk(powercut.states), Rule.WHOLE
    TORN = "torn", _of_one_disk(torn.states), Rule.TORN
    SHORN = "shorn", _of_one_disk(shorn.states), Rule.SHORN
    OSCRASH = "oscrash", _of_one_disk(oscrash.states), Rule.SEEN
    PLP = "plp", _of_one_disk(plp.states), Rule.ORDERED
    DISCARD = "discard", _of_one_disk(discard.states), Rule.DISCARDS
    # The rule holds for each disk, see `rig.faults.legality.jointlegality`.
    TWODISK = "twodisk", _of_two_disks, Rule.WHOLE
    LYINGFLUSH = "lyingflush", _of_one_disk(lyingflush.states)
    BITFLIP = "bitflip", _of_one_disk(bitflip.states)
    MISDIRECTED = "misdirected", _of_one_disk(misdirected.states)
    LOSTRANGE = "lostrange", _of_one_disk(lostrange.states)
    BITROT = "bitrot", _of_one_disk(bitrot.states)


def plan(
    fault: Fault,
    logs: Logs,
    among: Sequence[Epoch] | None = None,
    *,
    first_entry: int,
    states_max: int,
    seed: int,
) -> Plan:
    """Plan up to `states_max` crash states of a fault, cut after entry `first_entry`; deterministic under `seed`.

    `among` limits the cuts to these epochs of the first log.
    """
    return fault.planner(logs, among, first_entry=first_entry, states_max=states_max, seed=seed)
