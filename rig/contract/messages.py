"""Frozen data from JSON: orders, findings, and everything that the rig stores.

`dataclasses.asdict` makes a message. `decode` is its inverse and reads the types of the fields, so that no class has
code of its own for it. It knows numbers, texts, closed sets of words, None, sequences, mappings, and data within data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_Data = TypeVar("_Data")


def decode(kind: Callable[..., _Data], message: Mapping[str, Any], *, allow_more: bool = False) -> _Data:
    """Return the data of a message; raise ValueError or TypeError that names a field without a fitting value.

    Fields that a message lacks have their defaults. A field that the class does not have is an error: its name may be
    damaged. Say so if the message may carry more.
    """
    readers, values = _readers(kind), {}
    for name, value in _expect(dict, message).items():
        if name not in readers:
            if allow_more:
                continue
            raise ValueError(f"{name}: no such field")
        try:
            values[name] = readers[name](value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return kind(**values)


@cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what makes a value of a type from its form in JSON."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if NoneType in parts:
        (some,) = (_reader(part) for part in parts if part is not NoneType)
        return lambda value: None if value is None else some(value)
    if isinstance(origin, type) and is_dataclass(origin):
        return partial(decode, origin)
    if issubclass(origin, Mapping):
        member = _reader(parts[1]) if parts else lambda value: value
        return lambda value: {name: member(part) for name, part in _expect(dict, value).items()}
    if origin is tuple and parts[-1] is not Ellipsis:
        members = [_reader(part) for part in parts]
        return lambda value: tuple(read(part) for read, part in zip(members, value, strict=True))
    if origin in {tuple, Sequence}:
        member, made = _reader(parts[0]), tuple if origin is tuple else list
        return lambda value: made(map(member, _expect(list, value)))
    return origin if issubclass(origin, Enum) else partial(_expect, origin)


def _expect(kind: type[Any], value: Any) -> Any:
    """Return a value of a type; raise ValueError for any other. A truth value is no number, and NaN is none either."""
    is_alike = isinstance(value, {float: int | float, list: list | tuple}.get(kind, kind))
    if not is_alike or (kind is not bool and isinstance(value, bool)) or (kind is float and not math.isfinite(value)):
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value
