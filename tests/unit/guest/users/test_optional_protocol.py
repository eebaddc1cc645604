"""The optional parts of the protocol of users' programs: promises that combine, steps by name, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.judging.promises import promise_for
from rig.contract.errors import UsageError
from rig.engines.own import Ended, NoResult, Process, Reply, Start, Task
from rig.engines.program import driver
from rig.engines.program.answers import parse
from rig.engines.program.promises import PROMISES, promises_of, spelling_of
from rig.front import programs
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from tests.leaks import as_if_the_process_ended

COUNT = 5
NUMBERS = st.sets(st.integers(1, COUNT))
_PROGRAM = """#!/bin/sh
[ "$1" = recover ] && {{ {recover}; exit; }}
i=0
while [ $i -lt "$5" ]; do i=$((i + 1)); {commit}; done
"""
_GOOD = 'echo $i >> log; echo "ack $i"; read -r ok; [ "$ok" = ok ] || exit 9'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Start, Task]]]:
    """Give a program in a directory of its own, as the guest starts it, but without its mounts."""
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    folder = tmp_path / "data"
    folder.mkdir()

    def made(commit: str = _GOOD, recover: str = ":") -> tuple[Start, Task]:
        path = tmp_path / "program"
        path.write_text(_PROGRAM.format(commit=commit, recover=recover))
        path.chmod(0o755)
        return start, Task({"library": "program", "promise": "durable"}, str(folder), 7, COUNT)

    def start(arguments: Sequence[str]) -> Process:
        return Child(arguments, str(folder), is_confined=False)

    with as_if_the_process_ended():
        yield made
        kill_children()


def lines(have: Sequence[int], torn: Sequence[int]) -> list[str]:
    return [f"have {number}" for number in have] + [f"torn {number}" for number in torn]


def test_with_a_focus_the_program_is_cut_in_its_steps_and_its_control_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "program").write_text("#!/bin/sh\n")
    chosen = programs.select(str(tmp_path / "program"), None, (), "atomic,durable", focus="compaction").scenarios
    ids = [f"program-ext4-{name}_powercut" for name in ("durable_atomic+eatmydata", "durable_atomic")]
    assert list(zip(ids, ["", "compaction"], strict=True)) == [(scenario.id, scenario.focus) for scenario in chosen]
    with pytest.raises(UsageError, match="unknown promise 'durable,eternal'; there are: durable, prefix, atomic"):
        programs.select(str(tmp_path / "program"), None, (), "durable,eternal")


def test_promises_combine_in_any_order_and_have_one_spelling() -> None:
    assert PROMISES == (
        "durable", "prefix", "atomic", "durable_prefix", "durable_atomic", "prefix_atomic", "durable_prefix_atomic"
    )  # fmt: skip
    assert {"durable_atomic"} == {
        spelling_of(words) for words in ("durable,atomic", "atomic, durable", "durable_atomic")
    }
    assert {"durable", "atomic"} == promises_of("durable_atomic")
    for name, words in (("durable", "there in part"), ("durable_atomic", "there whole or missing, never in part")):
        promised = promise_for("program", {"promise": name}, "ioerror-fsync", "none")
        assert promised
        assert f"a transaction in flight may be {words}" == promised.bound


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_transaction_that_returned_an_error_may_be_missing_and_no_other(
    have: set[int], torn: set[int], failed: set[int]
) -> None:
    torn -= have
    found = parse(lines(sorted(have), sorted(torn))).finding(COUNT, failed)
    last = max(have, default=0)
    is_whole = set(range(1, last)) <= have | failed
    assert (("prefix", last) if is_whole else ("hole", None)) == (found.kind, found.recovered)
    # It is no excuse for one that is there in part, if nothing may be.
    atomic = parse(lines(sorted(have), sorted(torn))).finding(COUNT, failed, is_atomic=True)
    assert bool(torn) is (atomic.kind == "torn")


def test_a_recovery_knows_the_seed_and_the_number_of_transactions_without_options(
    site: Callable[..., tuple[Start, Task]],
) -> None:
    told = 'echo "have $RIG_SEED"; echo "torn $RIG_TRANSACTIONS $#"'
    start, task = site(commit=f'echo "$RIG_SEED $RIG_TRANSACTIONS" >> told; {_GOOD}', recover=told)
    session = driver.session(start, task)
    for number in range(1, COUNT + 1):
        session.commit(number)
    session.close()
    assert "7 5\n" * COUNT == Path(task.directory, "told").read_text()
    finding = driver.recovered(start, replace(task, seed=1))
    assert (1, "torn 5 1") == (finding.recovered, finding.detail)
    # In a later life the variable is what the option says.
    later = driver.session(start, replace(task, after=0, last=2))
    for number in (1, 2):
        later.commit(number)
    later.close()
    assert Path(task.directory, "told").read_text().endswith("7 2\n" * 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ack 1 compaction", Reply(step="compaction")),
        ("ack 1 truncate_part-2", Reply(step="truncate_part-2")),
        ("fail 1", Reply(failure="")),
        ("fail 1 No space left", Reply(failure="No space left")),
        ("ack 1 two words", None),
        ("ack 1 .", None),
        ("ack 01", None),
        ("fail 2", None),
    ],
)
def test_a_transaction_may_have_a_name_or_fail(
    line: str, expected: Reply | None, site: Callable[..., tuple[Start, Task]]
) -> None:
    session = driver.session(*site(commit=f'echo "{line}"; read -r ok'))
    if expected:
        assert expected == session.commit(1)
        assert "ack-1.compaction" == Reply(step="compaction").mark(1)
    else:
        with pytest.raises(NoResult, match="where `ack 1` was due"):
            session.commit(1)


@pytest.mark.parametrize("ending", ["exit 3", "kill -ABRT $$"])
def test_an_end_in_the_middle_of_a_transaction_is_told_from_other_misconduct(
    ending: str, site: Callable[..., tuple[Start, Task]]
) -> None:
    with pytest.raises(Ended):
        driver.session(*site(commit=ending)).commit(1)
