"""A workload whose process is killed again and again: inside commits, and right after acknowledgements.

The page cache survives, so no acknowledged transaction may be missing. Each life of the workload opens the database
that the last life left (that is the recovery), judges its whole content, and continues with the transaction that was in
flight, or with the next one if the database already has it. A life is a fork of this process. It dies in its first
transaction: either before a supervised call or as soon as the acknowledgement is in the log. The seed draws the call
from as many calls as a transaction of these settings makes. Transactions that stay in memory make no call, so they
always die after the acknowledgement. A database that comes back wrong is reported, and replaced by one that holds what
was acknowledged. A transaction found in the database counts as acknowledged from then on, because it has been read.
Kills end before the many lives have filled the disk; a database that comes back wrong on a full disk voids the
recording.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.contract.messages import decode
from rig.engines import Database
from rig.engines.syncs import Call
from rig.guest import filecontent
from rig.guest.devices.devicemapper import DeviceMapper
from rig.guest.devices.stack import has_room
from rig.guest.programs import workload
from rig.guest.programs.marks import marker
from rig.guest.site import LOG, Site
from rig.guest.watch.sample import sample
from rig.guest.watch.supervisor import Action, WorkloadPhase, WorkloadPosition, supervise, tell
from rig.workloads.operations import Operation, Verb

# The last kill of a transaction comes after its acknowledgement; all others hit its commit.
KILLS_PER_TRANSACTION = 3
# One in this many of the file system's blocks, and of its files, must be free.
_SPARE_BLOCKS, _SPARE_FILES = 16, 8


@dataclass
class Death:
    """How and where a life ends: it is killed in the first transaction that it begins."""

    # The number of kills before this one.
    rank: int
    # Draws the call, counted from 1, before which a commit is killed. A commit with fewer calls is killed after its
    # acknowledgement.
    draw: Callable[[], int]
    # False after enough kills, or once the log or the file system is nearly full: then nothing is killed.
    strikes: bool = True
    issued: int = 0
    acked: int = 0
    where: str = ""
    _call_number: int = 0
    _calls_seen: int = 0

    @property
    def has_struck(self) -> bool:
        """Whether the process was killed."""
        return bool(self.where)

    def on_move(self, place: WorkloadPosition) -> Action:
        """Choose how to die once the first transaction begins; die at an acknowledgement."""
        if not self.strikes:
            return Action.CARRY_OUT
        if place.phase is WorkloadPhase.COMMIT:
            self.issued = place.number
            # A transaction that survived a kill gets no further kills; later transactions get them instead.
            hits_commit = self.rank + 1 < KILLS_PER_TRANSACTION * place.number
            self._call_number = self.draw() if hits_commit else 0
        elif place.phase is WorkloadPhase.ACKED:
            self.acked = place.number
            self.where = f"killed right after transaction {place.number} was acknowledged"
            return Action.KILL
        return Action.CARRY_OUT

    def on_call(self, place: WorkloadPosition, call: Call, kind: str) -> Action:
        """Die before the call that was drawn."""
        if place.phase is not WorkloadPhase.COMMIT:
            return Action.CARRY_OUT
        self._calls_seen += 1
        if self._calls_seen != self._call_number:
            return Action.CARRY_OUT
        what = f"{call}, {kind}" if kind else str(call)
        self.where = f"killed in transaction {place.number} before its call {self._calls_seen} ({what})"
        return Action.KILL


def run(site: Site) -> dict[str, Any]:
    """Carry out the workload through all its deaths; return the facts that the host needs."""
    choice = random.Random(f"kill {site.orders.seed}")
    kills_max = KILLS_PER_TRANSACTION * site.orders.transaction_count // 2
    call_counts = [count for count in sample(site.orders, writes=True).call_counts if count]
    mapper = DeviceMapper()
    lives = _Lives(site, marker(mapper, LOG))
    live: list[dict[str, Any]] = []
    settings: dict[str, str] = {}
    acked = kill_count = 0
    # The death whose consequences the next life finds; None if the next life makes a new database.
    last: Death | None = None

    def draw() -> int:
        return choice.randint(1, choice.choice(call_counts)) if call_counts else 0

    while True:
        goes_on = kill_count < kills_max and has_room(mapper) and has_space(site.directory)
        death = Death(kill_count, draw, strikes=goes_on)
        facts, was_killed = lives.carry_out(acked, death, is_fresh=last is None)
        settings = facts.get("settings", settings)
        finding = decode(Finding, facts["finding"])
        is_sound = finding.recovered is not None and finding.recovered >= acked
        if not is_sound and not has_space(site.directory):
            # The engine may have lost something, or our full disk may have stopped it: void the recording.
            raise RuntimeError(
                f"the disk is nearly full after {kill_count} kills, and the database came back as {finding.kind}: "
                f"{finding.detail}; record fewer transactions"
            )
        if last:
            live.append(_live_finding(last, finding, acked, len(live) + 1))
        if was_killed:
            acked = max(acked, finding.recovered or 0, death.acked)
            last = death
            kill_count += 1
        elif is_sound:
            break
        else:
            last = None
    user_bytes = site.work.user_bytes(site.orders.transaction_count)
    return {"settings": settings, "user_bytes": user_bytes, "live": live}


def has_space(directory: str) -> bool:
    """Return whether a file system has space for some more lives and for the files that each may leave behind."""
    room = os.statvfs(directory)
    # Some file systems do not count files.
    return room.f_bavail * _SPARE_BLOCKS >= room.f_blocks and room.f_ffree * _SPARE_FILES >= room.f_files


def _live_finding(death: Death, finding: Finding, acked: int, number: int) -> dict[str, Any]:
    detail = f"{death.where}; {finding.detail}" if finding.detail else death.where
    return {
        "state": f"kill-{number}", "acked": acked, "issued": max(acked, death.issued),
        "kind": finding.kind, "recovered": finding.recovered, "detail": detail, "files": finding.files,
    }  # fmt: skip


class _Lives:
    """The processes that do the work, one after the other."""

    def __init__(self, site: Site, log: Callable[[str], None]) -> None:
        self._site = site
        self._log = log
        self._work = site.work
        self._models = self._work.models
        self._oracle = self._work.oracle()
        self._is_set_up = False

    def carry_out(self, acked: int, death: Death, *, is_fresh: bool) -> tuple[dict[str, Any], bool]:
        """Run one life until it is killed or done; return the messages it sent, merged, and whether it was killed."""
        body = partial(self._live, acked, is_fresh=is_fresh)
        facts: dict[str, Any] = {}
        ending = supervise(self._site, body, death)
        for message in ending.messages:
            facts |= message
        if ending.exit_code:
            if is_fresh or "finding" in facts:
                ending.require("the workload")
            kind = ending.failure or FindingKind.UNOPENABLE
            return {"finding": asdict(Finding(kind, detail=ending.why))}, False
        self._is_set_up = True
        if death.has_struck and not death.acked:
            self._log(f"fail-{death.issued}")
        return facts, death.has_struck

    def _live(self, acked: int, send: Callable[[Any], None], *, is_fresh: bool) -> None:
        """Open the database, or make one, then continue the workload. This runs in the fork."""
        opened: list[Database] = []

        def reopen() -> Database:
            opened.append(self._site.open_database())
            return opened[0]

        if is_fresh:
            self._make(acked, reopen, send)
            finding = Finding(FindingKind.PREFIX, recovered=acked)
        else:
            files = filecontent.digest(self._site.directory)
            finding = replace(self._oracle.judge(reopen, lambda _: None), files=files)
        send({"finding": asdict(finding)})
        if finding.recovered is None or finding.recovered < acked:
            return
        for number in range(finding.recovered + 1, self._site.orders.transaction_count + 1):
            self._mark(f"begin-{number}")
            opened[0].commit(self._work.transaction(number))
            # Otherwise a call of another thread could be the last, once the acknowledgement is in the log.
            tell(f"committed-{number}")
            self._mark(f"ack-{number}")
        self._mark("end")
        opened[0].close()

    def _make(self, acked: int, reopened: Callable[[], Database], send: Callable[[Any], None]) -> None:
        # Keep folders: one may belong to the file system.
        for path in [path for path in Path(self._site.directory).rglob("*") if path.is_file() or path.is_symlink()]:
            path.unlink()
        database = reopened()
        rows = [
            Operation(Verb.INSERT, table.name, key, row)
            for table in self._work.first_tables
            for key, row in self._models[acked][table.name].items()
        ]
        database.create(self._work.first_tables, rows)
        if not self._is_set_up:
            send({"settings": database.settings()})
            workload.make_durable(self._site)
            self._log("setup")

    def _mark(self, text: str) -> None:
        self._log(text)
        tell(text)
