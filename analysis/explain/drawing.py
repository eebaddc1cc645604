"""The timeline of a loss: what was written and flushed from the first call to the last cut, and what survived.

A drawing has a row for each thing that happened, in the order of time: marks of the workload, writes, flushes, and the
cut of the explained state. Writes to one file that follow each other share a row. It is drawn as text, and as SVG with
a lane for each file.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import groupby

from rig.analysis.explain.blocks import BlockNamer
from rig.analysis.explain.instants import instant_of_state, span_text, time_of
from rig.analysis.explain.loss import Loss
from rig.faults import DiskLetter, EntryFlag, JointState, WriteLog
from rig.recordings.timeline import Moment, Timeline

_ROWS_MAX = 28
# Rows that stay if there are too many: the first and the last.
_ENDS = 10
FILE_SYSTEM = "file system"
_WORDS = {"begin": "begins", "ack": "is ACKNOWLEDGED"}
_CUT, _FLUSH = "POWER CUT, the state that is explained", "FLUSH: all that had completed is durable"


class Fate(StrEnum):
    """What became of writes in the explained state; the value is the sign in the text."""

    DURABLE = "="
    LANDED = "+"
    LOST = "-"
    CULPRIT = "x"
    NONE = " "


LEGEND = {
    Fate.DURABLE: "flushed before the cut",
    Fate.LANDED: "not flushed, landed",
    Fate.LOST: "lost, or written after the cut",
    Fate.CULPRIT: "enough to be lost",
}


@dataclass(frozen=True)
class RowOfTime:
    """One thing that happened. `since_ns` counts from the acknowledgement, or from the begin of the transaction."""

    since_ns: int
    # The file that it concerns; empty for marks, flushes and the cut.
    lane: str
    what: str
    fate: Fate = Fate.NONE


@dataclass(frozen=True)
class Drawing:
    """The timeline of a loss. `origin` says from what times are counted."""

    origin: str
    rows: tuple[RowOfTime, ...]
    left_out_count: int = 0

    @property
    def text(self) -> str:
        """Return the drawing as lines of text."""
        width = max((len(_time(row)) for row in self.rows), default=0)
        lines = [f"{'time':>{width}}  since {self.origin}"]
        for rank, row in enumerate(self.rows):
            if self.left_out_count and rank == _ENDS:
                lines.append(f"{'':>{width}}    ... {self.left_out_count} rows left out")
            lines.append(f"{_time(row):>{width}}  {row.fate} {row.what}")
        return "\n".join(line.rstrip() for line in (*lines, self.legend))

    @property
    def legend(self) -> str:
        """Return what the signs mean, those that occur."""
        seen = {row.fate for row in self.rows}
        return ", ".join(f"{fate} {words}" for fate, words in LEGEND.items() if fate in seen)


def drawing(loss: Loss, log: WriteLog, timeline: Timeline, namer: BlockNamer) -> Drawing:
    """Draw a loss: from the begin of the transaction that is lost, or under way, to just after the last cut."""
    own = [moment for moment in timeline.begins if moment.number == loss.subject]
    under_way = [moment for moment in timeline.begins if moment.entry_index < loss.state.latest_instant][-1:]
    (begin, *_) = (*(own if loss.subject else under_way), timeline.setup)
    number = begin.number
    ack = next((moment for moment in timeline.acks if moment.number >= number), None)
    is_acked = bool(ack) and bool(loss.subject)
    zero_ns = ack.time_ns if ack and is_acked else begin.time_ns
    what = "acknowledgement" if is_acked else "begin"
    end = min(max(loss.last_instant.entry, loss.verdict.entry) + 1, log.entry_count)
    if isinstance(loss.state, JointState):
        both = _rows_of_both(loss, loss.state, timeline, namer, begin)
        rows = [replace(row, since_ns=row.since_ns - zero_ns) for row in both]
    else:
        rows = list(_Rows(loss, log, timeline, namer, zero_ns).between(begin.entry_index, end))
    left_out = max(0, len(rows) - _ROWS_MAX)
    if left_out:
        rows = _ends(rows)
    return Drawing(f"the {what} of transaction {number}", tuple(rows), left_out)


def _rows_of_both(
    loss: Loss, state: JointState, timeline: Timeline, namer: BlockNamer, begin: Moment
) -> Iterator[RowOfTime]:
    """Yield the rows of two disks by the clock, from a begin on; times are the machine's.

    Neither log has the order of the other. Writes of one lane that follow each other, with one fate, share a row.
    """
    cut_ns = instant_of_state(state, namer.logs, timeline).time_ns
    end_ns = max(cut_ns, loss.last_instant.time_ns)
    marks = [moment for moment in timeline.moments if moment.kind in _WORDS]
    events = [(RowOfTime(mark.time_ns, "", f"transaction {mark.number} {_WORDS[mark.kind]}"), 0) for mark in marks]
    events.append((RowOfTime(cut_ns, "", _CUT), 0))
    events += [event for disk in DiskLetter for event in _events_of_disk(loss, state, namer, disk)]
    spanned = [event for event in events if begin.time_ns <= event[0].since_ns <= end_ns]
    spanned.sort(key=lambda event: event[0].since_ns)
    for (lane, _), group in groupby(spanned, key=lambda event: (event[0].lane, event[0].fate)):
        rows, sizes = zip(*group, strict=True)
        if lane:
            yield replace(rows[0], what=_what(len(rows), sum(sizes), lane))
        else:
            yield from rows


def _events_of_disk(
    loss: Loss, state: JointState, namer: BlockNamer, disk: DiskLetter
) -> Iterator[tuple[RowOfTime, int]]:
    """Yield a row for each write and flush of one of two disks, with the bytes that it wrote."""
    log, own = state.logs.sides[disk].log, state.states[disk]
    if log.account is None or log.account.times_ns is None:
        return
    is_culprit = loss.culprit.choices.disk is disk
    culprits = {atom.entry for atom in loss.culprit.sets[0]} if is_culprit else set()
    landed = set(own.pieces(log)[:, 0].tolist())
    for entry, time_ns in enumerate(log.account.times_ns[:, 1].tolist()):
        if log.flags[entry] & EntryFlag.FLUSH:
            yield RowOfTime(time_ns, "", f"{_FLUSH} on disk {disk}"), 0
        elif size := int(log.payload_bytes[entry]):
            lane = (disk is DiskLetter.A and namer.path_of(entry)) or f"{FILE_SYSTEM}, disk {disk}"
            fate = Fate.LANDED if entry in landed else Fate.LOST
            fate = Fate.CULPRIT if entry in culprits else Fate.DURABLE if entry < own.base_end else fate
            yield RowOfTime(time_ns, lane, "", fate), size


def _what(count: int, size_bytes: int, lane: str) -> str:
    return f"{f'{count} writes' if count > 1 else 'a write'}, {size_bytes} bytes: {lane}"


def _ends(rows: Sequence[RowOfTime]) -> list[RowOfTime]:
    return [*rows[:_ENDS], *rows[len(rows) - (_ROWS_MAX - _ENDS) :]]


@dataclass
class _Rows:
    """The rows of one drawing: writes that follow each other in one lane, with one fate, share a row."""

    loss: Loss
    log: WriteLog
    timeline: Timeline
    namer: BlockNamer
    zero_ns: int

    def between(self, begin: int, end: int) -> Iterator[RowOfTime]:
        """Yield the rows of these entries."""
        marks = {moment.entry_index: moment for moment in self.timeline.moments if moment.kind in _WORDS}
        for (is_cut, lane, fate), entries in groupby(range(begin, end), key=self._key):
            if is_cut:
                yield self._row(self.loss.verdict.entry, _CUT)
            if lane:
                yield self._row_of_writes(lane, fate, list(entries))
                continue
            for entry in entries:
                if self.log.flags[entry] & EntryFlag.FLUSH:
                    yield self._row(entry, _FLUSH)
                elif entry in marks:
                    yield self._row(entry, f"transaction {marks[entry].number} {_WORDS[marks[entry].kind]}")

    def _key(self, entry: int) -> tuple[bool, str, Fate]:
        """Return whether the power goes just before an entry, the lane of a write, and its fate; no lane for a mark."""
        is_cut = entry == self.loss.verdict.entry
        if not self.log.payload_bytes[entry]:
            return is_cut, "", Fate.NONE
        return is_cut, self.namer.path_of(entry) or FILE_SYSTEM, self._fate(entry)

    def _fate(self, entry: int) -> Fate:
        if entry in self._culprits:
            return Fate.CULPRIT
        if entry < self.loss.state.base_end:
            return Fate.DURABLE
        return Fate.LANDED if entry in self._landed_entries else Fate.LOST

    @cached_property
    def _culprits(self) -> set[int]:
        return {atom.entry for atom in self.loss.culprit.sets[0]}

    @cached_property
    def _landed_entries(self) -> set[int]:
        return set(self.loss.state.pieces(self.log)[:, 0].tolist())

    def _row_of_writes(self, lane: str, fate: Fate, entries: Sequence[int]) -> RowOfTime:
        size = int(sum(self.log.payload_bytes[entry] for entry in entries))
        is_fua = any(self.log.flags[entry] & EntryFlag.FUA for entry in entries)
        return self._row(entries[0], f"{_what(len(entries), size, lane)}{' (FUA)' if is_fua else ''}", lane, fate)

    def _row(self, entry: int, what: str, lane: str = "", fate: Fate = Fate.NONE) -> RowOfTime:
        return RowOfTime(time_of(entry, self.log, self.timeline) - self.zero_ns, lane, what, fate)


def _time(row: RowOfTime) -> str:
    return f"{'+' if row.since_ns >= 0 else '-'}{span_text(abs(row.since_ns))}"


# The picture: a column for each row of the drawing, a lane for each file.
_COLUMN, _LANE, _LEFT, _TOP = 30, 34, 150, 46
# Tenths of a pixel for each unit of the picture.
_WIDTH_MAX = 14
_COLOURS = {
    Fate.DURABLE: "var(--calm, #2b6cb0)", Fate.LANDED: "var(--calm, #2b6cb0)", Fate.LOST: "var(--faint, #8a8f98)",
    Fate.CULPRIT: "var(--damage, #c53030)",
}  # fmt: skip


def svg(drawn: Drawing) -> str:
    """Return the drawing as an SVG element: lanes for files, a line for each flush, acknowledgement and the cut."""
    lanes = list(dict.fromkeys(row.lane for row in drawn.rows if row.lane))
    width, height = (
        _LEFT + _COLUMN * (len(drawn.rows) + 1),
        _TOP + _LANE * len(lanes) + (24 if drawn.left_out_count else 12),
    )
    style = f'viewBox="0 0 {width} {height}" font-size="11" font-family="sans-serif" fill="var(--ink, #1a202c)"'
    # Few columns need no wide picture.
    style += f' style="max-width:{_WIDTH_MAX * width // 10}px"'
    title = f"<title>Timeline since {html.escape(drawn.origin)}</title>"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" {style}>{title}']
    for rank, lane in enumerate(lanes):
        y = _TOP + _LANE * rank + _LANE // 2
        parts.append(f'<text x="4" y="{y + 4}">{html.escape(lane)}</text>')
        parts.append(f'<path d="M{_LEFT} {y}H{width - 8}" stroke="var(--faint, #8a8f98)" stroke-opacity=".4"/>')
    if drawn.left_out_count:
        words = f"{drawn.left_out_count} more"
        parts.append(
            f'<text x="{_LEFT + _COLUMN * _ENDS}" y="{height - 2}" text-anchor="middle">... {words} ...</text>'
        )
    for rank, row in enumerate(drawn.rows):
        parts += _column(row, _LEFT + _COLUMN * rank + _COLUMN // 2, lanes, height)
    return "".join((*parts, "</svg>"))


def _column(row: RowOfTime, x: int, lanes: Sequence[str], height: int) -> Iterator[str]:
    title = f"<title>{html.escape(f'{_time(row)} {row.what}')}</title>"
    if row.lane:
        y = _TOP + _LANE * lanes.index(row.lane) + _LANE // 2
        colour = _COLOURS[row.fate]
        if row.fate is Fate.CULPRIT:
            yield f'<path d="M{x - 7} {y - 7}l14 14m0 -14l-14 14" stroke="{colour}" stroke-width="3">{title}</path>'
        else:
            fill = "var(--paper, #fff)" if row.fate is Fate.LOST else colour
            yield f'<circle cx="{x}" cy="{y}" r="6" fill="{fill}" stroke="{colour}" stroke-width="2">{title}</circle>'
        return
    is_cut, is_flush = row.what == _CUT, row.what.startswith(_FLUSH)
    colour = "var(--damage, #c53030)" if is_cut else "var(--ink, #1a202c)"
    dash = ' stroke-dasharray="2 3"' if is_flush else ""
    of_mark = row.what.removeprefix("transaction ").replace("is ACKNOWLEDGED", "ack").replace("begins", "begin")
    label = html.escape("cut" if is_cut else "flush" if is_flush else of_mark)
    turned = f'x="{x}" y="{_TOP - 12}" transform="rotate(-40 {x} {_TOP - 12})"'
    yield f'<path d="M{x} {_TOP - 6}V{height - 6}" stroke="{colour}"{dash}>{title}</path>'
    yield f"<text {turned}>{label}</text>"
