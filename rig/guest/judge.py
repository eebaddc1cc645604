"""Judge databases in a separate process, because an engine may do anything on a damaged file.

The agent is process 1: if it died, so would the machine. So another process, forked from it, opens, checks, reads and
closes one database after the other. It reports through shared memory what it is doing, and what it prints is kept. If
it dies, takes too long or runs out of memory, that is the finding, and the next database gets a new process. A process
that kept files open is also replaced (`kill`). The agent itself never opens a database: threads that an engine starts
would be missing in every later fork.

A database that computes for longer than `Spec.state_limit_s` is stuck. So is one that gives no answer within
`_WALL_FACTOR` times that limit, because it sleeps or its helpers compute. When the guest has no memory left, the kernel
kills this process before any other.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from enum import StrEnum
from functools import cache
from typing import NoReturn

from rig.contract.findings import Finding, FindingKind
from rig.contract.messages import decode
from rig.engines import Database, ObservantDriver, load
from rig.engines.own import OwnDriver
from rig.guest.devices import mounts
from rig.guest.programs import own
from rig.guest.site import Site
from rig.guest.watch.children import oom_kill_count
from rig.guest.watch.forks import first_to_be_killed, keep_little, kill_children, last_words, manner, print_to
from rig.guest.watch.patience import Limits, Patience
from rig.workloads.operations import Content, Table
from rig.workloads.oracle import Parted

_WALL_FACTOR = 3
# A new process imports the engine and computes what the database must hold.
_LOADING_LIMIT_S = 60
_LOOK_MS = 500
# `struct timeval`, see socket(7).
_LOOK = struct.pack("ll", 0, _LOOK_MS * 1000)
# A finding's detail is cut to this length, so that a message fits into a socket's buffer: in JSON a character takes up
# to twelve bytes.
_DETAIL_CHARS = 10_000
_MESSAGE_BYTES = 1 << 17
KEPT_OPEN = "the engine kept files open after it had closed the database"
# See mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 << 20
_CLOSE, _LEAVE = b"close", b"leave"


class CheckPhase(StrEnum):
    """What the process is doing."""

    WAITING = "idle after closing"
    LOADING = "loading the engine"
    OPENING = "opening"
    CHECKING = "checking"
    READING = "reading"
    COMPARING = "comparing"
    CLOSING = "closing"


_PHASES = tuple(CheckPhase)


class Judge:
    """Judges what is in the directory of a site, in a process that is replaced whenever an engine breaks it."""

    def __init__(self) -> None:
        self._site: Site | None = None
        self._limit_s = 0
        self._worker: _Worker | None = None
        # A database may take this many times the limit in the engine's spec.
        self.patience = 1

    def assign(self, site: Site) -> None:
        """Judge this site from now on, and load what that needs. Raise RuntimeError if our own code fails."""
        self._site = site
        self._limit_s = load(site.orders.engine_module).spec.state_limit_s
        self._ready()

    def judge(self, *, leaves: bool = False) -> Finding:
        """Judge the database; `leaves` closes it the fast way, see `rig.engines.LeavableDatabase`."""
        return self._ready() or self._ask(_LEAVE if leaves else _CLOSE, self._limit_s * self.patience)

    def aftermath(self) -> Finding | None:
        """Return how the process has died since its last answer, or None if it has not."""
        if not (self._worker and self._worker.has_ended):
            return None
        worker, self._worker = self._worker, None
        return worker.failure()

    def unmount(self, finding: Finding) -> Finding:
        """Unmount; return the finding, replaced if the engine still had files open or has died since."""
        try:
            mounts.unmount()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            words = f"{KEPT_OPEN}{self.kill()}"
            mounts.release()
            return kept_open(finding, words)
        died = self.aftermath() if finding.opened else None
        return replace(died, files=finding.files, met=finding.met) if died else finding

    def kill(self) -> str:
        """Kill the process and all that it started; return what it said."""
        worker, self._worker = self._worker, None
        return worker.kill() if worker else ""

    def _ready(self) -> Finding | None:
        """Make sure that a process has loaded the site; return the finding if that fails."""
        assert self._site, "no site was assigned"
        self.aftermath()
        if self._worker is None:
            self._worker = _Worker()
        if self._worker.site is self._site:
            return None
        finding = self._ask(json.dumps(asdict(self._site)).encode(), _LOADING_LIMIT_S)
        if finding.kind is not FindingKind.PREFIX:
            return finding
        self._worker.site = self._site
        return None

    def _ask(self, request: bytes, limit_s: float) -> Finding:
        assert self._worker
        answer = self._worker.ask(request, limit_s)
        if isinstance(answer, Finding):
            self._worker = None
            return answer
        return _finding(answer)


def kept_open(finding: Finding, words: str = KEPT_OPEN) -> Finding:
    """Return the finding of an engine that kept files open; a finding other than a prefix keeps its kind."""
    kind = FindingKind.KEPT_OPEN if finding.kind is FindingKind.PREFIX else finding.kind
    return replace(finding, kind=kind, detail=f"{finding.detail}; {words}" if finding.detail else words)


@cache
def _limits(limit_s: float) -> Limits:
    return Limits(limit_s, limit_s * _WALL_FACTOR)


class _Worker:
    """The process, as the agent sees it."""

    def __init__(self) -> None:
        self.site: Site | None = None
        self._phase = mmap.mmap(-1, mmap.PAGESIZE)
        self._oom_kill_count = oom_kill_count()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # With this timeout one system call waits for an answer in each state, instead of a poll of several descriptors.
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LOOK)
        self._printed = os.memfd_create("printed")
        self._printed_before = 0
        # Keep the fork's garbage collector from touching, and so copying, the pages of existing objects.
        gc.freeze()
        self._pid = os.fork()
        if self._pid == 0:
            _JudgeProcess(theirs, self._printed, self._phase).serve()
        theirs.close()
        self._end = os.pidfd_open(self._pid)
        self._poll = select.poll()
        self._poll.register(self._end, select.POLLIN)

    @property
    def has_ended(self) -> bool:
        """Whether it has died since its last answer."""
        return bool(self._poll.poll(0))

    def ask(self, request: bytes, limit_s: float) -> bytes | Finding:
        """Return its answer to a request; if it gives none, kill it and return the finding."""
        self._printed_before = os.lseek(self._printed, 0, os.SEEK_CUR)
        patience = Patience(self._pid, _limits(limit_s))
        with suppress(OSError):  # it has just ended, which the wait notices
            self._channel.send(request)
        while True:
            try:
                if answer := self._channel.recv(_MESSAGE_BYTES):
                    return answer
                wait_ms = _LOOK_MS  # it has closed the channel: it has ended, or will never answer
            except BlockingIOError:
                wait_ms = 0
            if self._poll.poll(wait_ms):
                return self.failure()
            keep_little(self._printed)
            if failure := patience.failure:
                kind, words = failure
                phase = self._at
                return Finding(kind, detail=f"{kind} while {phase}: {words}{self.kill()}")

    def kill(self) -> str:
        """Kill it, its session and what it started; return what it said."""
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        return self._reap()[1]

    def failure(self) -> Finding:
        """Return how it ended by itself."""
        phase = self._at
        with suppress(ProcessLookupError):  # what it started
            os.killpg(self._pid, signal.SIGKILL)
        exit_code, words = self._reap()
        if exit_code == -signal.SIGKILL and oom_kill_count() > self._oom_kill_count:
            text = f"the guest had no memory left while {phase}, and the kernel killed the engine{words}"
            return Finding(FindingKind.OUT_OF_MEMORY, detail=text)
        return Finding(FindingKind.DIED, detail=f"{manner(exit_code, phase)}{words}")

    @property
    def _at(self) -> CheckPhase:
        return _PHASES[self._phase[0]]

    def _reap(self) -> tuple[int, str]:
        _, status = os.waitpid(self._pid, 0)
        if os.getpid() == 1:
            # The processes that it had started, in any process group, are now our children.
            kill_children()
        words = last_words(self._printed, self._printed_before)
        for descriptor in (self._printed, self._end):
            os.close(descriptor)
        self._channel.close()
        self._phase.close()
        return os.waitstatus_to_exitcode(status), words


class _JudgeProcess:
    """The process itself, after the fork."""

    def __init__(self, channel: socket.socket, printing: int, phase: mmap.mmap) -> None:
        self._channel = channel
        self._printing = printing
        self._phase = phase
        self._site: Site | None = None
        self._own: OwnDriver | None = None

    def serve(self) -> NoReturn:
        """Answer requests until the agent is gone."""
        try:
            self._settle()
            while request := self._channel.recv(_MESSAGE_BYTES):
                self._channel.send(self._answer(request))
        except BaseException:  # noqa: BLE001 - an engine may raise something that is no Exception; these are its last words
            self._say(traceback.format_exc(limit=-3).encode())
        finally:
            os._exit(1)

    def _settle(self) -> None:
        """Start a session, be the first process killed if memory runs out, and close the agent's descriptors."""
        os.setsid()
        first_to_be_killed()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        print_to(self._printing)
        channel = self._channel.fileno()
        os.closerange(3, channel)
        os.closerange(channel + 1, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _keep_freed_memory()

    def _answer(self, request: bytes) -> bytes:
        if request in {_CLOSE, _LEAVE}:
            finding = self._judge(_leave if request == _LEAVE else _close)
            self._at(CheckPhase.WAITING)
            return _message(finding)
        self._at(CheckPhase.LOADING)
        try:
            self._load(decode(Site, json.loads(request)))
        except Exception:  # noqa: BLE001 - nothing has been opened yet, so the rig or the package is at fault
            return json.dumps(traceback.format_exc()).encode()
        # Everything allocated so far stays for good, so spare the garbage collector from scanning it again and again.
        gc.collect()
        gc.freeze()
        self._at(CheckPhase.WAITING)
        return _message(Finding(FindingKind.PREFIX))

    def _load(self, site: Site) -> None:
        # The package may have been added after this process was started.
        importlib.invalidate_caches()
        engine = load(site.orders.engine_module)
        self._site, self._own = site, engine.own_driver
        if self._own:
            return
        driver = engine.driver()
        self._met = driver.met if isinstance(driver, ObservantDriver) else None
        self._oracle = site.work.oracle()

    def _judge(self, close: Callable[[Database], None]) -> Finding:
        site = self._site
        assert site
        self._at(CheckPhase.OPENING)
        if self._own:
            return own.recover(site, self._own)
        met = ", ".join(self._met(site.directory)) if self._met else ""

        def close_database(database: _Told) -> None:
            self._at(CheckPhase.CLOSING)
            close(database.database)

        finding = self._oracle.judge(lambda: _Told(site.open_database(), self._at), close_database)
        return replace(finding, met=met) if met else finding

    def _at(self, phase: CheckPhase) -> None:
        self._phase[0] = _PHASES.index(phase)

    def _say(self, words: bytes) -> None:
        with suppress(OSError):
            os.write(2, words)


class _Told:
    """An open database that reports each phase of its work."""

    def __init__(self, database: Database, at: Callable[[CheckPhase], None]) -> None:
        self.database = database
        self._at = at

    def problems(self) -> list[str]:
        self._at(CheckPhase.CHECKING)
        return self.database.problems()

    def content(self, tables: Sequence[Table]) -> Content:
        self._at(CheckPhase.READING)
        content = self.database.content(tables)
        self._at(CheckPhase.COMPARING)
        return content

    def parts(self, tables: Sequence[Table]) -> Sequence[frozenset[str]]:
        return self.database.parts(tables) if isinstance(self.database, Parted) else ()

    def close(self) -> None:
        self._at(CheckPhase.CLOSING)
        self.database.close()


def _keep_freed_memory() -> None:
    """Have the C library keep what is freed: in a user-mode machine each new page costs 40 µs."""
    libc = ctypes.CDLL(None)
    for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        libc.mallopt(option, _KEPT_BYTES)


def _message(finding: Finding) -> bytes:
    """Encode the five fields of a finding that the agent needs. This runs once per state."""
    fields = (finding.kind, finding.recovered, finding.detail[:_DETAIL_CHARS], finding.met, finding.of_clients)
    return json.dumps(fields).encode()


def _finding(message: bytes) -> Finding:
    """Decode a finding from a message; raise RuntimeError if the message is a traceback of our own code."""
    match json.loads(message):
        case [kind, recovered, detail, met, of_clients]:
            return Finding(FindingKind(kind), recovered, detail, met=met, of_clients=tuple(of_clients))
        case words:
            raise RuntimeError(words)


def _close(database: Database) -> None:
    database.close()


def _leave(database: Database) -> None:
    """Close a database that is about to be thrown away, and skip work that the next opening could do."""
    getattr(database, "leave", database.close)()
