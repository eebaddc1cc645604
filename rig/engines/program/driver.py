"""Talk to a user's program; docs/how-to/your-own-program.md has the protocol.

`PROGRAM run --seed S --transactions N` prints `ack i` once transaction i is durable, perhaps with the name of the step,
and waits for `ok` before it goes on. If transaction i returned an error, it prints `fail i`. `PROGRAM recover` prints
what it finds after a cut. With `--after P` a recovered program works on: it has transactions 1 to P and carries out
those after P, to N. All are started in the directory under test, and have the seed and N in their environment too.
With `--clients C` transactions overlap (`rig.engines.program.clients`).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from functools import partial

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Inventory
from rig.engines.builds import FOLDER, IMAGE
from rig.engines.own import NoResult, Process, Reply, Start, Task
from rig.engines.program.answers import answer_in, parse, quote
from rig.engines.program.clients import ProgramClients
from rig.engines.program.endings import early_end, misconduct, require_good_end
from rig.engines.program.promises import Promised, promises_of

# The prefix of a build's name, before its digest.
KIND = "program-"
# What the user says of a program, and what the rig starts it with: there is nothing else to read it back from.
_TOLD = ("program", "release", "environment", "arguments")


class ProgramSession:
    """The program at work: it is started for its first transaction, whose commit thus includes all preparations."""

    def __init__(self, start: Start, task: Task) -> None:
        self._start = start
        self._task = task
        self._process: Process | None = None

    def commit(self, number: int) -> Reply:
        """Let the program go on, and return once it has said `ack NUMBER` or `fail NUMBER`."""
        due = f"ack {number}"
        if self._process is None:
            self._process = self._start(_run_command(self._task))
        else:
            if self._process.has_more():
                raise misconduct(f"went on after transaction {number - 1} without waiting for `ok`{self._next}")
            self._process.say("ok")
        line = self._process.line()
        if line is None:
            raise early_end(self._process, f"before it had said `{due}`")
        answer = answer_in(line)
        if answer is None or answer[0] != number:
            raise misconduct(f"said {quote(line)} where `{due}` was due{self._process.last_words}")
        return answer[1]

    def settings(self) -> dict[str, str]:
        """Return the promise that the program must keep, the program's digest and its image as the guest has them."""
        name = digest_name(_bytes_of(_path(self._task)))
        read = {"promise": self._task.settings["promise"], "library": name, "version": name.removeprefix(KIND)}
        read |= {key: self._task.settings[key] for key in _TOLD if key in self._task.settings}
        return read | ({"image": _bytes_of(IMAGE).decode()} if os.path.exists(IMAGE) else {})

    def close(self) -> None:
        """Let the program end; it must exit with code 0 and say nothing more."""
        assert self._process
        self._process.say("ok")
        require_good_end(self._process)

    @property
    def _next(self) -> str:
        assert self._process
        line = self._process.line()
        return "" if line is None else f": it said {quote(line)}"


def session(start: Start, task: Task) -> ProgramSession:
    """Return the program at work."""
    return ProgramSession(start, task)


def clients(start: Start, task: Task) -> ProgramClients:
    """Return the program at work for several clients."""
    return ProgramClients(partial(start, _run_command(task)), task.client_count)


def recovered(start: Start, task: Task) -> Finding:
    """Have the program recover twice; return what it found if both answers are the same."""
    is_empty = not os.listdir(task.directory)
    try:
        first, process = _ask(start, task)
    except NoResult as failure:
        if is_empty and failure.kind is FindingKind.UNOPENABLE:
            # The cut came before the program had made anything, so it is not blamed for finding nothing to open.
            return Finding(FindingKind.PREFIX, recovered=0, detail=f"no files; it {failure.words}")
        raise
    try:
        again, process_again = _ask(start, task)
    except NoResult as failure:
        words = f"said first: {first}{process.last_words}; asked again, it {failure.words}"
        raise NoResult(FindingKind.FICKLE, words) from None
    if again != first:
        words = f"said first: {first}{process.last_words}; asked again: {again}{process_again.last_words}"
        raise NoResult(FindingKind.FICKLE, words)
    finding = first.finding(
        task.transaction_count, task.failed, is_atomic=_is_atomic(task), client_count=task.client_count
    )
    left = f"it {process.leftovers}" if process.leftovers else ""
    if left and finding.kind is FindingKind.PREFIX:
        finding = replace(finding, kind=FindingKind.KEPT_OPEN, detail="; ".join(filter(None, [finding.detail, left])))
    return replace(finding, detail=f"{finding.detail}{process.last_words}".removeprefix("; "))


def _ask(start: Start, task: Task) -> tuple[Inventory, Process]:
    """Return the answer of one recovery, and the process, which has ended; raise NoResult if there is no answer."""
    process = start(_command(task, "recover"))
    lines = []
    while (line := process.line()) is not None:
        lines.append(line)
    if code := process.end():
        raise NoResult(FindingKind.UNOPENABLE, f"ended with exit code {code}{process.last_words}")
    try:
        return parse(lines), process
    except NoResult as failure:
        raise NoResult(failure.kind, f"{failure.words}{process.last_words}") from None


def _is_atomic(task: Task) -> bool:
    return Promised.ATOMIC in promises_of(task.settings["promise"])


def digest_name(content: bytes) -> str:
    """Return the name of a program with this content."""
    return KIND + hashlib.blake2b(content, digest_size=8).hexdigest()


def _run_command(task: Task) -> list[str]:
    options = ["--seed", str(task.seed), "--transactions", str(task.last or task.transaction_count)]
    options += [] if task.after is None else ["--after", str(task.after)]
    options += [] if task.client_count == 1 else ["--clients", str(task.client_count)]
    return _command(task, "run", *options)


def _command(task: Task, *words: str) -> list[str]:
    """Return the command that starts the program, with the environment and the words that the user adds.

    The seed and the counts are variables: an option that a command does not know could make it refuse.
    """
    environment, added = (json.loads(task.settings.get(key, "[]")) for key in ("environment", "arguments"))
    facts = [f"RIG_SEED={task.seed}", f"RIG_TRANSACTIONS={task.last or task.transaction_count}"]
    facts += [] if task.client_count == 1 else [f"RIG_CLIENTS={task.client_count}"]
    return [*facts, *environment, _path(task), *words, *added]


def _path(task: Task) -> str:
    return os.path.join(FOLDER, task.settings["library"])


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
