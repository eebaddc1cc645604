"""The workload of the error arm: a careful program whose disk fails, and that goes on with what it finds afterwards.

Whatever the engine raises at a transaction or a checkpoint, the program asks the database what is there, over the same
connection after a rollback or after reopening it, and goes on from that. The content must be that of all transactions
that it had gone on from, and may hold the one that raised. Each answer is a live finding, named
`kept-N.I` or `reopen-N.I`: N transactions had been issued, and it is the Ith finding of the recording.
A content that no transaction explains, or that lacks one, ends the workload there.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from rig.engines import named
from rig.engines.engine import EnduringDatabase, EnduringEngine
from rig.guest import mounts
from rig.guest.devicemapper import DeviceMapper
from rig.guest.faultlayer import Ballast, FaultLayer, sectors_of
from rig.guest.injections import Injection, Place, Strike, strikes
from rig.guest.oracle import Finding, Oracle
from rig.workloads import ledger

# An error that nobody was told of yet is told to the first sync after a reopen; a careful program tries again.
_OPENINGS_MAX = 3
_FSCK_LIMIT_S = 60
_SYNC_FILE_RANGE_WRITE = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Survivor:
    """The program at work; after `run` its database is open, or None if it could not be opened again."""

    def __init__(
        self, orders: Mapping[str, Any], database: Any, mark: Callable[[str], None], think: Callable[[], None]
    ) -> None:
        self._injection = Injection(orders["injection"])
        self._engine = cast("EnduringEngine", named(orders["engine"]))
        self._open = partial(self._engine.open_database, orders["directory"], orders["settings"])
        self._count = orders["transaction_count"]
        self._transaction = partial(ledger.transaction, orders["seed"])
        models = ledger.models(orders["seed"], self._count)
        self._oracle = Oracle(ledger.TABLES, models, self._transaction)
        self._outage = _Outage(self._injection, orders, self._engine.DATA_FILE, mark)
        self._filesystem = _FileSystem(orders)
        self._planned = list(strikes(self._injection, orders["seed"], self._count))
        self._mark = mark
        self._think = think
        self.database: EnduringDatabase | None = database
        self.live: list[dict[str, Any]] = []
        self.issued = 0
        # The transaction to go on with: all before it are in the database.
        self._due = 1
        self._is_over = False
        # Whether the last error left a connection that could be gone on with.
        self._was_kept = False

    def run(self) -> None:
        """Carry out the transactions, through all strikes."""
        while not self._is_done:
            self._think()
            if self._planned and self._planned[0].number <= self._due:
                self._struck(self._planned.pop(0))
            else:
                self._in_peace()

    def _in_peace(self) -> None:
        # What failed in the background may only come up now.
        if error := self._transact():
            self._reopen(error)

    def _struck(self, strike: Strike) -> None:
        if strike.place is Place.CHECKPOINT and self._held.has_checkpoints:
            self._in_peace()
        elif self._injection is Injection.DISKFULL_LOG and (error := self._tried(self._held.shrink_log)):
            self._reopen(error)
        seen = None
        for attempt in range(strike.attempts_max):
            if self._is_done:
                break
            if attempt and self._injection is not Injection.DISKFULL_DATA:
                self._think()
            self._outage.begin(strike, attempt, self._held)
            error = self._attempt(strike.place)
            seen = error or seen
            if error and not self._goes_on(error):
                break
            if not error and self._injection is Injection.DISKFULL_DATA:
                break
            self._outage.write_back()
        if seen and not self._is_over and (strike.reopens or not self._was_kept):
            self._reopen(seen)
        self._outage.end()

    def _attempt(self, place: Place) -> Exception | None:
        """Try a transaction, a checkpoint or both; return what the engine raised."""
        has_checkpoints = self._held.has_checkpoints
        if place is not Place.CHECKPOINT or not has_checkpoints:
            error = self._transact()
            if error or place is Place.LOG or not has_checkpoints:
                return error
        return self._tried(self._held.checkpoint)

    def _transact(self) -> Exception | None:
        number = self._due
        self._mark(f"begin-{number}")
        self.issued = number
        error = self._tried(partial(self._held.commit, self._transaction(number)))
        self._mark(f"fail-{number}" if error else f"ack-{number}")
        self._due += 0 if error else 1
        return error

    def _goes_on(self, error: Exception) -> bool:
        """Roll back and look at the database over the same connection; return whether it can be gone on with."""
        if self._injection in {Injection.FSYNC, Injection.FSYNCS}:
            self._outage.end()
        self._was_kept = False
        if self._tried(self._held.rollback):
            return False
        finding = self._oracle.judge_open(self._held)
        # An engine may well refuse to serve a connection after an error, and while requests still fail.
        if finding.kind in {"corrupt", "unopenable"}:
            return False
        self._note("kept", finding, error)
        self._was_kept = not self._is_over
        return self._was_kept

    def _reopen(self, error: Exception) -> None:
        """Close, wait for the disk to be well, mend the file system if it has given up, open and look."""
        if self.database:
            self._tried(self.database.close)
        self._outage.end()
        complaint = self._filesystem.mended()
        finding = Finding("unopenable")
        for _ in range(_OPENINGS_MAX):
            finding = self._opened()
            if finding.kind == "prefix":
                break
        if finding.kind != "prefix" and complaint:
            finding = Finding("file-system-damage", None, f"{complaint}; seen as {finding.kind}: {finding.detail}")
        self._note("reopen", finding, error)

    def _opened(self) -> Finding:
        if self.database:
            self._tried(self.database.close)
        self.database = None
        try:
            self.database = self._open()
        except Exception as error:
            if not self._engine.is_fault(error):
                raise
            return Finding("unopenable", detail=_words(error))
        return self._oracle.judge_open(self.database)

    def _note(self, word: str, finding: Finding, error: Exception) -> None:
        """Keep a finding, and go on from it or end."""
        self.live.append({
            "state": f"{word}-{self.issued}.{len(self.live) + 1}", "acked": self._due - 1, "issued": self.issued,
            "kind": finding.kind, "recovered": finding.recovered,
            "detail": f"{finding.detail}; after {_words(error)}" if finding.detail else f"after {_words(error)}",
        })  # fmt: skip
        if finding.recovered is not None and self._due - 1 <= finding.recovered <= self.issued:
            self._due = finding.recovered + 1
        else:
            self._is_over = True

    def _tried(self, action: Callable[[], object]) -> Exception | None:
        """Return what the engine raises of the disk; anything else is a mistake of ours and goes on."""
        try:
            action()
        except Exception as error:
            if not self._engine.is_fault(error):
                raise
            return error
        return None

    @property
    def _is_done(self) -> bool:
        return self._due > self._count or self._is_over

    @property
    def _held(self) -> EnduringDatabase:
        assert self.database, "the workload goes on without a database"
        return self.database


class _Outage:
    """What the strikes of one injection do to the disk; the marks `inject-N` and `heal-N` say when."""

    def __init__(
        self, injection: Injection, orders: Mapping[str, Any], data_file: str, mark: Callable[[str], None]
    ) -> None:
        self._injection = injection
        self._directory = orders["directory"]
        self._data_path = os.path.join(self._directory, data_file)
        self._layer = FaultLayer(DeviceMapper(), orders["device_below"])
        self._ballast = Ballast(self._directory)
        self._mark = mark
        self._number = 0

    def begin(self, strike: Strike, attempt: int, database: EnduringDatabase) -> None:
        """Let requests fail from now on, if they do not yet; at each attempt there is a bit more space."""
        if self._injection in {Injection.DISKFULL_LOG, Injection.DISKFULL_DATA}:
            self._ballast.leave(strike.free_blocks + attempt * strike.free_blocks_step)
        elif not self._number:
            self._fail_requests(strike.place, database)
        if not self._number:
            self._number = strike.number
            self._mark(f"inject-{strike.number}")

    def end(self) -> None:
        """Serve all requests again, if they fail now."""
        if not self._number:
            return
        if self._injection in {Injection.DISKFULL_LOG, Injection.DISKFULL_DATA}:
            self._ballast.remove()
        else:
            self._layer.heal()
        self._mark(f"heal-{self._number}")
        self._number = 0

    def write_back(self) -> None:
        """Let the kernel write out what it holds, as it may at any time: an outage meets writes that nobody awaits."""
        if self._number and self._injection is Injection.WRITE:
            for descriptor in self._files():
                _libc.sync_file_range(descriptor, ctypes.c_long(0), ctypes.c_long(0), _SYNC_FILE_RANGE_WRITE)

    def _fail_requests(self, place: Place, database: EnduringDatabase) -> None:
        if self._injection is Injection.READ:
            database.forget()
            for descriptor in self._files():
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            self._layer.fail("error_reads")
        elif place is Place.DATA:
            self._layer.fail("error_writes", sectors_of(self._data_path))
        else:
            self._layer.fail("error_writes")

    def _files(self) -> Iterator[int]:
        for path in sorted(Path(self._directory).iterdir()):
            # What is mapped stays in memory whatever is advised.
            if path.is_file() and not path.name.endswith("-shm"):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)


class _FileSystem:
    """The file system below the database, which gives up when its journal cannot be written."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self._device = orders["device"]
        self._directory = orders["directory"]
        self._type = orders["filesystem"]
        self._options = orders["mount_options"]

    def mended(self) -> str:
        """Unmount, check and mount again if it takes no more writes; return what the check says, or nothing."""
        if self._is_writable():
            return ""
        mounts.unmount(self._directory)
        process = subprocess.run(
            ["e2fsck", "-f", "-y", self._device], capture_output=True, text=True, timeout=_FSCK_LIMIT_S, check=False
        )
        mounts.mount(self._device, self._type, self._options, self._directory)
        return f"e2fsck {process.returncode}: {' '.join(process.stdout.split())[:400]}" if process.returncode else ""

    def _is_writable(self) -> bool:
        # Since 6.12 ext4 does not show itself as read-only when it has given up: only trying tells.
        path = os.path.join(self._directory, "probe")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            os.unlink(path)
        except OSError:
            return False
        return True


def _words(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "")
    return f"{name or type(error).__name__}: {error}"
