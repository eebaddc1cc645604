"""Writes to one place whose order the account of submissions does not tell.

The block layer keeps no order between requests in flight: a writer that needs one waits for a completion, and flushes
where it must be durable (Documentation/block/writeback_cache_control.rst). A disk may carry such requests out in any
order between their submission and completion. So of two writes in flight together nobody knows which one shows in the
sectors that they share; the order in which they completed says nothing. File systems do not write a block that is being
written. Programs may, with O_DIRECT.

The log may also have a write behind a FUA write that came later, if the FUA write covers its middle
(`submissions.attach`).
"""

from __future__ import annotations

import numpy as np

from rig.faults.log.account import Account
from rig.faults.log.log import EntryFlag, WriteLog


def contests(log: WriteLog, account: Account) -> list[tuple[int, int]]:
    """Return the pairs of writes that share a sector and need not have come in the order of the log; in that order."""
    begins, ends = log.offset_bytes, log.offset_bytes + log.payload_bytes
    writes = np.flatnonzero((log.payload_bytes > 0) & (account.submitted >= 0))
    by_time = writes[np.argsort(account.submitted[writes], kind="stable")]
    submitted = account.submitted[by_time]
    pairs = []
    for rank, entry in enumerate(by_time.tolist()):
        until = int(np.searchsorted(submitted, account.completed[entry]))
        together = by_time[rank + 1 : until]
        if len(together):
            shares = (begins[together] < ends[entry]) & (ends[together] > begins[entry])
            pairs += [(min(entry, other), max(entry, other)) for other in together[shares].tolist()]
    is_fua = (log.flags & EntryFlag.FUA) > 0
    plain = writes[~is_fua[writes]]
    for fua in writes[is_fua[writes]].tolist():
        behind = plain[np.searchsorted(plain, fua) :]
        older = behind[account.completed[behind] < account.submitted[fua]]
        shares = (begins[older] < ends[fua]) & (ends[older] > begins[fua])
        pairs += [(fua, entry) for entry in older[shares].tolist()]
    return pairs
