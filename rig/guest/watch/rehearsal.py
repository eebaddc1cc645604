"""Rehearse a user's program on a tmpfs: no cut, no file system, but every call that writes or syncs a file is seen.

The program runs in an empty directory, recovers there, works on with `--after`, and recovers again. The first step that
goes wrong is the last one. With several clients it does not work on: no fault needs that.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rig.contract.findings import Finding, FindingKind
from rig.contract.orders import Orders
from rig.engines import load
from rig.engines.own import ClientsDriver, NoResult, OwnDriver, Process, Start, Task
from rig.engines.syncs import CallName
from rig.guest.programs import own
from rig.guest.site import Site
from rig.guest.users import clients
from rig.guest.watch.calls import Teller
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from rig.guest.watch.patience import Limits
from rig.guest.watch.supervisor import supervise, tell

# A program that does not wait for `ok` shows it by then.
_PAUSE_S = 0.3
_FOLDER = Path("/run/rehearsal")
# As many times the limit for one crash state: its user looks on, and a busy host may give a machine a fraction of a
# processor, which its clock does not show.
_PATIENCE = 4
_CHANGES = (CallName.WRITE, CallName.TRUNCATE, CallName.ALLOCATE, CallName.MAP)


def steps(orders: Orders, folder: Path = _FOLDER, *, is_confined: bool = True) -> list[dict[str, Any]]:
    """Carry out the steps; return of each what was asked, what the program said, and its files by their names."""
    folder.mkdir()
    try:
        return list(_steps(Site(orders, str(folder)), is_confined=is_confined))
    finally:
        shutil.rmtree(folder)


def _steps(site: Site, *, is_confined: bool) -> Iterator[dict[str, Any]]:
    driver = load(site.orders.engine_module).own_driver
    assert driver
    Path(site.engine_directory).mkdir()
    task = own.task_of(site)
    count = task.transaction_count
    later = replace(task, after=count, last=2 * count)
    both = replace(task, transaction_count=2 * count)

    def start(arguments: Sequence[str]) -> Process:
        return Child(arguments, site.engine_directory, is_confined=is_confined)

    run = f"run --seed {task.seed} --transactions {count}"
    bodies: list[tuple[str, Callable[[Start], str]]] = [
        (run, lambda kept: _run(driver, kept, task, range(1, count + 1))),
        ("recover", lambda kept: _recover(driver, kept, task)),
        (
            f"run --seed {task.seed} --transactions {2 * count} --after {count}",
            lambda kept: _run(driver, kept, later, range(count + 1, 2 * count + 1)),
        ),
        ("recover", lambda kept: _recover(driver, kept, both)),
    ]
    if task.client_count > 1:
        together = f"{run} --clients {task.client_count}"
        bodies = [(together, lambda kept: _run_clients(driver, kept, task)), bodies[1]]
    for name, body in bodies:
        step = _step(site, name, start, body)
        yield step
        if step["wrong"]:
            return


def _step(site: Site, name: str, start: Start, body: Callable[[Start], str]) -> dict[str, Any]:
    def carry_out(send: Callable[[Any], None]) -> None:
        processes: list[Process] = []

        def start_and_keep(arguments: Sequence[str]) -> Process:
            processes.append(start(arguments))
            return processes[-1]

        tell("setup")
        answer, wrong = "", ""
        try:
            answer = body(start_and_keep)
        except NoResult as failure:
            wrong = f"it {failure.words}"
        finally:
            kill_children()
        last_words = processes[0].last_words.removeprefix("; it said: ") if processes else ""
        send({"answer": answer, "last_words": last_words, "wrong": wrong})

    begin_s = time.monotonic()
    watch = Teller(site.engine_directory)
    limit_s = _PATIENCE * load(site.orders.engine_module).spec.state_limit_s
    ending = supervise(site, carry_out, watch, details=True, limits=Limits(limit_s, limit_s))
    answers = ending.messages[0] if ending.messages else {"answer": "", "last_words": "", "wrong": f"it {ending.why}"}
    facts = {"is_stuck": ending.failure is FindingKind.STUCK, "files": _files(watch)}
    return {"name": name, "s": round(time.monotonic() - begin_s, 1), **answers, **facts}


def _run(driver: OwnDriver, start: Start, task: Task, numbers: range) -> str:
    session = driver.session(start, task)
    for number in numbers:
        tell(f"begin-{number}")
        session.commit(number)
        tell(f"ack-{number}")
        if number == numbers[0]:
            time.sleep(_PAUSE_S)
    session.close()
    return f"ack {numbers[0]} to {numbers[-1]}"


def _run_clients(driver: OwnDriver, start: Start, task: Task) -> str:
    assert isinstance(driver, ClientsDriver)
    session = driver.clients(start, task)
    clients.carry_out(session, task, tell, lambda _: time.sleep(_PAUSE_S))
    session.close()
    return f"ack 1 to {task.transaction_count}, of {task.client_count} clients"


def _recover(driver: OwnDriver, start: Start, task: Task) -> str:
    finding = driver.recovered(start, task)
    if (finding.kind, finding.recovered) == (FindingKind.PREFIX, task.transaction_count):
        return f"have 1 to {task.transaction_count}, twice"
    raise NoResult(finding.kind, _words_of(finding, task.transaction_count))


def _words_of(finding: Finding, count: int) -> str:
    words = f": {finding.detail}" if finding.detail else ""
    if finding.recovered == count:
        return f"found everything, but is {finding.kind}{words}"
    kept = "is " + finding.kind if finding.recovered is None else f"found transactions 1 to {finding.recovered}"
    return f"{kept} where 1 to {count} were acknowledged, and nothing was cut{words}"


def _files(watch: Teller) -> dict[str, dict[str, int]]:
    """Return the calls of each name of a file, with N for numbers; a sync of everything has the name `*`."""
    files: dict[str, dict[str, int]] = {}
    for call in watch.calls:
        name = call.role or call.path or "*"
        counts = files.setdefault(name, {"made": 0, "changed": 0, "synced": 0})
        counts["made"] += call.name == CallName.CREATE
        counts["changed"] += call.name in _CHANGES
        counts["synced"] += call.name == CallName.SYNC
        if call.name == CallName.RENAME and call.new_path:
            counts["renamed"] = counts.get("renamed", 0) + 1
    return files
