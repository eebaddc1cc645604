"""Addresses of crash states: with the logs of a recording, an address gives its state back.

This is the whole grammar, and only this module parses addresses. Addresses are ASCII without blanks or slashes and
safe in a shell:

    address = content { "~" content } [ "@" clock ]
    content = id | disk ":" id "+" disk ":" id
    disk   = "a" | "b"
    id     = epoch ( ".f" count | ".l" count ) landed [ draw ] [ ".i" entry ] { damage }
    landed = [ ".w" ranges ] [ ".o" ranges ] [ ".a" ranges ] { tear }
    epoch  = "e" entry | "tail"              the FLUSH that closes the epoch of the cut, or the tail of the log
    ".f" count                               how many FUA writes of the epoch landed whole, in log order
    ".l" count                               instead: the disk lied, and ignored this many FLUSHes before the cut
    ranges = range { "," range }             ascending; range = number | number "-" number
    ".w" ranges                              entries of the batch, or of a lying disk's window, that landed whole
    ".o" ranges                              the same for members whose order to a FUA write is open
    ".a" ranges                              the same for writes ahead of the cut: submitted by then, and logged later
    tear   = ".t" entry ":" bytes ":" ranges the units of one entry that landed
    draw   = ".r" hex16 "p" percent [ "u" bytes ]   instead of .w and .t: a seeded draw, for batches too long to list
    ".i" entry                               judged just before this entry, an instant earlier than the latest
    damage                                   see `rig.faults.states.damage`

The content after a "~" is a crash state of the recovery from the content before it, by the log of that recovery. A
state of two disks names both, the late one first (`rig.faults.models.twodisk`). The word after the "@" is the clock
with which the machine came back. The caller defines it; it is not part of a disk's content.

A draw lets the i-th member of the batch (with "u": the i-th unit of the batch, in log order) land iff the 64-bit output
of splitmix64 number i under that seed is below percent / 100 of its range. Each state has one accepted spelling, so
equal ids mean equal choices.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.states.damage import DAMAGE, parse_damages
from rig.faults.states.damagecheck import complaint
from rig.faults.states.state import (
    UNIT_BYTES,
    CrashState,
    Draw,
    Tear,
    is_told,
    landable,
    make_lying_state,
    make_state,
    unit_count,
    window_of,
)


class StateIdError(Exception):
    """A text is not the id of a crash state of this log; the message says why."""


@dataclass(frozen=True)
class Address:
    """The address of one crash state, taken apart; `str` puts it together."""

    # A state of the last recovery, or of the recording if there was no recovery.
    content: str
    # The states recovered from on the way to `content`, the state of the recording first.
    way: tuple[str, ...] = ()
    # Empty if the address names no clock.
    clock: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take an address apart; raise `StateIdError` if a part is empty. Does not check that the state exists."""
        contents, at, clock = text.partition("@")
        *way, content = contents.split("~")
        if not all((*way, content)) or "@" in clock or bool(at) is not bool(clock):
            raise StateIdError(f"{text[:80]!r} is not the address of a crash state: a part of it is missing")
        return cls(content, tuple(way), clock)

    @property
    def before(self) -> str:
        """Return the address of the state that was recovered from; empty for a state of the recording."""
        return "~".join(self.way)

    @property
    def first(self) -> str:
        """Return the state of the recording, the first on the way."""
        return self.way[0] if self.way else self.content

    def then(self, content: str) -> Address:
        """Return the address of a state of the recovery from this state."""
        return Address(content, (*self.way, self.content))

    def __str__(self) -> str:
        text = "~".join((*self.way, self.content))
        return f"{text}@{self.clock}" if self.clock else text


def join(late: str, of_late: str, early: str, of_early: str) -> str:
    """Return the content of two disks, each with the id of its state, the late one first."""
    return f"{late}:{of_late}+{early}:{of_early}"


def split(text: str) -> tuple[str, str, str, str]:
    """Take apart the content of two disks that `join` put together; raise `StateIdError` if it is malformed."""
    match = _JOINT.fullmatch(text)
    if match is None or match["late"] == match["early"]:
        raise StateIdError(f"{text[:80]!r} is not the id of two disks; one looks like a:e43.f2.w12+b:e17.f1")
    return match["late"], match["of_late"], match["early"], match["of_early"]


def parse_state(text: str, log: WriteLog, log_epochs: Sequence[Epoch]) -> CrashState:
    """Rebuild the state that has this id; raise `StateIdError` if the log has no such state."""
    match = _ID.fullmatch(text)
    if match is None:
        raise StateIdError(f"{text[:80]!r} is not the id of a crash state; an id looks like e1043.f2.w1000-1010")
    epoch = _epoch_by_name(match["epoch"], log_epochs)
    draw = None
    if match["seed"]:
        draw = Draw(int(match["seed"], 16), int(match["percent"]), int(match["unit"] or 0))
    damages = parse_damages(match["damages"])
    if match["ignored"]:
        if (
            int(match["ignored"]) > epoch.number
            or match["tears"]
            or match["at"]
            or match["unordered"]
            or match["ahead"]
        ):
            raise StateIdError(f"{text[:80]!r}: fewer FLUSHes before the cut, or more than a choice of whole writes")
        window = window_of(log_epochs, epoch, int(match["ignored"]))
        whole = _parse_members(match["whole"], window.members, text) if match["whole"] else ()
        state = make_lying_state(window, whole=whole, draw=draw, damages=damages)
    else:
        members = landable(epoch)
        whole = _parse_members(match["whole"], members, text) if match["whole"] else ()
        whole += _parse_members(match["unordered"], epoch.ambiguous, text) if match["unordered"] else ()
        reach = epoch.ahead_at(int(match["fuas"]))
        ahead = _parse_members(match["ahead"], reach, text) if match["ahead"] else ()
        tears = [_parse_tear(part, log, epoch, text) for part in match["tears"].split(".t")[1:]]
        cut_at = int(match["at"]) if match["at"] else None
        state = make_state(
            epoch, int(match["fuas"]), whole=whole, ahead=ahead, tears=tears, draw=draw, cut_at=cut_at, damages=damages
        )
    _check(state, text)
    if not is_told(log, state):
        raise StateIdError(
            f"{text[:80]!r}: the log does not tell what this leaves, because the order of writes is open"
        )
    for damage in damages:
        if why := complaint(damage, log, state):
            raise StateIdError(f"{text[:80]!r}: {damage.text}: {why}")
    return state


_JOINT = re.compile(r"(?P<late>[ab]):(?P<of_late>[^+]*)\+(?P<early>[ab]):(?P<of_early>[^+]*)", re.ASCII)
_RANGE = r"\d{1,18}(?:-\d{1,18})?"
_RANGES = rf"{_RANGE}(?:,{_RANGE})*"
_ID = re.compile(
    r"(?P<epoch>e\d{1,18}|tail)\.(?:f(?P<fuas>\d{1,18})|l(?P<ignored>\d{1,18}))"
    rf"(?:\.w(?P<whole>{_RANGES}))?(?:\.o(?P<unordered>{_RANGES}))?"
    rf"(?:\.a(?P<ahead>{_RANGES}))?(?P<tears>(?:\.t\d{{1,18}}:\d{{1,6}}:{_RANGES})*)"
    r"(?:\.r(?P<seed>[0-9a-f]{16})p(?P<percent>\d{1,3})(?:u(?P<unit>\d{1,6}))?)?"
    rf"(?:\.i(?P<at>\d{{1,18}}))?(?P<damages>(?:{DAMAGE})*)",
    re.ASCII,
)


def _parse_members(ranges: str, members: Sequence[int], text: str) -> tuple[int, ...]:
    chosen: list[int] = []
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        run = members[bisect_left(members, int(low)) : bisect_right(members, int(high or low))]
        if not run or (chosen and run[0] <= chosen[-1]):
            raise StateIdError(f"{text[:80]!r}: {part} names nothing that can land here, or is out of order")
        chosen.extend(run)
    return tuple(chosen)


def _parse_tear(part: str, log: WriteLog, epoch: Epoch, text: str) -> Tear:
    entry_text, unit_text, ranges = part.split(":")
    entry, unit_bytes = int(entry_text), int(unit_text)
    is_there = entry in epoch.batch or entry in epoch.fuas or any(entry in reach for reach in epoch.ahead)
    if unit_bytes not in UNIT_BYTES or not is_there:
        raise StateIdError(f"{text[:80]!r}: no write {entry} in this epoch, or no unit of {unit_bytes} bytes")
    units = range(unit_count(log, entry, unit_bytes))
    tear = Tear(entry, unit_bytes, _parse_members(ranges, units, text))
    if len(tear.units) == len(units):
        raise StateIdError(f"{text[:80]!r}: all units of entry {entry} landed, so it is whole and not torn")
    return tear


def _epoch_by_name(name: str, log_epochs: Sequence[Epoch]) -> Epoch:
    flush = None if name == "tail" else int(name[1:])
    for epoch in log_epochs:
        if epoch.flush == flush:
            return epoch
    raise StateIdError(f"the log has no epoch {name}: that entry is not a FLUSH")


def _check(state: CrashState, text: str) -> None:
    fuas, torn = state.epoch.fuas, [tear.entry_index for tear in state.tears]
    if state.fua_count > len(fuas):
        raise StateIdError(f"{text[:80]!r}: the epoch has {len(fuas)} FUA writes")
    if state.cut_at is not None and not state.epoch.begin <= state.cut_at < state.latest_instant:
        raise StateIdError(f"{text[:80]!r}: .i{state.cut_at} is not an earlier instant of this epoch")
    if state.window is not None:
        legal = not torn
    else:
        is_full = state.fua_count == len(fuas)
        reach = {
            *state.epoch.ahead_at(state.fua_count),
            *(landable(state.epoch) if is_full else [fuas[state.fua_count]]),
        }
        legal = is_full or not (state.whole or state.draw)
        legal &= set(torn) <= reach - {*state.whole, *state.ahead} and len(set(torn)) == len(torn)
    if not legal:
        raise StateIdError(f"{text[:80]!r}: no cut of an honest disk leaves this choice of writes")
    draw = state.draw
    if draw is not None and (
        not 0 < draw.percent < 100 or draw.unit_bytes not in (0, *UNIT_BYTES)
        or state.whole or state.ahead or state.tears or (state.window is not None and draw.unit_bytes)
    ):  # fmt: skip
        raise StateIdError(f"{text[:80]!r}: a draw has 1 to 99 percent, units of 512 or 4096, and stands alone")
    if state.id != text:
        raise StateIdError(f"{text[:80]!r} is spelled {state.id[:80]!r}")
