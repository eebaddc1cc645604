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

from rig.faults.choosing.selection import Budget, Plan
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
    def __call__(self, log: WriteLog, log_epochs: Sequence[Epoch], budget: Budget) -> Plan: ...


class Fault(StrEnum):
    """Fault models; the value is the spelling in fault specifications."""

    # None for two disks, which are planned from both logs.
    states: _States | None
    # None for a disk that lies.
    rule: Rule | None

    def __new__(cls, word: str, states: _States | None, rule: Rule | None = None) -> Self:
        """Make a model from its word, its function, and the rule that its states obey."""
        model = str.__new__(cls, word)
        model._value_ = word
        model.states = states
        model.rule = rule
        return model

    @classmethod
    def of(cls, word: str) -> Self:
        """Return the model with this word; raise KeyError for an unknown word."""
        return cls[word.upper()]

    POWERCUT = "powercut", powercut.states, Rule.WHOLE
    TORN = "torn", torn.states, Rule.TORN
    SHORN = "shorn", shorn.states, Rule.SHORN
    OSCRASH = "oscrash", oscrash.states, Rule.SEEN
    PLP = "plp", plp.states, Rule.ORDERED
    DISCARD = "discard", discard.states, Rule.DISCARDS
    # The rule holds for each disk, see `rig.faults.legality.jointlegality`.
    TWODISK = "twodisk", None, Rule.WHOLE
    LYINGFLUSH = "lyingflush", lyingflush.states
    BITFLIP = "bitflip", bitflip.states
    MISDIRECTED = "misdirected", misdirected.states
    LOSTRANGE = "lostrange", lostrange.states
    BITROT = "bitrot", bitrot.states


def plan(
    fault: Fault,
    logs: Logs,
    among: Sequence[Epoch] | None = None,
    *,
    first_entry: int,
    states_max: int,
    seed: int,
    first_ack: int = 0,
) -> Plan:
    """Plan up to `states_max` crash states of a fault, cut after entry `first_entry`; deterministic under `seed`.

    `among` limits the cuts to these epochs of the first log. `first_ack` is the entry of the first acknowledgement:
    what comes before it has a share of the states (0: there is no such entry, or it does not matter).
    """
    budget = Budget(first_entry, states_max, seed, first_ack)
    if fault.states:
        return fault.states(logs.first, logs.epochs if among is None else among, budget)
    if among is not None:
        raise ValueError("two disks have no epochs in common, so no epochs can be chosen")
    first_mark = logs.pair.mark_number(first_entry)
    return twodisk.states(logs.pair, logs.pair_index, first_mark=first_mark, states_max=states_max, seed=seed)
