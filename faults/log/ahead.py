"""Which writes may have landed ahead of a cut: submitted by then, not durable, and later in the log than the cut.

At a cut just before a FUA write or a FLUSH completes, these are the writes in flight, that FUA write among them;
and the completed writes that the log has only behind a FLUSH not yet completed. Any of them may be on the medium.

Left out: writes in flight together with another write of the same place, because nobody knows which of them the disk
carries out last; and writes partly covered by a newer FUA write, because the covered part was there until then.
"""

from __future__ import annotations

import numpy as np

from rig.faults.log.account import NEVER, Account
from rig.faults.log.contests import contests
from rig.faults.log.log import WriteLog

_FOREVER = np.iinfo(np.int64).max


class Ahead:
    """The writes ahead of each cut, found by the account of submissions of a log."""

    def __init__(self, log: WriteLog, account: Account) -> None:
        self._account = account
        self._is_write = (log.payload_bytes > 0) & (account.submitted != NEVER)
        submitted = np.where(self._is_write, account.submitted, _FOREVER)
        # No entry from here on was submitted before this event; ascending, so that it can be searched.
        self._soonest = np.minimum.accumulate(submitted[::-1])[::-1]
        self._contested = np.zeros(log.entry_count, dtype=bool)
        self._contested[[entry for pair in contests(log, account) for entry in pair]] = True
        if account.is_rest is not None:
            self._contested |= account.is_rest

    def of(self, begin: int, end: int, fuas: tuple[int, ...], batch: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the writes ahead of each cut, by number of landed FUA writes; the last cut leaves out the batch."""
        has_flush = end < len(self._is_write)
        cuts = [*fuas, end if has_flush else None]
        return tuple(self._at(begin, cut, set(fuas[:rank]) | set(batch if cut in (end, None) else ()))
                     for rank, cut in enumerate(cuts))  # fmt: skip

    def _at(self, begin: int, cut: int | None, others: set[int]) -> tuple[int, ...]:
        moment = _FOREVER if cut is None else int(self._account.completed[cut])
        bound = int(np.searchsorted(self._soonest, moment))
        is_there = self._is_write[begin:bound] & (self._account.submitted[begin:bound] < moment)
        entries = (begin + np.flatnonzero(is_there & ~self._contested[begin:bound])).tolist()
        return tuple(entry for entry in entries if entry not in others)
