"""Reads the claims: one TOML file for each document, in this folder. Every error names file, claim and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from rig.analysis.documents.claim import (
    Awaits,
    Claim,
    ClaimVerdict,
    Document,
    Experiment,
    GuestProbe,
    Probe,
    Reading,
    Scenarios,
    Speed,
    SummaryLine,
)
from rig.analysis.documents.condition import Condition, parse
from rig.contract.errors import UsageError

FOLDER = Path(__file__).parent
SUMMARY_LINES = 5
_T = TypeVar("_T")
# Arm -> its scenarios.
Arms = Mapping[str, tuple[str, ...]]
_ID = re.compile(r"S\d-\d+")
_FIELD = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?")
_KINDS = ("probe", "guest", "scenarios", "speed", "reading", "awaits")
_CLAIM_KEYS = {
    "id", "line", "says", "metric", "control", "fires", "confirm", "refute", "imprecise", "seen", "truth",
    "documentation", "source", "controls", "shows", *_KINDS,
}  # fmt: skip
_SPEED_KEYS = {"experiment", "over", "under", "metric", "filesystem", "load"}
_DOCUMENT_KEYS = {"id", "file", "about", "claim", "summary"}


def documents(folder: Path = FOLDER) -> tuple[Document, ...]:
    """Return all documents in the order of their ids; raise UsageError for the first mistake in a file."""
    known = arms_of((folder / "arms.toml").read_text(encoding="utf-8"), "arms.toml")
    paths = sorted(folder.glob("S*.toml"))
    loaded = [document_of(path.read_text(encoding="utf-8"), path.name, known) for path in paths]
    ids = [document.id for document in loaded]
    if len(set(ids)) != len(ids):
        raise UsageError(f"{folder}: two files have the same document id; there are: {', '.join(ids)}")
    return tuple(loaded)


def arms_of(text: str, name: str) -> Arms:
    """Return the arms that a text describes, each with its scenarios."""
    arms = {}
    for arm, ids in _table(text, name).items():
        if not isinstance(ids, list) or not ids or not all(isinstance(scenario_id, str) for scenario_id in ids):
            raise UsageError(f"{name}, {arm}: a list of scenarios is wanted, not {ids!r}")
        arms[arm] = tuple(ids)
    return arms


def document_of(text: str, name: str, known: Arms) -> Document:
    """Return the document that a text describes; errors name the file `name`."""
    place = _Place(name, _table(text, name), _DOCUMENT_KEYS)
    own = place.word("id")
    claims = tuple(
        _claim(table, f"{name}, claim {index}", known) for index, table in enumerate(place.tables("claim"), 1)
    )
    ids = [claim.id for claim in claims]
    for claim in claims:
        if ids.count(claim.id) > 1:
            raise UsageError(f"{name}, {claim.id}: this id occurs {ids.count(claim.id)} times")
        if not claim.id.startswith(f"{own}-"):
            raise UsageError(f"{name}, {claim.id}: a claim of this document has an id that begins with {own}-")
    lines = tuple(
        _line(table, f"{name}, summary {index}", ids) for index, table in enumerate(place.tables("summary"), 1)
    )
    if len(lines) != SUMMARY_LINES:
        raise UsageError(f"{name}, summary: it has {len(lines)} lines, {SUMMARY_LINES} are wanted")
    return Document(own, place.word("file"), place.word("about"), claims, lines)


def _table(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}") from None


class _Place:
    """One table of a file, read key by key; every error names the place."""

    def __init__(self, where: str, table: Any, keys: set[str]) -> None:
        if not isinstance(table, dict):
            raise UsageError(f"{where}: a table is wanted, not {table!r}")
        self.where = where
        self.table: Mapping[str, Any] = table
        if strange := sorted(set(table) - keys):
            raise UsageError(f"{where}: unknown key {strange[0]!r}; there are: {', '.join(sorted(keys))}")

    def word(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty, or the default."""
        if key not in self.table and default is not None:
            return default
        value = self._value(key, str, "a text")
        if not value.strip():
            raise UsageError(f"{self.where}, {key}: the text is empty")
        return value

    def number(self, key: str) -> int:
        """Return a number from 1 on."""
        value = self._value(key, int, "a number")
        if isinstance(value, bool) or value < 1:
            raise UsageError(f"{self.where}, {key}: a number from 1 on is wanted, not {value!r}")
        return value

    def tables(self, key: str) -> list[Any]:
        """Return a list of tables, empty without the key."""
        return self._value(key, list, "a list") if key in self.table else []

    def conditions(self, key: str) -> tuple[Condition, ...]:
        """Return the conditions in a list, empty without the key."""
        conditions = []
        for text in self._value(key, list, "a list") if key in self.table else []:
            try:
                conditions.append(parse(text if isinstance(text, str) else repr(text)))
            except UsageError as error:
                raise UsageError(f"{self.where}, {key}: {error}") from None
        return tuple(conditions)

    def arms(self, key: str, known: Arms) -> Arms:
        """Return the arms that a list names, with their scenarios; empty without the key."""
        names = self._value(key, list, "a list") if key in self.table else []
        for name in names:
            if not isinstance(name, str) or name not in known:
                raise UsageError(f"{self.where}, {key}: unknown arm {name!r}; there are: {', '.join(known)}")
        return {name: known[name] for name in names}

    def check(self, key: str, make: Callable[[str], _T]) -> _T:
        """Return what `make` makes of a text."""
        try:
            return make(self.word(key))
        except (ValueError, KeyError):
            raise UsageError(f"{self.where}, {key}: {self.table[key]!r} is not one of its words") from None

    def _value(self, key: str, kind: type[_T], what: str) -> _T:
        if key not in self.table:
            raise UsageError(f"{self.where}: {key} is missing")
        value = self.table[key]
        if not isinstance(value, kind):
            raise UsageError(f"{self.where}, {key}: {what} is wanted, not {value!r}")
        return value


def _claim(table: Any, where: str, known: Arms) -> Claim:
    place = _Place(where, table, _CLAIM_KEYS)
    name = place.word("id")
    if not _ID.fullmatch(name):
        raise UsageError(f"{where}, id: {name!r} is no id of a claim; write for example S0-1")
    place.where = f"{where.partition(',')[0]}, {name}"
    experiment = _experiment(place, known)
    is_open = isinstance(experiment, Reading | Awaits)
    claim = Claim(
        id=name,
        line=place.number("line"),
        says=place.word("says"),
        experiment=experiment,
        metric=place.word("metric", "" if is_open else None),
        control=place.word("control", "" if is_open or isinstance(experiment, Speed) else None),
        fires=place.conditions("fires"),
        confirm=place.conditions("confirm"),
        refute=place.conditions("refute"),
        imprecise=place.conditions("imprecise"),
        seen=place.word("seen", "" if is_open else None),
        truth=place.word("truth", ""),
        documentation=place.word("documentation"),
        source=place.word("source"),
    )
    _check(claim, place.where)
    return claim


def _experiment(place: _Place, known: Arms) -> Experiment:
    kinds = [kind for kind in _KINDS if kind in place.table]
    if len(kinds) != 1:
        raise UsageError(f"{place.where}: exactly one of {', '.join(_KINDS)} is wanted, not {len(kinds)}")
    if kinds[0] == "probe":
        return Probe(place.word("probe"))
    if kinds[0] == "guest":
        filesystem, dot, name = place.word("guest").partition(".")
        if not dot:
            raise UsageError(f"{place.where}, guest: write FILESYSTEM.PROBE, not {filesystem!r}")
        return GuestProbe(filesystem, name)
    if kinds[0] == "scenarios":
        named, shows = place.arms("scenarios", known), place.word("shows", "")
        arm, _, what = shows.partition(".")
        if shows and (arm not in named or what not in {"lost", "damaged"}):
            raise UsageError(f"{place.where}, shows: {shows!r} is not ARM.lost or ARM.damaged of its scenarios")
        return Scenarios(named, place.arms("controls", known), shows)
    if kinds[0] == "speed":
        arms = _Place(f"{place.where}, speed", place.table["speed"], _SPEED_KEYS)
        optional = (arms.word(key, "") for key in ("metric", "filesystem", "load"))
        return Speed(arms.word("experiment"), arms.word("over"), arms.word("under"), *optional)
    if kinds[0] == "reading":
        verdict = place.check("reading", ClaimVerdict)
        if verdict is ClaimVerdict.NOT_MEASURED:
            raise UsageError(f"{place.where}, reading: what is not measured says why: use awaits")
        return Reading(verdict)
    return Awaits(place.word("awaits"))


def _check(claim: Claim, where: str) -> None:
    """Raise UsageError if a claim could never be judged, or its sentences could never be filled in."""
    for key, text in (("seen", claim.seen), ("truth", claim.truth)):
        try:
            names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
        except ValueError as error:
            raise UsageError(f"{where}, {key}: {error}") from None
        if bad := [name for name in names if not _FIELD.fullmatch(name)]:
            raise UsageError(f"{where}, {key}: {bad[0]!r} in braces is not the name of a figure")
    if isinstance(claim.experiment, Awaits):
        return
    if isinstance(claim.experiment, Reading):
        if claim.experiment.verdict is not ClaimVerdict.CONFIRMED and not claim.truth:
            raise UsageError(f"{where}: truth is missing: what is true instead")
        return
    if not (claim.confirm or claim.refute or claim.imprecise):
        raise UsageError(f"{where}: no threshold: one of confirm, refute, imprecise is wanted")
    if (claim.refute or claim.imprecise) and not claim.truth:
        raise UsageError(f"{where}: truth is missing: what is true instead")
    if not claim.fires and not isinstance(claim.experiment, Speed):
        raise UsageError(f"{where}: fires is missing: when its control has fired")


def _line(table: Any, where: str, ids: list[str]) -> SummaryLine:
    place = _Place(where, table, {"text", "rests_on"})
    rests_on = place.table.get("rests_on")
    if not isinstance(rests_on, dict) or not rests_on:
        raise UsageError(f"{where}, rests_on: a table of claims and their verdicts is wanted")
    inner = _Place(f"{where}, rests_on", rests_on, set(ids))
    return SummaryLine(place.word("text"), {name: inner.check(name, ClaimVerdict) for name in rests_on})
