"""A life: a seeded walk through what a database goes through. The ledger does only a part of this.

The walk deals cards: in each round of `ROUND` transactions every kind of transaction and of event comes up, in an order
drawn from the seed, so a short run has seen them all. Transactions change one page, or more pages than a small cache
holds. Rows are longer than a page, or empty. Savepoints are nested, kept and rolled back. Tables and indexes are made
and dropped along with changes of rows. `rig.workloads.events` lists the events. Every `FLOOD_EVERY` transactions one
transaction adds 20 MB and the next removes them: only a long run has this.

A transaction updates at least one row of `item`, which then holds its number, so no two contents are equal. Everything
follows from (seed, number), but to know what transaction `number` finds, the walk goes through all transactions before.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from rig.workloads.events import ALONE, Event, EventKind
from rig.workloads.operations import Content, Draft, Operation, Row, Skill, Table, Verb, apply
from rig.workloads.seeds import seed_at

ITEM_COUNT = 48
# With these the rows of `item` have some gaps and neighbours.
_ITEM_KEYS = range(1, 2 * ITEM_COUNT + 1)
_ITEM_CHARS = (0, 150, 200)
# Lengths of long rows, from nothing to several pages.
_LONG_CHARS = (0, 1, 900, 6000, 15_000)
# A batch is more than the cache holds; its rows have keys of their own.
_BATCH_FIRST_KEY, _BATCH_COUNT, _BATCH_CHARS = 10_000, 6, 9000
FLOOD_EVERY = 60
_FLOOD_AT, _FLOOD_FIRST_KEY, _FLOOD_COUNT, _FLOOD_CHARS = 55, 1_000_000, 52, 400_000
# How many transactions a reader holds its snapshot.
_HELD = (2, 4)
# The share of events after which nothing happens for a while.
_IDLE_SHARE = 1 / 4
_Any = TypeVar("_Any")

# Without an index on `item`, the update of one of its rows changes one page.
TABLES = (
    Table("item", (("stamp", int), ("name", str), ("body", str))),
    Table("long", (("stamp", int), ("body", str))),
)
LATER = (Table("extra", (("stamp", int), ("note", str)), index="stamp"),)
CREATES = True
TRANSACTIONS_MAX: int | None = None
NEEDS: frozenset[Skill] = frozenset()
# The index that transactions make and drop.
_INDEXED = Table("long", TABLES[1].columns, index="stamp")


def initial(seed: int) -> tuple[Operation, ...]:
    """Return the inserts that make the content before transaction 1."""
    choice = random.Random(f"life {seed}")
    keys = sorted(choice.sample(_ITEM_KEYS, ITEM_COUNT))
    texts = _Texts(f"life {seed} 0")
    items = [Operation(Verb.INSERT, "item", key, _item(0, key, texts(200))) for key in keys]
    return (*items, *(Operation(Verb.INSERT, "long", key, (0, texts(2000))) for key in (1, 2)))


def transaction(seed: int, number: int) -> tuple[Operation, ...]:
    """Return the operations of transaction `number`, counted from 1."""
    return step(seed, number).operations


def events(seed: int, number: int) -> tuple[Event, ...]:
    """Return what happens just before transaction `number`."""
    return step(seed, number).events


def later_transaction(seed: int, lives: tuple[int, ...], number: int) -> tuple[Operation, ...]:
    """Return the operations of transaction `number` where cuts have ended lives, see `rig.workloads.seeds.seed_at`."""
    return _step(seed, lives, number, CARDS).operations


@dataclass(frozen=True)
class Step:
    """One step of the walk, and what it leaves."""

    operations: tuple[Operation, ...]
    events: tuple[Event, ...]
    content: Content
    has_index: bool = False
    # The transaction before which the reader lets go of its snapshot; 0 if no snapshot is held.
    held_until: int = 0


def step(seed: int, number: int, cards: tuple[Card, ...] = ()) -> Step:
    """Return one step of the walk that deals these cards, by default `CARDS`."""
    return _step(seed, (), number, cards or CARDS)


def _step(seed: int, lives: tuple[int, ...], number: int, cards: tuple[Card, ...]) -> Step:
    steps = _steps(seed, lives, cards)
    while len(steps) <= number:
        steps.append(_next(seed_at(seed, lives, len(steps)), len(steps), steps[-1], cards))
    return steps[number]


@lru_cache(maxsize=8)
def _steps(seed: int, lives: tuple[int, ...], cards: tuple[Card, ...]) -> list[Step]:  # noqa: ARG001 - a list for each
    content: Draft = {table.name: {} for table in TABLES}
    apply(content, initial(seed))
    return [Step((), (), content)]


def _next(seed: int, number: int, last: Step, cards: tuple[Card, ...]) -> Step:
    happened, held_until = _events(seed, number, last)
    draft = _Draft(f"life {seed} {number}", number, last)
    part = number % FLOOD_EVERY - _FLOOD_AT
    card = _FLOODS.get(part, _deal(f"cards {seed}", number, cards)[0])
    card(draft)
    if card in _SPILLING:
        happened = (*happened, Event(EventKind.SYNC))
    content = {name: dict(rows) for name, rows in last.content.items()}
    operations = tuple(draft.operations)
    apply(content, operations)
    return Step(operations, happened, content, draft.has_index, held_until)


class _Draft:
    """Makes one transaction, and knows what it may still change: no row twice."""

    def __init__(self, label: str, number: int, last: Step) -> None:
        self.choice = random.Random(label)
        self.number = number
        self.operations: list[Operation] = []
        self.has_index = last.has_index
        self.texts = _Texts(label)
        self._content = last.content
        self._touched: set[tuple[str, int]] = set()

    def has(self, table: str) -> bool:
        return table in self._content

    def do(self, *verbs: Verb) -> None:
        self.operations += [Operation(verb) for verb in verbs]

    def make(self, verb: Verb, table: Table) -> None:
        self.operations.append(Operation(verb, table.name, made=table))

    def items(self, count: int) -> None:
        """Update some items; every transaction does, outside of what it rolls back."""
        for key in self._free("item", count):
            self._put(Verb.UPDATE, "item", key, _item(self.number, key, self.texts(self.choice.choice(_ITEM_CHARS))))

    def exchange(self, count: int) -> None:
        """Delete some items, and insert as many under keys that are not in use."""
        unused = [key for key in _ITEM_KEYS if key not in self._content["item"]]
        for key in self._free("item", count):
            self._put(Verb.DELETE, "item", key)
        for key in self.choice.sample(unused, count):
            self._put(Verb.INSERT, "item", key, _item(self.number, key, self.texts(150)))

    def insert(self, table: str, key: int, chars: int) -> None:
        self._put(Verb.INSERT, table, key, (self.number, self.texts(chars)))

    def update(self, table: str, key: int, chars: int) -> None:
        self._put(Verb.UPDATE, table, key, (self.number, self.texts(chars)))

    def delete(self, table: str, keys: Sequence[int]) -> None:
        for key in keys:
            self._put(Verb.DELETE, table, key)

    def keys(self, table: str, first: int = 0, end: int = 1 << 62) -> list[int]:
        """Return the keys from `first` to before `end` that were there before."""
        return [key for key in self._content[table] if first <= key < end]

    def _free(self, table: str, count: int) -> list[int]:
        return self.choice.sample([key for key in self._content[table] if (table, key) not in self._touched], count)

    def _put(self, verb: Verb, table: str, key: int, row: Row = ()) -> None:
        self._touched.add((table, key))
        self.operations.append(Operation(verb, table, key, row))


def _one_page(draft: _Draft) -> None:
    draft.items(1)


def _several(draft: _Draft) -> None:
    draft.items(3)
    draft.exchange(2)
    if draft.has("extra"):
        draft.insert("extra", 100 + draft.number, 100)


def _grow(draft: _Draft) -> None:
    """Make long rows and empty ones."""
    draft.items(1)
    for key in range(2):
        draft.insert("long", 10 * draft.number + key, draft.choice.choice(_LONG_CHARS))
    draft.insert("long", 10 * draft.number + 2, _LONG_CHARS[-1])


def _change(draft: _Draft) -> None:
    """Let two long rows shrink or grow, and rewrite the last batch: more pages that were there than the cache holds."""
    draft.items(1)
    for key in draft.keys("long", end=_BATCH_FIRST_KEY)[-2:]:
        draft.update("long", key, draft.choice.choice(_LONG_CHARS))
    for key in draft.keys("long", _BATCH_FIRST_KEY, _FLOOD_FIRST_KEY):
        draft.update("long", key, _BATCH_CHARS)


def _shrink(draft: _Draft) -> None:
    """Delete the long rows but the oldest two: their pages become free."""
    draft.delete("long", draft.keys("long", end=_FLOOD_FIRST_KEY)[2:])
    draft.items(1)


def _spill(draft: _Draft) -> None:
    """Change more than the cache holds, some pages before and after: replace the last batch by a new one."""
    draft.items(8)
    draft.delete("long", draft.keys("long", _BATCH_FIRST_KEY, _FLOOD_FIRST_KEY))
    _batch(draft)
    draft.exchange(6)


def undo_spill(draft: _Draft) -> None:
    """Roll back to a savepoint when more has been changed since than the cache holds."""
    draft.items(1)
    draft.do(Verb.SAVEPOINT)
    draft.items(ITEM_COUNT // 3)
    _batch(draft)
    draft.do(Verb.ROLL_BACK_TO)
    draft.items(1)


def spill_and_undo(draft: _Draft) -> None:
    """Change more than the cache holds, and a little after that; then roll back a little of it to a savepoint."""
    draft.delete("long", draft.keys("long", _BATCH_FIRST_KEY, _FLOOD_FIRST_KEY))
    _batch(draft)
    draft.items(1)
    draft.do(Verb.SAVEPOINT)
    draft.items(2)
    draft.do(Verb.ROLL_BACK_TO)
    draft.items(1)


def _undo(draft: _Draft) -> None:
    """Roll back to a savepoint after small changes, and go on."""
    draft.items(1)
    draft.do(Verb.SAVEPOINT)
    draft.items(2)
    draft.exchange(1)
    draft.do(Verb.ROLL_BACK_TO)
    draft.items(1)
    draft.do(Verb.RELEASE)
    draft.items(1)


def _nest(draft: _Draft) -> None:
    """Nest savepoints: the inner one is rolled back, the outer one kept."""
    draft.do(Verb.SAVEPOINT)
    draft.items(2)
    draft.do(Verb.SAVEPOINT)
    draft.insert("long", 10 * draft.number, 6000)
    draft.do(Verb.ROLL_BACK_TO, Verb.RELEASE)
    draft.items(1)
    draft.do(Verb.RELEASE)


def _turn_table(draft: _Draft) -> None:
    """Make the table that comes and goes, with rows, or drop it."""
    draft.items(1)
    if draft.has("extra"):
        draft.make(Verb.DROP_TABLE, LATER[0])
        draft.items(1)
        return
    draft.make(Verb.MAKE_TABLE, LATER[0])
    for key in range(1, 9):
        draft.insert("extra", key, 300)


def _turn_index(draft: _Draft) -> None:
    """Make the index that comes and goes, or drop it."""
    draft.items(1)
    draft.make(Verb.DROP_INDEX if draft.has_index else Verb.MAKE_INDEX, _INDEXED)
    draft.has_index = not draft.has_index
    draft.insert("long", 10 * draft.number, 200)


def _batch(draft: _Draft) -> None:
    for rank in range(_BATCH_COUNT):
        draft.insert("long", _BATCH_FIRST_KEY + 10 * draft.number + rank, _BATCH_CHARS)


def _flood(draft: _Draft) -> None:
    draft.items(1)
    for rank in range(_FLOOD_COUNT):
        draft.insert("long", _FLOOD_FIRST_KEY + rank, _FLOOD_CHARS)


def _ebb(draft: _Draft) -> None:
    draft.delete("long", draft.keys("long", _FLOOD_FIRST_KEY))
    draft.items(1)


Card = Callable[[_Draft], None]
# One round; what is turned has to be turned back.
CARDS: tuple[Card, ...] = (
    _one_page, _one_page, _several, _grow, _change, _shrink, _spill, spill_and_undo, _undo, _nest,
    _turn_table, _turn_table, _turn_index, _turn_index,
)  # fmt: skip
ROUND = len(CARDS)
# What these have written before the commit, or the rollback, becomes durable by a sync of another program.
_SPILLING = frozenset({_change, _spill, spill_and_undo, undo_spill})
_FLOODS: Mapping[int, Card] = {0: _flood, 1: _ebb}
# What a rolled back transaction had done.
_ROLLED_BACK: tuple[Card, ...] = (_several, _spill, _turn_table, undo_spill)
_EVENTS: tuple[EventKind | None, ...] = (
    EventKind.REOPEN, EventKind.OTHER_PROCESS, EventKind.OTHER_CONNECTION, EventKind.HOLD, EventKind.CHECKPOINT,
    EventKind.CHECKPOINT, EventKind.VACUUM, EventKind.VACUUM, EventKind.CHANGE, EventKind.ROLLBACK, EventKind.ROLLBACK,
    EventKind.CHANGE, EventKind.IDLE, None,
)  # fmt: skip
assert len(_EVENTS) == ROUND


def _deal(label: str, number: int, cards: Sequence[_Any]) -> tuple[_Any, int]:
    """Return the card of a transaction, and how many of its kind were dealt before; each round deals every card."""
    round_, place = divmod(number - 1, len(cards))
    order = list(cards)
    random.Random(f"{label} {round_}").shuffle(order)
    card = order[place]
    return card, round_ * order.count(card) + order[:place].count(card)


def _events(seed: int, number: int, last: Step) -> tuple[tuple[Event, ...], int]:
    """Return what happens before a transaction, and how long a snapshot is held from then on."""
    choice = random.Random(f"event {seed} {number}")
    kind, rank = _deal(f"events {seed}", number, _EVENTS)
    held_until, events = last.held_until, list[Event]()
    if held_until and (number >= held_until or kind in ALONE):
        # While a snapshot is held, a checkpoint cannot be completed.
        events += [Event(EventKind.CHECKPOINT, seed + number), Event(EventKind.DROP)]
        held_until = 0
    if number > 1:
        before, rank_before = _deal(f"events {seed}", number - 1, _EVENTS)
        if before is EventKind.OTHER_PROCESS and rank_before % 2 == 0:
            # What the recovery has found is moved before anything else is written.
            events.append(Event(EventKind.CHECKPOINT, seed + rank_before // 2))
    if kind is EventKind.ROLLBACK:
        card = _ROLLED_BACK[(seed + rank) % len(_ROLLED_BACK)]
        if card in _SPILLING:
            events.append(Event(EventKind.SYNC))
        events.append(Event(kind, operations=_rollback_operations(seed, number, card, last)))
    elif kind and not (kind is EventKind.HOLD and held_until):
        # Events of a kind take turns through the variants of an engine, from one that the seed draws.
        events.append(Event(kind, seed + rank))
    if kind is EventKind.HOLD and not held_until:
        held_until = number + choice.randint(*_HELD)
    if events and choice.random() < _IDLE_SHARE:
        events.append(Event(EventKind.IDLE))
    return tuple(events), held_until


def _rollback_operations(seed: int, number: int, card: Card, last: Step) -> tuple[Operation, ...]:
    draft = _Draft(f"rolled back {seed} {number}", number, last)
    card(draft)
    draft.do(Verb.ROLL_BACK)
    return tuple(draft.operations)


def _item(number: int, key: int, body: str) -> Row:
    return number, f"name-{key}", body


class _Texts:
    """Texts of any length, each one new."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._count = 0

    def __call__(self, chars: int) -> str:
        self._count += 1
        return hashlib.shake_128(f"{self._label} {self._count}".encode()).hexdigest(-(-chars // 2))[:chars]
