"""Several transactions of a user's program in flight: how it is carried out, and what it says wrong, in words."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.findings import Finding, FindingKind
from rig.engines import engine_named
from rig.engines.answers import Inventory
from rig.engines.builds import Library
from rig.engines.own import Ended, NoResult, Process, Start, Task
from rig.engines.program import driver
from rig.faults import Mark
from rig.guest.users import clients
from rig.guest.watch import rehearsal
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from rig.images.warmup import warm_orders
from rig.planning import matrix
from rig.planning.tunings import with_clients
from rig.recordings.timeline import Timeline
from tests.leaks import as_if_the_process_ended

GROUPS = Path(__file__).resolve().parents[3] / "vm/groups"
MENDED = 3
COUNT, CLIENTS = 11, 4
# A program that says what it is told, whatever it hears.
_PROGRAM = "#!/usr/bin/python3\nimport sys\nsay = lambda *lines: print(*lines, sep='\\n', flush=True)\n{conduct}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Start, Task]]]:
    """Give a program in a directory of its own, as the guest starts it, but without its mounts."""
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    folder = tmp_path / "data"
    folder.mkdir()

    def made(conduct: str = "") -> tuple[Start, Task]:
        path = tmp_path / "program"
        if conduct:
            path.write_text(_PROGRAM.format(conduct=conduct))
            path.chmod(0o755)
        else:
            shutil.copy(GROUPS, path)
        settings = {"library": "program", "promise": "durable"}
        return start, Task(settings, str(folder), MENDED, COUNT, client_count=CLIENTS)

    def start(arguments: Sequence[str]) -> Process:
        return Child(arguments, str(folder), is_confined=False)

    with as_if_the_process_ended():
        yield made
        kill_children()


def carry_out(start: Start, task: Task) -> list[str]:
    """Carry out all transactions; return the marks."""
    marks: list[str] = []
    session = driver.clients(start, task)
    clients.carry_out(session, task, marks.append, lambda share: marks.append(f"pause {share}"))
    session.close()
    return marks


def test_transactions_of_several_clients_overlap_and_each_client_has_its_own_in_order(
    site: Callable[..., tuple[Start, Task]],
) -> None:
    start, task = site()
    marks = carry_out(start, task)
    assert f"clients-{CLIENTS}" == marks[0]
    for client in range(1, CLIENTS + 1):
        numbers = range(client, COUNT + 1, CLIENTS)
        own = [mark for mark in marks[1:] if mark.partition("-")[2] in map(str, numbers)]
        assert [f"{word}-{number}" for number in numbers for word in ("begin", "ack")] == own
    # All begin together, some go on while others are in flight, and nobody is in flight during a pause.
    assert [f"begin-{number}" for number in (1, 2, 3, 4)] == marks[2:6]
    flights, in_flight = [], 0
    for mark in marks:
        in_flight += mark.startswith("begin") - mark.startswith("ack")
        flights.append(in_flight)
        assert not (mark.startswith("pause") and in_flight)
    assert CLIENTS == max(flights)
    assert any(before.startswith("ack") and mark.startswith("begin") for before, mark in itertools.pairwise(marks))
    found = driver.recovered(start, task)
    assert Finding(FindingKind.PREFIX, recovered=COUNT, of_clients=(3, 3, 3, 2)) == found


@pytest.mark.parametrize(
    ("conduct", "words"),
    [
        ("say('ack 1')", "said 'ack 1' without `begin 1` before it"),
        ("say('begin 1', 'ack 99')", "said 'ack 99' without `begin 99` before it"),
        ("say('begin 1', 'ack 1', 'ack 1')", "said 'ack 1' a second time"),
        ("say('begin 1', 'begin 1')", "said 'begin 1' a second time"),
        ("say('begin 1', 'begin 5')", "said 'begin 5' before it had `ok 1`: each client has one transaction in flight"),
        (
            "say(*(f'begin {i}' for i in range(1, 6)))",
            "said 'begin 5' before it had `ok 1`: each client has one transaction in flight",
        ),
        ("say('begin 9')", "said 'begin 9' where it is not the next transaction of any client"),
        ("say('begin 0')", "said 'begin 0', which is neither `begin N` nor `ack N` nor `fail N`"),
        ("say('begin 1', 'ok')", "said 'ok', which is neither"),
        ("sys.exit('no space')", "ended with exit code 1 before it had said `begin 1`; it said: no space"),
        ("say('begin 2', 'begin 3', 'ack 2')", "ended with exit code 0 before it had said `ack 3`"),
        ("say('begin 1', 'fail 1 no space')", "said that transaction 1 failed; it said: no space"),
        # It never waits for `ok`.
        ("for i in range(1, 12): say(f'begin {i}', f'ack {i}')", "each client has one transaction in flight"),
    ],
)
def test_a_program_that_breaks_the_protocol_is_told_the_line_and_the_transaction(
    conduct: str, words: str, site: Callable[..., tuple[Start, Task]]
) -> None:
    with pytest.raises(NoResult) as caught:
        carry_out(*site(conduct))
    assert words in caught.value.words
    assert isinstance(caught.value, Ended) is ("ended with" in words)


@pytest.mark.parametrize(
    ("ending", "words"),
    [("say('ack 11')", "said 'ack 11' after its last transaction"), ("sys.exit(4)", "exit code 4 after its last")],
)
def test_a_bad_end_is_told_in_words(ending: str, words: str, site: Callable[..., tuple[Start, Task]]) -> None:
    # One thread is enough for clients that never work at the same time.
    program = f"""
for i in range(1, {CLIENTS + 1}): say(f"begin {{i}}", f"ack {{i}}")
for _ in range({COUNT}):
    i = int(input()[3:]) + {CLIENTS}
    if i <= {COUNT}: say(f"begin {{i}}", f"ack {{i}}")
{ending}
"""
    with pytest.raises(NoResult) as caught:
        carry_out(*site(program))
    assert words in caught.value.words


NUMBERS = st.sets(st.integers(1, COUNT))


@given(NUMBERS, NUMBERS)
def test_each_client_has_a_prefix_of_its_own_or_a_hole(have: set[int], torn: set[int]) -> None:
    torn -= have
    found = Inventory(frozenset(have), dict.fromkeys(torn, "")).finding(COUNT, client_count=CLIENTS)
    own = [range(client, COUNT + 1, CLIENTS) for client in range(1, CLIENTS + 1)]
    counts = [len(have & set(numbers)) for numbers in own]
    if all(set(numbers[:count]) <= have for numbers, count in zip(own, counts, strict=True)):
        assert (FindingKind.PREFIX, len(have), tuple(counts)) == (found.kind, found.recovered, found.of_clients)
        assert bool(torn) is found.is_torn
    else:
        assert FindingKind.HOLE is found.kind
        assert "of the same client" in found.detail
    atomic = Inventory(frozenset(have), dict.fromkeys(torn, "")).finding(COUNT, client_count=CLIENTS, is_atomic=True)
    assert bool(torn) is (atomic.kind is FindingKind.TORN)


def test_the_marks_of_several_clients_are_a_timeline(site: Callable[..., tuple[Start, Task]]) -> None:
    texts = [mark for mark in carry_out(*site()) if not mark.startswith("pause")]
    texts = ["setup", *texts, "end"]
    timeline = Timeline([Mark(10 * rank, f"{text}-{rank}") for rank, text in enumerate(texts)])
    assert (CLIENTS, COUNT) == (timeline.client_count, len(timeline.turns))
    assert set(range(1, COUNT + 1)) == timeline.acked_numbers(10 * len(texts))


def test_the_example_of_the_manual_keeps_to_the_protocol(site: Callable[..., tuple[Start, Task]]) -> None:
    page = (GROUPS.parents[2] / "docs/how-to/your-own-program.md").read_text()
    (example,) = re.findall(r"^```python\n(#!/usr/bin/python3\n# groups\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    start, task = site()
    Path(task.directory).with_name("program").write_text(example)
    carry_out(start, task)
    assert Finding(FindingKind.PREFIX, recovered=COUNT, of_clients=(3, 3, 3, 2)) == driver.recovered(start, task)


def test_a_dry_run_with_several_clients_is_a_run_and_a_recovery(
    tmp_path: Path, site: Callable[..., tuple[Start, Task]]
) -> None:
    scenario = with_clients(next(iter(matrix.scenarios_of([engine_named("program")]))), CLIENTS)
    workload = replace(scenario.workload, transaction_count=COUNT)
    orders = replace(scenario, tuning={"library": "program"}, workload=workload, seed=MENDED).orders
    site()
    run, recovery = rehearsal.steps(orders, tmp_path / "rehearsal", is_confined=False)
    assert ("run --seed 3 --transactions 11 --clients 4", "") == (run["name"], run["wrong"])
    assert "ack 1 to 11, of 4 clients" == run["answer"]
    assert ("recover", "", "have 1 to 11, twice") == (recovery["name"], recovery["wrong"], recovery["answer"])
    assert run["files"]["log"]["synced"]
    site("say('begin 1', 'begin 5')")
    (run,) = rehearsal.steps(orders, tmp_path / "again", is_confined=False)
    assert "it said 'begin 5' before it had `ok 1`" in run["wrong"]


def test_a_program_with_clients_warms_a_machine_up_alone_and_with_them() -> None:
    library = Library("program", "program-1", Path("program"))
    (alone,) = warm_orders([library], ())
    again, together = warm_orders([replace(library, client_count=CLIENTS)], ())
    assert alone == again
    assert (1, CLIENTS, 2 * CLIENTS) == (alone.client_count, together.client_count, together.transaction_count)
    # Only this workload has clients.
    assert "own" == together.workload
