"""What is injected into a workload or its disk during a recording; `rig.contract.faultspecs` lists the faults."""

from __future__ import annotations

from enum import StrEnum


class Injection(StrEnum):
    """The injection at work during a recording, or none; the value is the spelling in orders."""

    NONE = ""
    # The process is killed again and again.
    KILL = "kill"
    # The process is killed now and then, and started again; what it shows then must last.
    KILLCUT = "killcut"
    # The file system lies on two disks.
    TWODISK = "twodisk"
    # All writes fail, over several attempts and while the engine cleans up.
    WRITE = "ioerror-write"
    # Writes fail until the engine has seen its first error, a failed sync.
    FSYNC = "ioerror-fsync"
    # The same, at several attempts in a row.
    FSYNCS = "ioerror-fsyncs"
    # All reads fail, and no part of the files is cached in memory.
    READ = "ioerror-read"
    DISKFULL_LOG = "diskfull-log"
    DISKFULL_DATA = "diskfull-data"
    # The disk really loses power: from then on it drops all writes, or it loses its cache.
    LIVECUT_DROP = "livecut-drop"
    LIVECUT_CACHE = "livecut-cache"
    # The disk of a server loses power and its cache, and the server everything; it comes back, its clients live on.
    SERVERCRASH = "servercrash"
    # The process sees a wrong clock.
    CLOCK_BACK = "clockback"
    CLOCK_JUMP = "clockjump"
    CLOCK_FROZEN = "clockfrozen"


ERRORS = frozenset({
    Injection.WRITE, Injection.FSYNC, Injection.FSYNCS, Injection.READ, Injection.DISKFULL_LOG, Injection.DISKFULL_DATA
})  # fmt: skip
LIVE_CUTS = frozenset({Injection.LIVECUT_DROP, Injection.LIVECUT_CACHE, Injection.SERVERCRASH})
# After these injections a file system has to be mended where it is mounted; nobody does this for a server.
MENDING = ERRORS | LIVE_CUTS - {Injection.SERVERCRASH}
CLOCKS = frozenset({Injection.CLOCK_BACK, Injection.CLOCK_JUMP, Injection.CLOCK_FROZEN})
