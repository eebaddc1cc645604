"""The findings of a run in a few sentences, for the head of the report.

They cover the main faults, or the others if no main fault was run; the grid shows all faults. Faults with the same
finding share a sentence. Among equally fast settings the sentence names the one that syncs least.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rig.analysis.dossiers import Keeps
from rig.analysis.judging.metrics import Outcome
from rig.analysis.judging.outcome import Result, Row, Summary
from rig.analysis.show.table import damage_text, number
from rig.contract.faultspecs import MAIN_FAULTS
from rig.contract.scenario import is_default
from rig.engines import find_engine

# Rates that differ by less than 2 % count as equal.
EQUAL_SHARE = 0.98


def findings(summary: Summary) -> list[str]:
    """Return a few sentences; each names settings and what was measured."""
    # One tuning says nothing about another, and the sentences are about settings.
    rows = [row for row in summary.rows if is_comparable(row) and not row.outcome.scenario.tuned]
    main = [row for row in rows if row.outcome.scenario.fault in MAIN_FAULTS]
    answers: dict[tuple[str, str, str, str], list[_Answer]] = {}
    for fault, same in groupby(sorted(main or rows, key=_place), key=_place):
        answer = _answer(list(same))
        if answer:
            answers.setdefault((fault[0], fault[2], answer.best, answer.fastest), []).append(answer)
    return [
        f"{where}, {_enumeration(outcome.fault for outcome in alike)}, device {device}: {best}{_price(fastest, alike)}"
        for (where, device, best, fastest), alike in answers.items()
    ]


def is_comparable(row: Row) -> bool:
    """Return whether the settings of the row's engine are ways to do the same; assume so for an unknown engine."""
    engine = find_engine(row.outcome.scenario.engine)
    return engine is None or engine.spec.are_alternatives


@dataclass(frozen=True)
class _Answer:
    """The finding of one fault: the best setting that loses nothing, a faster one if any, and its loss."""

    fault: str
    best: str
    fastest: str
    price: str


def _place(row: Row) -> tuple[str, str, str]:
    scenario = row.outcome.scenario
    return f"{scenario.engine} on {scenario.filesystem}", scenario.fault, scenario.device.name


def _answer(rows: Sequence[Row]) -> _Answer | None:
    """Return the finding of one fault's rows; None if every setting lost something.

    Speeds come from the default workload, but a loss with any workload counts against its setting.
    """
    plain = [row for row in rows if row.outcome.scenario.shim == "none" and row.outcome.transactions_per_s]
    honest = [row for row in plain if is_default(row.outcome.scenario.workload_name)]
    losing = [row.outcome.scenario.settings for row in plain if not _loses_nothing(row)]
    lossless = [row.outcome for row in honest if row.outcome.scenario.settings not in losing]
    if not lossless:
        return None
    top = max(map(_speed, lossless))
    equal = sorted((outcome for outcome in lossless if _speed(outcome) >= EQUAL_SHARE * top), key=_strength)
    best, fastest = equal[0], max((row.outcome for row in honest), key=_speed)
    others = [outcome.settings_name for outcome in equal[1:]]
    as_fast = f" ({_enumeration(others)} {'is' if len(others) == 1 else 'are'} as fast)" if others else ""
    text = (
        f"Fastest in which no acknowledged transaction was lost: {best.settings_name}{as_fast}, "
        f"{number(best.transactions_per_s)} transactions per virtual second."
    )
    if _speed(fastest) <= top:
        return _Answer(best.scenario.fault, text, "", "")
    times = f" {fastest.settings_name} is {number(_speed(fastest) / _speed(best))} times as fast and lost "
    return _Answer(best.scenario.fault, text, times, f"up to {fastest.lost_max}, with damage {damage_text(fastest)}")


def _loses_nothing(row: Row) -> bool:
    # Without a promise, a few states that lost nothing say nothing about the others.
    is_promised = row.promise is not None and row.promise.keeps is Keeps.NOTHING_LOST
    seen = row.outcome.database_count and not row.outcome.losing_count
    return bool(seen) and is_promised and row.judgement.result is Result.KEPT


def _speed(outcome: Outcome) -> float:
    return outcome.transactions_per_s or 0.0


def _strength(outcome: Outcome) -> tuple[int, ...]:
    """Return the rank of each setting among the engine's choices, the weakest first; the last setting counts most."""
    settings = outcome.scenario.settings
    engine = find_engine(outcome.scenario.engine)
    choices = engine.spec.settings if engine else {}
    return tuple(choices[name].index(settings[name]) for name in reversed(list(choices)))


def _price(fastest: str, answers: Sequence[_Answer]) -> str:
    """Say what the fastest setting loses: once if the loss is the same under all faults, otherwise for each fault."""
    if not fastest:
        return ""
    prices: dict[str, list[str]] = {}
    for answer in answers:
        prices.setdefault(answer.price, []).append(answer.fault)
    if len(prices) == 1:
        return f"{fastest}{answers[0].price}."
    return fastest + "; ".join(f"{price}, under {_enumeration(faults)}" for price, faults in prices.items()) + "."


def _enumeration(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
