"""Which system call wrote what was lost, which sync should have followed it, and whether one did.

Calls come from another run of the same scenario, under supervision: it does the same in the same transaction, at
another time. So a write of the recording and a call are matched by file, place in the file and transaction. A file
that was renamed is the same file: what was written to `new` and renamed to `log` is behind a block of `log`, and what
was written to the `log` before is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from rig.analysis.explain.blocks import NamedWrite
from rig.contract.calls import SeenCall
from rig.contract.orders import ADD_WITHIN, DIRECTORY
from rig.engines.syncs import CallName, pattern_of
from rig.filesystems.roles import ChangeKind, FileChange

_COMMITS = {"commit", "committed"}
_WRITES = {CallName.WRITE, CallName.TRUNCATE, CallName.ALLOCATE}
_PAGE_BYTES = 4096
# What a block changes about a file -> the calls that do so.
_CAUSES = {
    ChangeKind.NAME_REMOVED: {CallName.UNLINK, CallName.RENAME},
    ChangeKind.NAME_ADDED: {CallName.CREATE, CallName.RENAME},
    ChangeKind.MADE: {CallName.CREATE},
    ChangeKind.REMOVED: {CallName.UNLINK},
    ChangeKind.SIZE: _WRITES,
    ChangeKind.BLOCKS: _WRITES,
    ChangeKind.DATA: {CallName.WRITE, CallName.TRUNCATE},
}


class Until(NamedTuple):
    """How far the workload had come: the last transaction that had begun, whether it was acknowledged, and the end."""

    number: int
    is_acked: bool = False
    is_over: bool = False


@dataclass(frozen=True)
class Blame:
    """One call whose effect was lost."""

    # What the lost write does to the file, if it is a block of the file system.
    change: FileChange | None
    call: SeenCall
    # The first sync of the file, or of the directory, between the call and the next thing that relied on it.
    sync: SeenCall | None
    # The role or path of what should have been synced, as `rig.contract.orders` spells it; empty if it was.
    missing: str
    # Whether it is a write that landed that relied on the call, and not the acknowledgement.
    is_relied_on: bool = False
    # Whether that write is to the same file.
    is_within_file: bool = False
    # Whether the lost write is the work of other calls. What this one wrote may not have reached the disk at all.
    is_apart: bool = False

    @property
    def sync_to_add(self) -> str:
        """Return what should have been synced, as a shim spells it that adds the sync; empty if it was."""
        return f"{ADD_WITHIN}{self.missing}" if self.missing and self.is_within_file else self.missing

    @property
    def of_directory(self) -> bool:
        """Return whether a name was lost, so that the directory is what should have been synced."""
        return is_of_name(self.change)

    @property
    def synced_path(self) -> str:
        """Return the file or directory that should have been synced."""
        return _path_to_sync(self.call, self.change)


def is_of_name(change: FileChange | None) -> bool:
    """Return whether a change comes with a name, which a sync of the directory makes durable."""
    return change is not None and change.kind in {ChangeKind.NAME_ADDED, ChangeKind.NAME_REMOVED, ChangeKind.REMOVED}


def blame_calls(
    writes: Sequence[NamedWrite],
    calls: Sequence[SeenCall],
    until: Until,
    landed: Sequence[NamedWrite] = (),
    landed_until: Until | None = None,
    *,
    is_subject: bool = False,
) -> list[Blame]:
    """Return the calls behind writes that were lost, without repetitions; `until` says how far the workload had come.

    `landed` are writes that relied on them, made by calls until `landed_until`: a sync between the two would have kept
    the order. Without any, it is the acknowledgement that relied on them. `is_subject` says that the transaction itself
    is lost. Then its own writes are to blame that no sync followed, if the lost writes have nothing to do with it: they
    may have reached the disk much later, or not at all.
    """
    transaction = until.number
    reliant = sorted(
        {rank for write in landed for _, ranks in _causes(write, calls, landed_until or until) for rank in ranks}
    )
    blames: dict[tuple[str, str, int], Blame] = {}
    for write in writes:
        causes = [(change, _choice(change, calls, ranks, reliant)) for change, ranks in _causes(write, calls, until)]
        own = [cause for cause in causes if calls[cause[1]].number == transaction]
        span = range(write.file_offset_bytes, write.file_offset_bytes + write.length_bytes) if write.path else None
        for change, index in own or causes[:1]:
            blame = _blame(change, calls, index, reliant, span)
            blames.setdefault((blame.call.name, blame.call.path, blame.call.offset_bytes), blame)
    # Where a sync is missing, other calls have no part in the loss.
    lacking = [blame for blame in blames.values() if blame.missing]
    if is_subject and not any(blame.call.number == transaction for blame in lacking):
        lacking = _unsynced_writes(calls, transaction) or lacking
    return lacking or list(blames.values())


def last_call_behind(write: NamedWrite, calls: Sequence[SeenCall], until: Until) -> SeenCall | None:
    """Return the last call that may be behind a write, or behind the weightiest change of a block."""
    causes = _causes(write, calls, until)
    return calls[causes[0][1][-1]] if causes else None


def has_unseen(writes: Sequence[NamedWrite], calls: Sequence[SeenCall]) -> bool:
    """Return whether no call at all is behind a write of a file's data."""
    return bool(calls) and any(write.path and not _causes(write, calls, Until(0, is_over=True)) for write in writes)


def unsynced_files(calls: Sequence[SeenCall], transaction: int) -> list[Blame]:
    """Return the last write to each file that no sync of the file followed in time.

    First come files that a transaction's commit left unsynced, then files that were unsynced when the next one began,
    and last those that are mapped into memory, because nobody knows whether something was written there.
    """
    own = [(rank, call.phase in _COMMITS) for rank, call in enumerate(calls) if call.number == transaction]
    commits = [rank for rank, is_commit in own if is_commit]
    if not commits:
        return []
    by_path = _unsynced_by_path(calls[: own[-1][0] + 1])
    blames = (_unsynced_by_path(calls[: commits[-1] + 1]) | by_path).values()
    return sorted(blames, key=lambda blame: blame.call.name == CallName.MAP)


def _unsynced_by_path(calls: Sequence[SeenCall]) -> dict[str, Blame]:
    blames: dict[str, Blame] = {}
    for call in calls:
        if call.name == CallName.SYNC:
            # A sync of a part (msync) leaves the rest.
            blames = {path: blame for path, blame in blames.items() if not _is_synced_by(call, path, range(0))}
        elif call.name == CallName.RENAME:
            moved, _ = blames.pop(call.path, None), blames.pop(call.new_path, None)
            blames |= {call.new_path: moved} if moved else {}
        elif call.name in {*_WRITES, CallName.MAP}:
            blames[call.path] = Blame(None, call, None, call.role or call.path, is_apart=True)
    return blames


def _unsynced_writes(calls: Sequence[SeenCall], transaction: int) -> list[Blame]:
    """Return the first write to each file in a commit that no sync of the file followed in time."""
    blames: dict[str, Blame] = {}
    for index, call in enumerate(calls):
        if call.number == transaction and call.phase in _COMMITS and call.name in _WRITES:
            blame = _blame(None, calls, index, ())
            if blame.missing:
                blames.setdefault(call.path, replace(blame, is_apart=True))
    return list(blames.values())


def _causes(
    write: NamedWrite, calls: Sequence[SeenCall], until: Until
) -> Sequence[tuple[FileChange | None, Sequence[int]]]:
    """Return the ranks of the calls that may be behind a write, or behind each change of a block, weightiest first.

    Calls are sought by the names that files got in the end, then by the names that they had, and then by the patterns
    of names, because a program may draw them.
    """
    reached = calls[: _reached_count(calls, until)]
    renamed, drawn = _under_last_names(reached), [_under_pattern(call) for call in reached]
    if write.path:
        span = range(write.file_offset_bytes, write.file_offset_bytes + write.length_bytes)
        ways = ((write.path, renamed), (write.path, reached), (pattern_of(write.path), drawn))
        # What a call wrote to a file may have been written over in memory since it was mapped.
        mapped = [rank for rank, call in enumerate(renamed) if call.name == CallName.MAP and call.path == write.path]
        if mapped:
            return [(None, mapped)]
        ranks = [[rank for rank, call in enumerate(known) if _writes_to(call, path, span)] for path, known in ways]
        return [(None, first) for first in ranks if first][:1]
    order = list(ChangeKind)
    causes: list[tuple[FileChange, list[int]]] = []
    for change in sorted(write.changes, key=lambda change: order.index(change.kind)):
        of_pattern = replace(change, path=pattern_of(change.path))
        ways_of_change = ((change, renamed), (change, reached), (of_pattern, drawn))
        causes.append((change, next(filter(None, (_ranks_behind(*way) for way in ways_of_change)), [])))
    return [(change, behind) for change, behind in causes if behind]


def _under_pattern(call: SeenCall) -> SeenCall:
    return replace(call, path=pattern_of(call.path), new_path=pattern_of(call.new_path))


def _under_last_names(calls: Sequence[SeenCall]) -> list[SeenCall]:
    """Return the calls with writes under the last name of their file; no name for a file that is gone."""
    renamed: list[SeenCall] = []
    # What a file that has a name now is called in the end.
    last: dict[str, str] = {}
    for call in reversed(calls):
        if call.name == CallName.RENAME:
            last |= {call.path: last.get(call.new_path, call.new_path), call.new_path: ""}
        elif call.name == CallName.UNLINK:
            last[call.path] = ""
        has_last = call.name in {*_WRITES, CallName.MAP}
        renamed.append(replace(call, path=last.get(call.path, call.path)) if has_last else call)
    return renamed[::-1]


def _ranks_behind(change: FileChange, calls: Sequence[SeenCall]) -> list[int]:
    """Return the ranks of the calls that do such a change; if any gives a file the very size that it gets, of those."""
    ranks = [rank for rank, call in enumerate(calls) if _does(change, call)]
    sizing = [rank for rank in ranks if change.size_bytes in {_end_bytes(calls[rank]), -1}]
    # A file that is cut off where it ends stays as it was.
    idle = {
        later for rank, later in pairwise(sizing)
        if calls[later].name == CallName.TRUNCATE and _end_bytes(calls[rank]) == calls[later].offset_bytes
    }  # fmt: skip
    return [rank for rank in sizing if rank not in idle] or ranks


def _end_bytes(call: SeenCall) -> int:
    """Return how large a file is after a call that makes it larger or cuts it off; -2 if that is not known."""
    if call.name == CallName.TRUNCATE:
        return call.offset_bytes
    return call.offset_bytes + call.length_bytes if call.offset_bytes >= 0 and call.length_bytes >= 0 else -2


def _choice(change: FileChange | None, calls: Sequence[SeenCall], ranks: Sequence[int], reliant: Sequence[int]) -> int:
    """Return the last of some calls that something relied on without a sync between the two; the last if none is."""
    for relied in reversed(reliant):
        if earlier := [rank for rank in ranks if rank < relied]:
            path = _path_to_sync(calls[earlier[-1]], change)
            if not _syncs(calls[earlier[-1] + 1 : relied], path):
                return earlier[-1]
    return ranks[-1]


def _syncs(calls: Sequence[SeenCall], path: str, span: range | None = None) -> list[SeenCall]:
    """Return the syncs of a file, or of a part that has a byte of a span, also under the names that the file gets."""
    syncs = []
    for call in calls:
        if call.name == CallName.RENAME and call.path == path:
            path = call.new_path
        elif call.name == CallName.SYNC and _is_synced_by(call, path, span):
            syncs.append(call)
    return syncs


def _is_synced_by(call: SeenCall, path: str, span: range | None) -> bool:
    """Return whether a sync is of a file or of everything; of a part (msync), whether that has a byte of a span.

    Without a span it is about what the file system knows of the file, which a sync of any part makes durable.
    """
    if call.path not in {path, ""} or call.length_bytes < 0 or span is None:
        return call.path in {path, ""}
    end_bytes = -(-(call.offset_bytes + call.length_bytes) // _PAGE_BYTES) * _PAGE_BYTES
    return call.offset_bytes < span.stop and end_bytes > span.start


def _does(change: FileChange, call: SeenCall) -> bool:
    return call.name in _CAUSES.get(change.kind, ()) and change.path in {call.path, call.new_path}


def _path_to_sync(call: SeenCall, change: FileChange | None) -> str:
    """Return what a sync has to name so that a change by a call is durable: the file, or the directory of a name."""
    return str(PurePosixPath(call.path).parent) if is_of_name(change) else call.path


def _writes_to(call: SeenCall, path: str, span: range) -> bool:
    if call.path != path or call.name != CallName.WRITE:
        # What is left of the last block of a file that is cut off is written with zeros behind it.
        return call.path == path and call.name == CallName.TRUNCATE and call.offset_bytes in span
    if call.offset_bytes < 0 or call.length_bytes < 0:
        return True
    return call.offset_bytes < span.stop and call.offset_bytes + call.length_bytes > span.start


def _blame(
    change: FileChange | None, calls: Sequence[SeenCall], index: int, reliant: Sequence[int], span: range | None = None
) -> Blame:
    call = calls[index]
    path = _path_to_sync(call, change)
    end = next(
        (
            rank
            for rank, later in enumerate(calls[index:], index)
            if (later.phase, later.number) not in _commit_of(call)
        ),
        len(calls),
    )
    relied = min((index_of_reliant for index_of_reliant in reliant if index_of_reliant > index), default=end)
    syncs = _syncs(calls[index + 1 : relied], path, span)
    missing = "" if syncs else DIRECTORY if is_of_name(change) else call.role or call.path
    is_relied_on = relied < end
    return Blame(
        change, call, syncs[0] if syncs else None, missing, is_relied_on, is_relied_on and calls[relied].path == path
    )


def _commit_of(call: SeenCall) -> set[tuple[str, int]]:
    """Return the phases and transaction in which a sync is in time for a call."""
    return {(phase, call.number) for phase in _COMMITS} if call.phase in _COMMITS else {(call.phase, call.number)}


def _reached_count(calls: Sequence[SeenCall], until: Until) -> int:
    """Return how many calls the workload had made. Those after its end have no number."""
    last = 0
    if until.is_over:
        return len(calls)
    for rank, call in enumerate(calls):
        last = max(last, call.number)
        is_reached = until.is_acked or call.phase in _COMMITS
        if call.number < last or call.number > until.number or (call.number == until.number > 0 and not is_reached):
            return rank
    return len(calls)
