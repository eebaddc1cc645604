"""The call behind a lost write, and the sync that should have followed it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from rig.analysis.explain.blame import Blame, Until, blame_calls, has_unseen, unsynced_files
from rig.analysis.explain.blocks import NamedWrite
from rig.analysis.explain.choices import Atom
from rig.contract.calls import SeenCall
from rig.filesystems.roles import ChangeKind, FileChange

BLANK = SeenCall("write", "db", "", 0, 4096, "database", "", 7, "python", "commit", 1, 0)


def calls(*told: SeenCall) -> list[SeenCall]:
    """Return calls at times a microsecond apart."""
    return [replace(one, time_ns=1000 * rank) for rank, one in enumerate(told)]


def call(name: str, path: str, *, number: int = 1, phase: str = "commit", **more: object) -> SeenCall:
    blank = BLANK if name == "write" else replace(BLANK, offset_bytes=-1, length_bytes=-1)
    return replace(blank, name=name, path=path, number=number, phase=phase, role=path, **more)  # type: ignore[arg-type]


def data(path: str, offset: int = 0, length: int = 4096) -> NamedWrite:
    return NamedWrite(Atom(5), 1 << 20, length, False, path, offset)


def block(*changes: FileChange) -> NamedWrite:
    return NamedWrite(Atom(6), 2 << 20, 4096, True, role="commit block", changes=changes)


def only(found: list[Blame]) -> Blame:
    (one,) = found
    return one


REMOVED = FileChange(ChangeKind.NAME_REMOVED, "db-journal")


def test_a_write_without_a_sync_lacks_one_of_its_file() -> None:
    seen = calls(call("write", "log"), call("write", "db"), call("sync", "db"), call("write", "log", number=2))
    found = only(blame_calls([data("log")], seen, Until(1)))
    assert ("log", 0, None) == (found.missing, found.call.time_ns, found.sync)
    assert not found.is_relied_on


def test_a_write_that_was_synced_lacks_nothing_and_the_sync_is_named() -> None:
    seen = calls(call("write", "log"), call("sync", "log"), call("write", "log", number=2))
    found = only(blame_calls([data("log")], seen, Until(1)))
    assert ("", "log") == (found.missing, found.sync and found.sync.path)


def test_a_sync_of_everything_counts_for_every_file() -> None:
    seen = calls(call("write", "log"), call("sync", ""), call("write", "log", number=2))
    assert "" == only(blame_calls([data("log")], seen, Until(1))).missing


def test_a_removed_name_lacks_a_sync_of_the_directory() -> None:
    seen = calls(call("unlink", "db-journal"), call("sync", "db"), call("write", "db", number=2))
    found = only(blame_calls([block(REMOVED)], seen, Until(1)))
    assert ("directory", "unlink", ".") == (found.missing, found.call.name, found.synced_path)
    assert found.of_directory


def test_a_sync_of_the_directory_before_the_call_is_none_after_it() -> None:
    seen = calls(call("sync", "."), call("unlink", "db-journal"), call("write", "db", number=2))
    assert "directory" == only(blame_calls([block(REMOVED)], seen, Until(1))).missing


def test_the_write_that_covers_the_place_is_blamed_and_no_other() -> None:
    places = ((0, 4096), (4096, 100), (8192, 100))
    seen = calls(*(call("write", "log", offset_bytes=offset, length_bytes=length) for offset, length in places))
    assert 4096 == only(blame_calls([data("log", 4096)], seen, Until(1))).call.offset_bytes


def test_the_last_write_up_to_the_commit_is_blamed_and_not_a_later_one() -> None:
    seen = calls(call("write", "log", number=1), call("write", "log", number=2), call("write", "log", number=3))
    assert 2 == only(blame_calls([data("log")], seen, Until(2))).call.number


def test_a_write_that_something_else_relied_on_lacks_a_sync_before_that() -> None:
    seen = calls(call("write", "log"), call("write", "db"), call("sync", "log"))
    assert "" == only(blame_calls([data("log")], seen, Until(1))).missing
    found = only(blame_calls([data("log")], seen, Until(1), [data("db")]))
    assert ("log", True) == (found.missing, found.is_relied_on)


@pytest.mark.parametrize("kind", [ChangeKind.SIZE, ChangeKind.BLOCKS, ChangeKind.DATA])
def test_a_block_that_changes_an_inode_is_blamed_on_the_write_to_its_file(kind: ChangeKind) -> None:
    seen = calls(call("write", "log"), call("sync", "db"))
    assert "log" == only(blame_calls([block(FileChange(kind, "log"))], seen, Until(1))).missing


def test_changes_of_earlier_transactions_are_left_out_if_the_own_has_some() -> None:
    added = FileChange(ChangeKind.NAME_ADDED, "old")
    seen = calls(call("create", "old", number=1), call("unlink", "db-journal", number=2))
    assert "unlink" == only(blame_calls([block(added, REMOVED)], seen, Until(2))).call.name
    assert "create" == only(blame_calls([block(added)], seen, Until(2))).call.name


def test_a_write_that_no_call_explains_is_blamed_on_nothing() -> None:
    assert [] == blame_calls([data("mapped")], calls(call("write", "log")), Until(1))


def test_a_call_that_was_synced_is_not_blamed_if_another_was_not() -> None:
    seen = calls(call("write", "log"), call("sync", "log"), call("unlink", "log"), call("write", "db", number=2))
    changes = (FileChange(ChangeKind.REMOVED, "log"), FileChange(ChangeKind.BLOCKS, "log"))
    assert ("unlink", "directory") == (only(blame_calls([block(*changes)], seen, Until(1))).call.name, "directory")


def test_a_write_that_another_place_of_its_file_relied_on_lacks_a_sync_between_the_two() -> None:
    record = call("write", "log", offset_bytes=512, length_bytes=512)
    header = call("write", "log", offset_bytes=0, length_bytes=512)
    found = only(
        blame_calls([data("log", 512, 512)], calls(record, header, call("sync", "log")), Until(1), [data("log", 0)])
    )
    assert ("log", "~log", True) == (found.missing, found.sync_to_add, found.is_within_file)


def test_a_lost_transaction_is_blamed_on_its_own_writes_if_what_was_lost_is_of_another() -> None:
    seen = calls(
        call("write", "log"), call("write", "table"), call("sync", "table"), call("unlink", "db-journal", number=2)
    )
    other = only(blame_calls([block(REMOVED)], seen, Until(2)))
    assert (2, False) == (other.call.number, other.is_apart)
    lacking = only(blame_calls([block(REMOVED)], seen, Until(1), is_subject=True))
    assert ("log", "log", 1, True) == (lacking.missing, lacking.sync_to_add, lacking.call.number, lacking.is_apart)
    # The disk had no write of it that could be lost.
    assert "log" == only(blame_calls([], seen, Until(1), is_subject=True)).missing
    assert [] == blame_calls([], seen, Until(1))


def test_of_several_calls_that_may_be_behind_a_write_the_one_that_was_relied_on_unsynced_is_blamed() -> None:
    resized = FileChange(ChangeKind.SIZE, "db")
    acked = partial(call, phase="acked")
    seen = calls(
        acked("write", "db", offset_bytes=9), acked("unlink", "log"), acked("write", "db"), acked("sync", "db"),
        acked("unlink", "log"), call("write", "db", number=2), call("sync", "db"),
    )  # fmt: skip
    gone = block(FileChange(ChangeKind.NAME_REMOVED, "log"))
    found = only(blame_calls([block(resized)], seen, Until(2), [gone], Until(1, is_acked=True)))
    assert ("db", True, 9) == (found.missing, found.is_relied_on, found.call.offset_bytes)
    # Nothing that it had come to by then relied on the first.
    found = only(blame_calls([block(resized)], seen, Until(1, is_acked=True), [gone], Until(1)))
    assert ("", "write") == (found.missing, found.call.name)


@pytest.mark.parametrize(("size_bytes", "offset"), [(4096, 0), (8, 8), (100, 20), (12, 20)])
def test_a_block_with_a_new_size_is_blamed_on_the_call_that_makes_it_if_there_is_one(
    size_bytes: int, offset: int
) -> None:
    seen = calls(
        call("write", "db"),
        call("truncate", "db", offset_bytes=8),
        call("write", "db", offset_bytes=20, length_bytes=5),
    )
    change = FileChange(ChangeKind.SIZE, "db", "", size_bytes)
    assert offset == only(blame_calls([block(change)], seen, Until(1))).call.offset_bytes


def test_a_size_that_was_given_in_advance_is_blamed_on_that_call_and_data_is_not() -> None:
    seen = calls(
        call("write", "db", length_bytes=696), call("fallocate", "db", offset_bytes=696, length_bytes=429_384),
        call("write", "db", offset_bytes=4, length_bytes=8),
    )  # fmt: skip
    blame = only(blame_calls([block(FileChange(ChangeKind.SIZE, "db", "", 430_080))], seen, Until(1)))
    assert ("fallocate", "db") == (blame.call.name, blame.missing)
    assert has_unseen([data("db", 16384)], seen)


def test_calls_that_the_workload_had_not_come_to_or_makes_at_its_end_are_not_blamed() -> None:
    seen = calls(
        call("write", "log", offset_bytes=1), call("write", "log", phase="acked", offset_bytes=2),
        call("write", "log", number=2, offset_bytes=3), call("write", "log", phase="acked", number=0, offset_bytes=4),
    )  # fmt: skip
    reached = (Until(1), Until(1, is_acked=True), Until(2), Until(2, is_acked=True), Until(9))
    blamed = [only(blame_calls([data("log")], seen, until)).call.offset_bytes for until in reached]
    assert [1, 2, 3, 3, 3] == blamed


def test_files_that_were_not_synced_by_then_are_those_with_a_write_after_their_last_sync() -> None:
    seen = calls(
        call("write", "log"), call("sync", "log"), call("write", "db"), call("write", "table"),
        call("write", "log", number=2), call("sync", "table", number=2), call("write", "late", number=3),
    )  # fmt: skip
    assert ["db", "log"] == [blame.missing for blame in unsynced_files(seen, 2)]
    assert all(blame.is_apart for blame in unsynced_files(seen, 2))
    assert ["db", "table"] == [blame.missing for blame in unsynced_files(seen, 1)]
    # What it does after the acknowledgement comes last, and a sync by then is no sync in time.
    later = calls(
        *seen[:5], call("write", "db", number=2, phase="acked", offset_bytes=9),
        call("sync", "log", number=2, phase="acked"), call("write", "vacuumed", number=2, phase="acked"), seen[-1],
    )  # fmt: skip
    assert ["db", "table", "log", "vacuumed"] == [blame.missing for blame in unsynced_files(later, 2)]
    everything = calls(*seen[:5], call("sync", "", number=2))
    assert [] == unsynced_files(everything, 2)
    assert [] == unsynced_files(seen, 9)


def renamed(path: str, new_path: str, *, number: int = 2) -> SeenCall:
    return call("rename", path, number=number, new_path=new_path)


def test_a_file_that_was_renamed_is_blamed_on_what_was_written_to_it_before() -> None:
    seen = calls(
        call("write", "log"), call("sync", "log"), call("write", "log.new", number=2), renamed("log.new", "log"),
        call("write", "db", number=3),
    )  # fmt: skip
    blame = only(blame_calls([data("log")], seen, Until(2)))
    assert ("log.new", "write", 2, "log.new") == (blame.missing, blame.call.name, blame.call.number, blame.synced_path)
    # By the time of the first transaction it was the file that had the name.
    assert "" == only(blame_calls([data("log")], seen, Until(1))).missing


def test_a_sync_under_the_new_name_counts_for_what_was_written_under_the_old_one() -> None:
    seen = calls(
        call("write", "log.new"),
        renamed("log.new", "log", number=1),
        call("sync", "log"),
        call("write", "db", number=2),
    )
    assert "" == only(blame_calls([data("log")], seen, Until(1))).missing


def test_what_was_written_to_a_file_that_another_replaced_lacks_no_sync() -> None:
    seen = calls(call("write", "log"), call("write", "log.new"), renamed("log.new", "log", number=1))
    assert ["log.new"] == [blame.missing for blame in unsynced_files(seen, 1)]


def test_a_file_that_is_cut_off_where_it_ends_is_blamed_on_what_made_it_so_long() -> None:
    seen = calls(
        call("write", "db", length_bytes=806),
        call("sync", "db"),
        call("truncate", "db", offset_bytes=806, length_bytes=-1),
    )
    size = FileChange(ChangeKind.SIZE, "db", size_bytes=806)
    blame = only(blame_calls([block(size)], seen, Until(1)))
    assert ("write", "") == (blame.call.name, blame.missing)


def test_a_file_whose_name_is_drawn_is_known_by_its_pattern() -> None:
    seen = calls(
        call("write", "c/8b/6e3b8b39b44ee136.val", length_bytes=40_000), call("unlink", "c/db-shm"),
        call("write", "c/other", length_bytes=40_000),
    )  # fmt: skip
    lost = block(
        FileChange(ChangeKind.NAME_REMOVED, "c/db-shm"),
        FileChange(ChangeKind.SIZE, "c/05/0bd233f3402af4dd.val", size_bytes=40_000),
    )
    blamed = blame_calls([lost], seen, Until(1))
    assert ["c/db-shm", "c/8b/6e3b8b39b44ee136.val"] == [blame.call.path for blame in blamed]
    assert ["directory", "c/8b/6e3b8b39b44ee136.val"] == [blame.missing for blame in blamed]


def test_data_that_no_call_wrote_is_blamed_on_none_and_that_is_known() -> None:
    seen = calls(
        call("truncate", "db", offset_bytes=0), call("truncate", "db", offset_bytes=10_000), call("sync", "db")
    )
    assert has_unseen([data("db", 16384)], seen)
    assert [] == blame_calls([data("db", 16384)], seen, Until(1))
    # The end of a file that was cut off is written.
    assert not has_unseen([data("db", 8192)], seen)
    assert "truncate" == only(blame_calls([data("db", 8192)], seen, Until(1))).call.name
    assert not has_unseen([data("log")], calls(call("write", "log", number=5, phase="acked")))
    assert not has_unseen([data("db", 16384)], [])


def test_data_of_a_mapped_file_is_blamed_on_memory_and_a_sync_of_another_part_is_none() -> None:
    first = call("write", "db", number=0, phase="acked")
    part = call("sync", "db", offset_bytes=4096, length_bytes=100)
    seen = calls(
        first, call("map", "db"), part, call("map", "db", number=2), replace(part, number=2),
        call("write", "log", number=3),
    )  # fmt: skip
    # What a call once wrote there is not what was lost.
    blame = only(blame_calls([data("db", 8192)], seen, Until(2)))
    assert ("map", 2, "db", None) == (blame.call.name, blame.call.number, blame.missing, blame.sync)
    # The kernel syncs whole pages.
    blame = only(blame_calls([data("db", 4096 + 100)], seen, Until(2)))
    assert "" == blame.missing
    assert ["db"] == [unsynced.missing for unsynced in unsynced_files(seen, 2)]
    assert not has_unseen([data("db", 8192)], seen)
