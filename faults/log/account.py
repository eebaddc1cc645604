"""The account of a log: when each of its entries was submitted and when it completed.

`rig.faults.log.submissions` makes it from the kernel's block trace.
"""

from __future__ import annotations

from dataclasses import dataclass

from rig.faults.log.arrays import BoolArray, Int64Array

# The entry has no event.
NEVER = -1


@dataclass(frozen=True)
class Account:
    """For each entry of a log, the events of its submission and its completion; numbers in the order of time.

    A DISCARD or MARK has `NEVER` in both. `is_rest`: a newer FUA write has covered a part of this write, see `attach`.
    `times_ns` has the times of submission and completion of each entry, by the clock of the machine, which is the same
    for all of its disks.
    """

    submitted: Int64Array
    completed: Int64Array
    is_rest: BoolArray | None = None
    times_ns: Int64Array | None = None

    def of_parts(self, owners: Int64Array) -> Account:
        """Return the account of a log whose entries each are an entry of this log or a part of one."""
        submitted, completed = self.submitted[owners], self.completed[owners]
        for column in (submitted, completed):
            column.setflags(write=False)
        is_rest = None if self.is_rest is None else self.is_rest[owners]
        return Account(submitted, completed, is_rest, None if self.times_ns is None else self.times_ns[owners])
