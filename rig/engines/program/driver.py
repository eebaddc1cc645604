"""Talk to a user's program; docs/how-to/your-own-program.md has the protocol.

`PROGRAM run --seed S --transactions N` prints `ack i` once transaction i is durable, and waits for `ok` before it goes
on. `PROGRAM recover` prints what it finds after a cut. Both are started in the directory under test.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from rig.contract.findings import Finding, FindingKind
from rig.engines.answers import Inventory
from rig.engines.builds import FOLDER, IMAGE
from rig.engines.own import Grief, Process, Start, Task
from rig.engines.program.answers import parsed, shown
from rig.engines.program.promises import Promised

# The prefix of a build's name, before its digest.
KIND = "program-"


class ProgramSession:
    """The program at work: it is started for its first transaction, whose commit thus includes all preparations."""

    def __init__(self, start: Start, task: Task) -> None:
        self._start = start
        self._task = task
        self._process: Process | None = None

    def commit(self, number: int) -> None:
        """Let the program go on, and return once it has said `ack NUMBER`."""
        due = f"ack {number}"
        if self._process is None:
            options = ["--seed", str(self._task.seed), "--transactions", str(self._task.transaction_count)]
            self._process = self._start([_path(self._task), "run", *options])
        else:
            if self._process.has_more():
                raise _broken(f"went on after `ack {number - 1}` without waiting for `ok`{self._next}")
            self._process.say("ok")
        line = self._process.line()
        if line is None:
            code = self._process.end()
            raise _broken(f"ended with exit code {code} before it had said `{due}`{self._process.said}")
        if line != due:
            raise _broken(f"said {shown(line)} where `{due}` was due{self._process.said}")

    def settings(self) -> dict[str, str]:
        """Return the promise that the program must keep, the program's digest and its image as the guest has them."""
        name = digest_name(_content(self._task))
        read = {"promise": self._task.settings["promise"], "library": name, "version": name.removeprefix(KIND)}
        return read | ({"image": _read(IMAGE).decode()} if os.path.exists(IMAGE) else {})

    def close(self) -> None:
        """Let the program end; it must exit with code 0 and say nothing more."""
        assert self._process
        self._process.say("ok")
        if (line := self._process.line()) is not None:
            raise _broken(f"said {shown(line)} after its last transaction")
        if code := self._process.end():
            raise _broken(f"ended with exit code {code} after its last transaction{self._process.said}")
        if self._process.left:
            raise _broken(self._process.left)

    @property
    def _next(self) -> str:
        assert self._process
        line = self._process.line()
        return "" if line is None else f": it said {shown(line)}"


def session(start: Start, task: Task) -> ProgramSession:
    """Return the program at work."""
    return ProgramSession(start, task)


def recovered(start: Start, task: Task) -> Finding:
    """Have the program recover twice; return what it found if both answers are the same."""
    is_empty = not os.listdir(task.directory)
    try:
        first, left = _asked(start, task)
    except Grief as grief:
        if is_empty and grief.kind is FindingKind.UNOPENABLE:
            # The cut came before the program had made anything, so it is not blamed for finding nothing to open.
            return Finding(FindingKind.PREFIX, recovered=0, detail=f"no files; it {grief.words}")
        raise
    try:
        again, _ = _asked(start, task)
    except Grief as grief:
        raise Grief(FindingKind.FICKLE, f"said first: {first}; asked again, it {grief.words}") from None
    if again != first:
        raise Grief(FindingKind.FICKLE, f"said first: {first}; asked again: {again}")
    finding = first.finding(task.transaction_count, is_atomic=task.settings["promise"] == Promised.ATOMIC)
    if left and finding.kind is FindingKind.PREFIX:
        return replace(finding, kind=FindingKind.KEPT_OPEN, detail="; ".join(filter(None, [finding.detail, left])))
    return finding


def _asked(start: Start, task: Task) -> tuple[Inventory, str]:
    """Return the answer of one recovery, and what the program left behind; raise Grief if there is no answer."""
    process = start([_path(task), "recover"])
    lines = []
    while (line := process.line()) is not None:
        lines.append(line)
    if code := process.end():
        raise Grief(FindingKind.UNOPENABLE, f"ended with exit code {code}{process.said}")
    return parsed(lines), f"it {process.left}" if process.left else ""


def digest_name(content: bytes) -> str:
    """Return the name of a program with this content."""
    return KIND + hashlib.blake2b(content, digest_size=8).hexdigest()


def _path(task: Task) -> str:
    return os.path.join(FOLDER, task.settings["library"])


def _content(task: Task) -> bytes:
    return _read(_path(task))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _broken(words: str) -> Grief:
    return Grief(FindingKind.DIED, words)
