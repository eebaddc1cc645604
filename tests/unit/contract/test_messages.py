"""Data from JSON: everything comes back as it went, and what does not fit is named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.messages import decode


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Loose(TypedDict):
    size: int


@dataclass(frozen=True)
class Inner:
    count: int
    share: float


@dataclass(frozen=True)
class Outer:
    name: str
    colour: Colour
    inner: Inner
    is_open: bool
    pair: tuple[int, str]
    many: tuple[Inner, ...] = ()
    rows: Sequence[tuple[int, bool]] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    loose: Sequence[Loose] = field(default_factory=list)
    maybe: Inner | None = None


INNER = st.builds(Inner, st.integers(), st.floats(allow_nan=False, allow_infinity=False))
OUTER = st.builds(
    Outer, st.text(), st.sampled_from(Colour), INNER, st.booleans(), st.tuples(st.integers(), st.text()),
    st.lists(INNER, max_size=3).map(tuple), st.lists(st.tuples(st.integers(), st.booleans()), max_size=3),
    st.dictionaries(st.text(), st.integers(), max_size=3),
    st.lists(st.fixed_dictionaries({"size": st.integers()}), max_size=2), st.none() | INNER,
)  # fmt: skip


@given(OUTER)
def test_data_comes_back_from_json_as_it_went(data: Outer) -> None:
    assert data == decode(Outer, json.loads(json.dumps(asdict(data))))


def test_what_is_absent_has_its_default_and_what_is_foreign_is_an_error_unless_allowed() -> None:
    whole = asdict(Outer("a", Colour.RED, Inner(1, 2.0), is_open=True, pair=(1, "b")))
    wanted = {name: whole[name] for name in ("name", "colour", "inner", "is_open", "pair")}
    assert decode(Outer, whole) == decode(Outer, wanted) == decode(Outer, wanted | {"foreign": 1}, allow_more=True)
    with pytest.raises(ValueError, match="manx: no such field"):
        decode(Outer, wanted | {"manx": []})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("name", 1, "name: 1 is no str"),
        ("name", None, "name: None is no str"),
        ("colour", "green", "colour: 'green' is not a valid Colour"),
        ("inner", {"count": "x", "share": 1}, "inner: count: 'x' is no int"),
        ("inner", {"count": True, "share": 1}, "inner: count: True is no int"),
        ("inner", {"count": 1.0, "share": 1}, "inner: count: 1.0 is no int"),
        ("inner", {"count": 1, "share": float("nan")}, "inner: share: nan is no float"),
        ("inner", [], "inner: [] is no dict"),
        ("is_open", 1, "is_open: 1 is no bool"),
        ("pair", [1], "pair: zip"),
        ("many", "ab", "many: 'ab' is no list"),
        ("rows", [[1, 1]], "rows: 1 is no bool"),
        ("counts", {"a": None}, "counts: None is no int"),
        ("counts", [], "counts: [] is no dict"),
        ("maybe", 0, "maybe: 0 is no dict"),
    ],
)
def test_a_field_without_a_fitting_value_is_named(name: str, value: Any, words: str) -> None:
    whole = asdict(Outer("a", Colour.RED, Inner(1, 2.0), is_open=True, pair=(1, "b")))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are compared below
        decode(Outer, {**whole, name: value})
    assert str(caught.value).startswith(words)


def test_a_field_that_is_absent_and_has_no_default_is_named() -> None:
    with pytest.raises(TypeError, match="'share'"):
        decode(Inner, {"count": 1})
    with pytest.raises(ValueError, match="3 is no dict"):
        decode(Inner, 3)  # type: ignore[arg-type]
