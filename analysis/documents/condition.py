"""Thresholds as data: `wal.lost_max == 0`, `read_back == 'wal'`, `bytes_right > 2 * bytes_document`.

A condition compares a figure with a number, a word in quotes, `true` or `false`, or with another figure, which may be
multiplied by a number. Anything else is an error where the claim is loaded, not where it is judged.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rig.contract.errors import UsageError

Figure = int | float | str | bool
# None: measured, but without a value, such as the largest loss where no state was judged.
Figures = Mapping[str, "Figure | None"]

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_NAME = r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?"
_NUMBER = r"-?\d+(?:\.\d+)?"
_CONDITION = re.compile(
    rf"(?P<name>{_NAME}) (?P<operator>[=!<>]=|[<>]) "
    rf"(?:(?P<number>{_NUMBER})|'(?P<word>[^']*)'|(?P<truth>true|false)|"
    rf"(?:(?P<factor>{_NUMBER}) \* )?(?P<other>{_NAME}))"
)


@dataclass(frozen=True)
class Condition:
    """One comparison; `other` names a figure, which `factor` multiplies, or is empty and `value` is compared with."""

    name: str
    operator: str
    value: Figure = 0
    other: str = ""
    factor: float = 1

    @property
    def text(self) -> str:
        """Return the condition as it is written in the file of claims."""
        if self.other:
            return f"{self.name} {self.operator} {f'{self.factor:g} * ' if self.factor != 1 else ''}{self.other}"
        if isinstance(self.value, bool):
            return f"{self.name} {self.operator} {str(self.value).lower()}"
        value = f"'{self.value}'" if isinstance(self.value, str) else str(self.value)
        return f"{self.name} {self.operator} {value}"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the figures that the condition needs."""
        return (self.name, self.other) if self.other else (self.name,)

    def holds(self, figures: Figures) -> bool:
        """Return whether the figures meet the condition; raise KeyError for one that is missing or has no value."""
        for name in self.names:
            if figures.get(name) is None:
                raise KeyError(name)
        left, right = figures[self.name], self.value
        if self.other:
            other = figures[self.other]
            right = other if self.factor == 1 or not isinstance(other, int | float) else other * self.factor  # type: ignore[assignment]
        if isinstance(left, str) is not isinstance(right, str):
            raise KeyError(self.name)
        return _OPERATORS[self.operator](left, right)


def parse(text: str) -> Condition:
    """Return the condition that a text states; raise UsageError if the text is no condition."""
    match = _CONDITION.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is no condition; write for example: lost_max <= 1")
    value: Figure = 0
    if match["number"]:
        value = float(match["number"]) if "." in match["number"] else int(match["number"])
    elif match["truth"]:
        value = match["truth"] == "true"
    elif match["word"] is not None:
        value = match["word"]
    if isinstance(value, str | bool) and match["operator"] not in {"==", "!="}:
        raise UsageError(f"{text!r} orders words or truth values; these can only be equal (==) or not (!=)")
    return Condition(match["name"], match["operator"], value, match["other"] or "", float(match["factor"] or 1))


def all_hold(conditions: tuple[Condition, ...], figures: Figures) -> bool:
    """Return whether there are conditions and all are met."""
    return bool(conditions) and all(condition.holds(figures) for condition in conditions)
