"""Every history of a disk that could have made a write log, by brute force: what the log alone proves.

Independent of the generators and of the checker. A history is an order of events: an ordinary write completes, a FLUSH
is submitted, and an entry of the log that is logged at once completes (FUA write, MARK, FLUSH; the FLUSH brings its
batch into the log). It could have made the log if its own entries are in the log's order, each FLUSH took exactly its
batch, only one FLUSH was in flight at a time, and the disk ended as a replay of the log does. An instant is the number
of entries logged at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.unit.faults.disks import Content, Moment, Op

AT_ONCE = {"fua", "mark", "flush"}
# (whether it is in the log at that event, its place in the log); a FLUSH that is submitted is not.
Event = tuple[bool, int]
# The writes that had completed, in order, or were in flight, by their places in the log, and whether each was durable.
Writes = tuple[tuple[int, bool], ...]


def histories(log: Sequence[Op]) -> Iterator[tuple[Event, ...]]:
    """Yield every order of events that gives this log, whatever the disk holds in the end."""
    at_once = [place for place, op in enumerate(log) if op.kind in AT_ONCE]
    slow = [place for place, op in enumerate(log) if op.kind in {"write", "flush"}]

    def extend(done: int, begun: int, so_far: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
        if (done, begun) == (len(at_once), len(slow)):
            yield so_far
        submitted = sum(log[place].kind == "flush" for place in slow[:begun])
        completed = sum(log[place].kind == "flush" for place in at_once[:done])
        if begun < len(slow) and (log[slow[begun]].kind == "write" or submitted == completed):
            yield from extend(done, begun + 1, (*so_far, (False, slow[begun])))
        if done < len(at_once) and (log[at_once[done]].kind != "flush" or completed < submitted):
            yield from extend(done + 1, begun, (*so_far, (True, at_once[done])))

    return extend(0, 0, ())


@dataclass
class Proof:
    """What a cut can leave at each instant: in every history, and in any history."""

    always: list[set[Content]]
    ever: list[set[Content]]
    # The marks seen at each instant.
    marks: list[int]

    def contents(self) -> dict[Content, int]:
        """Return what every history can leave at one instant, with the marks seen at the last such instant."""
        return {content: seen for contents, seen in zip(self.always, self.marks, strict=True) for content in contents}


def proof(log: Sequence[Op]) -> Proof:
    """Walk all histories of a log."""
    marks = [0]
    for op in log:
        if op.kind in AT_ONCE:
            marks.append(marks[-1] + (op.kind == "mark"))
    found = Proof([], [set() for _ in marks], marks)
    known: dict[Writes, frozenset[Content]] = {}
    for history in moments(log):
        reached: list[set[Content]] = [set() for _ in marks]
        for instant, writes in history:
            if writes not in known:
                known[writes] = frozenset(moment_of(log, writes).whole_contents())
            reached[instant] |= known[writes]
        found.ever = [one | own for one, own in zip(found.ever, reached, strict=True)]
        found.always = [one & own for one, own in zip(found.always or reached, reached, strict=True)]
    return found


def moments(log: Sequence[Op]) -> Iterator[list[tuple[int, Writes]]]:
    """Yield the moments of each history that ends as a replay of the log does, with their instants."""
    expected = _visible_content(log, range(len(log)))
    for history in histories(log):
        if _visible_content(log, [place for _, place in history]) == expected:
            yield list(_moments(log, history))


def moment_of(log: Sequence[Op], writes: Writes) -> Moment:
    """Return a moment with the writes themselves."""
    return Moment(tuple((log[place], is_durable) for place, is_durable in writes), 0)


def _visible_content(log: Sequence[Op], places: Sequence[int]) -> Content:
    """Return what a reader sees after these entries, in this order."""
    moment = Moment(tuple((log[place], True) for place in places if log[place].kind in {"write", "fua"}), 0)
    (content,) = moment.whole_contents()
    return content


def _moments(log: Sequence[Op], history: tuple[Event, ...]) -> Iterator[tuple[int, Writes]]:
    completed: list[int] = []
    durable: set[int] = set()
    taken: set[int] = set()
    instant = 0
    yield instant, ()
    for is_logged, place in history:
        kind = log[place].kind
        if is_logged and kind == "fua":
            # Just before it completes it is in flight and may have landed.
            yield instant, (*((one, one in durable) for one in completed), (place, False))
        if kind == "write" or (is_logged and kind == "fua"):
            completed.append(place)
        if is_logged:
            durable |= {place} if kind == "fua" else taken if kind == "flush" else set()
            instant += 1
        elif kind == "flush":
            taken = set(completed)
        yield instant, tuple((one, one in durable) for one in completed)


@st.composite
def some_logs(
    draw: st.DrawFn,
    sectors: int,
    *,
    at_once_max: int = 5,
    writes_max: int = 4,
    fills: Sequence[int] = (0, 1, 2, 3),
    with_discards: bool = False,
) -> list[Op]:
    """Draw a log of a few writes that overlap, without the mark at its end."""

    def some(kinds: Sequence[str], count_max: int) -> list[Op]:
        found = []
        for kind in draw(st.lists(st.sampled_from(kinds), max_size=count_max)):
            if kind == "mark":
                found.append(Op(kind))
                continue
            first = draw(st.integers(0, sectors - 1))
            count = draw(st.integers(1, sectors - first))
            found.append(Op(kind, first, count, draw(st.sampled_from(fills))))
        return found

    late = ["write", "write", "discard"] if with_discards else ["write"]
    log: list[Op] = []
    for _ in range(draw(st.integers(0, 2))):
        left = at_once_max - sum(op.kind in AT_ONCE for op in log)
        log += some(["fua", "fua", "mark"], max(0, min(3, left - 1)))
        log += some(late, min(3, writes_max - sum(op.kind == "write" for op in log)))
        log.append(Op("flush"))
    log += some(["fua", "fua", "mark"], max(0, min(3, at_once_max - sum(op.kind in AT_ONCE for op in log))))
    return log + some(late, writes_max - sum(op.kind == "write" for op in log))


def entry_of(log: Sequence[Op], instant: int) -> int:
    """Return the entry of the log that is the next to be logged at once at an instant, or the log's end."""
    at_once = [place for place, op in enumerate(log) if op.kind in AT_ONCE]
    return [*at_once, len(log)][instant]
