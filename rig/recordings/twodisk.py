"""The two write logs of a recording whose file system has its journal on a disk of its own, opened together.

In the unpacked recording the log of the journal's disk stands behind the other, at a fixed place; a verifier, which has
one device for both disks, has the journal's behind the data.
"""

from __future__ import annotations

from rig.contract.geometry import JOURNAL_FIRST_BYTE
from rig.faults import TwoLogs, WriteLog
from rig.machines.argv import RECORDING_BYTES

SECOND_LOG_BYTES = RECORDING_BYTES // 2


def two_logs(log: WriteLog) -> TwoLogs:
    """Open the log behind a log of the same file; it stays open for as long as somebody has a state of both."""
    second = WriteLog.open(log.path, begin_bytes=SECOND_LOG_BYTES)
    return TwoLogs(log, second, b_device_bytes=JOURNAL_FIRST_BYTE, b_source_bytes=SECOND_LOG_BYTES)
