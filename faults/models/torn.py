"""Torn writes on an honest disk: what was not flushed may have reached the medium in part.

Model: the disk of `rig.faults.models.powercut`, but only units of 512 or of 4096 bytes, aligned on the device, are
written atomically, whatever the device claims; of a longer write that was not flushed any set of units may land. Both
families of `rig.faults.models.powercut` are torn:

(a) A cut just before FUA_j completes: everything before the epoch, the FUA writes before it whole, none of the batch,
    and any set of units of FUA_j itself. Legal because FUA_j had been submitted (the log holds it, and at that
    instant only its completion is missing) and any part of a write in flight may have reached the medium.
(b) A cut just before the closing FLUSH completes, or at the end of the log for the tail: everything before the epoch,
    all its FUA writes whole, and for each unit of the batch any of its versions: the one from before the batch, or
    the one of any write of the batch. Legal because the cache holds units and may have written back each of them at
    any time.

Where it is known when writes were submitted, the writes ahead of a cut are torn as well (`Epoch.ahead`).

The states include shorn writes, one for each block of 4096 bytes of a write and each count of 1 to 7 sectors. The
block's first sectors are new and its rest old; the blocks before it are new and the blocks after it old. Every ranking
has them, for batch and FUA writes of any length. Every ranking also has tails, one for each block of 4096 but the first
of a write of the batch: old up to this block, new from it on. If one long write overwrites a log from its beginning,
this leaves a new end after an old beginning.

Every unit of 4096 is made of units of 512, so an epoch enumerated at 512 is exhausted at both sizes. When sampled, the
two sizes take turns. States without a tear are legal here too; they rank last, because a power cut checks them.

Left out: what `rig.faults.models.powercut` leaves out; garbage in place of a unit (`rig.faults.models.shorn`) and
changes outside the written range (not the work of an honest disk); tears of several writes at two unit sizes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rig.faults.choosing.phases import phases
from rig.faults.choosing.selection import Plan, Ranking, in_turns, select, spread
from rig.faults.log.epoch import Epoch
from rig.faults.log.log import WriteLog
from rig.faults.models.powercut import after_fuas, draws
from rig.faults.states.damage import block_rests
from rig.faults.states.state import UNIT_BYTES, CrashState, Tear, landable, make_state, unit_count

# More units than this in one batch or one FUA write are sampled: 8 units of 512 are one page.
UNITS_LISTED_MAX = 8


def states(log: WriteLog, log_epochs: Sequence[Epoch], *, first_entry: int, states_max: int, seed: int) -> Plan:
    """Plan crash states with torn writes, at instants after entry `first_entry`; deterministic under `seed`."""
    reached = [epoch for epoch in log_epochs if epoch.end > first_entry]
    # The place of each epoch among alike epochs. Its number will not do: the same phase of every commit could be odd.
    place = {epoch.number: place for phase in phases(log, reached) for place, epoch in enumerate(phase.epochs)}

    def rank(epoch: Epoch) -> Ranking:
        members = landable(epoch)
        is_small = sum(unit_count(log, member, 512) for member in members) <= UNITS_LISTED_MAX
        fuas_small = all(unit_count(log, fua, 512) <= UNITS_LISTED_MAX for fua in epoch.fuas)
        batch = _all_choices(log, epoch, members) if is_small else _samples(log, epoch, members, seed)
        ends = _shorn(log, epoch, members), _tails(log, epoch, members)
        # A small budget reaches only the first of the two.
        ends = ends if place.get(epoch.number, epoch.number) % 2 else ends[::-1]
        rankings = batch, _torn_fuas(log, epoch), *ends, _torn_ahead(log, epoch), _untorn(epoch)
        return Ranking(in_turns(*rankings), is_small and fuas_small and not any(epoch.ahead))

    return select(log, log_epochs, rank, first_entry=first_entry, states_max=states_max)


def _untorn(epoch: Epoch) -> Iterator[CrashState]:
    yield make_state(epoch, len(epoch.fuas))
    yield from after_fuas(epoch)


def _torn_fuas(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield family (a): each FUA write torn while in flight; the writes take turns."""
    return in_turns(*(_torn_fua(log, epoch, rank) for rank in spread(len(epoch.fuas))))


def _torn_fua(log: WriteLog, epoch: Epoch, rank: int) -> Iterator[CrashState]:
    for tear in _tears(log, epoch.fuas[rank]):
        yield make_state(epoch, rank, tears=(tear,))


def _torn_ahead(log: WriteLog, epoch: Epoch) -> Iterator[CrashState]:
    """Yield each write that may have landed ahead of a cut, torn; with those before it, or alone."""
    for fua_count in spread(len(epoch.ahead)):
        members = epoch.ahead[fua_count]
        for rank in spread(len(members)):
            for number, tear in enumerate(_tears(log, members[rank])):
                # If the FUA write of the cut itself landed whole, the next cut has seen more.
                before = [entry for entry in members[:rank] if entry not in epoch.fuas[fua_count : fua_count + 1]]
                yield make_state(epoch, fua_count, ahead=before if (number + rank) % 2 else (), tears=(tear,))


def _tears(log: WriteLog, entry: int) -> Iterator[Tear]:
    """Yield the tears of one write: all tears of a small write, otherwise telling ones at both unit sizes."""
    count = unit_count(log, entry, 512)
    if count <= UNITS_LISTED_MAX:
        masks = range(1, 2**count - 1)
        for rank in spread(len(masks)):
            yield Tear(entry, 512, tuple(unit for unit in range(count) if masks[rank] >> unit & 1))
        return
    for unit_bytes in reversed(UNIT_BYTES):
        units = tuple(range(unit_count(log, entry, unit_bytes)))
        half = len(units) // 2
        choices = (units[:half], units[half:], units[:1], units[1:], units[:-1], units[-1:], units[::2], units[1::2])
        for chosen in dict.fromkeys(choices):
            if 0 < len(chosen) < len(units):
                yield Tear(entry, unit_bytes, chosen)
    yield from _shears(log, entry)


def _shears(log: WriteLog, entry: int) -> Iterator[Tear]:
    rests = block_rests(log, entry)
    for rank in spread(len(rests)):
        yield Tear(entry, 512, tuple(range(rests[rank][0])))


def _shorn(log: WriteLog, epoch: Epoch, members: tuple[int, ...]) -> Iterator[CrashState]:
    """Yield every member shorn at every place; members take turns, the others are absent or present up to it."""
    return in_turns(*(_shorn_member(log, epoch, members, rank) for rank in spread(len(members))))


def _shorn_member(log: WriteLog, epoch: Epoch, members: tuple[int, ...], rank: int) -> Iterator[CrashState]:
    for number, tear in enumerate(_shears(log, members[rank])):
        whole = members[:rank] if (number + rank) % 2 else ()
        yield make_state(epoch, len(epoch.fuas), whole=whole, tears=(tear,))


def _tails(log: WriteLog, epoch: Epoch, members: tuple[int, ...]) -> Iterator[CrashState]:
    """Yield ends of every member, later members absent or present, and ends of the batch; members take turns."""
    ranks = dict.fromkeys((len(members) - 1, 1, *spread(len(members))))
    # If the log has the parts of a write as entries, ends of the batch take the place of ends of a write.
    ends = (make_state(epoch, len(epoch.fuas), whole=members[rank:]) for rank in ranks if 0 < rank < len(members))
    of_members = (_tails_of_member(log, epoch, members, rank) for rank in spread(len(members)))
    return in_turns(*of_members, *([ends] if log.unit_bytes else []))


def _tails_of_member(log: WriteLog, epoch: Epoch, members: tuple[int, ...], rank: int) -> Iterator[CrashState]:
    units = tuple(range(unit_count(log, members[rank], 4096)))
    # First the last block alone, then all but the first, then those in between.
    begins = dict.fromkeys((len(units) - 1, 1, *(begin + 1 for begin in spread(len(units) - 1))))
    for number, begin in enumerate(begins if len(units) > 1 else ()):
        whole = members[rank + 1 :] if (number + rank) % 2 else ()
        yield make_state(epoch, len(epoch.fuas), whole=whole, tears=(Tear(members[rank], 4096, units[begin:]),))


def _all_choices(log: WriteLog, epoch: Epoch, members: Sequence[int]) -> Iterator[CrashState]:
    """Yield every non-empty choice of units of a small batch, in a spread order."""
    places = [(member, unit) for member in members for unit in range(unit_count(log, member, 512))]
    _empty, *masks = spread(2 ** len(places))
    for mask in masks:
        landed = [place for rank, place in enumerate(places) if mask >> rank & 1]
        yield _state_of_units(log, epoch, landed)


def _state_of_units(log: WriteLog, epoch: Epoch, landed: Iterable[tuple[int, int]]) -> CrashState:
    units: dict[int, list[int]] = {}
    for member, unit in landed:
        units.setdefault(member, []).append(unit)
    whole = [member for member, chosen in units.items() if len(chosen) == unit_count(log, member, 512)]
    tears = [Tear(member, 512, tuple(chosen)) for member, chosen in units.items() if member not in whole]
    return make_state(epoch, len(epoch.fuas), whole=whole, tears=tears)


def _samples(log: WriteLog, epoch: Epoch, members: tuple[int, ...], seed: int) -> Iterator[CrashState]:
    """Yield torn prefixes, single tears, all with one torn, and seeded draws of units by turns; endless."""
    fua_count = len(epoch.fuas)
    draws_4096, draws_512 = draws(epoch, seed, 4096), draws(epoch, seed, 512)
    yield make_state(epoch, fua_count, draw=next(draws_512))
    for rank in spread(len(members)):
        others = members[:rank] + members[rank + 1 :]
        for tear, whole in zip(_some_tears(log, members[rank]), (members[:rank], others, ()), strict=False):
            yield make_state(epoch, fua_count, whole=whole, tears=(tear,))
        yield make_state(epoch, fua_count, draw=next(draws_4096))
        yield make_state(epoch, fua_count, draw=next(draws_512))
    for pair in zip(draws_4096, draws_512, strict=True):
        yield from (make_state(epoch, fua_count, draw=draw) for draw in pair)


def _some_tears(log: WriteLog, entry: int) -> list[Tear]:
    tears: list[Tear] = []
    for unit_bytes in (512, 4096, 512):
        count = unit_count(log, entry, unit_bytes)
        keep_head = len(tears) != 1
        chosen = tuple(range(count // 2)) if keep_head else tuple(range(count // 2, count))
        if count > 1:
            tears.append(Tear(entry, unit_bytes, chosen))
    return tears
