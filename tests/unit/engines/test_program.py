"""A user's program: it is taken at its word, held against one promise, and told where its words are no answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.dossiers import Keeps
from rig.analysis.judging.outcome import Result, summarise
from rig.analysis.judging.promises import promise_for, violates
from rig.analysis.judging.protocol import NEVER_SYNCS, compare
from rig.contract.errors import StoreError, UsageError
from rig.contract.findings import Finding, FindingKind
from rig.contract.results import MeasuredScenario, VerdictKind
from rig.engines.builds import ImageContents
from rig.engines.own import NoResult, Process, Start, Task
from rig.engines.program import builds, driver
from rig.engines.program.answers import parse
from rig.engines.program.promises import PROMISES
from rig.front import cli, programs
from rig.guest.watch.children import Child
from rig.guest.watch.forks import kill_children
from rig.host import processes
from rig.planning import matrix
from tests.leaks import as_if_the_process_ended
from tests.unit.samples import changed, durable, measured_scenario, verdict

COUNT = 5
ROOT = Path(__file__).resolve().parents[3]
# The pages with a complete program.
PAGES = ("docs/how-to/your-own-program.md", "AGENTS.md", "docs/llms.txt")
NUMBERS = st.sets(st.integers(1, COUNT))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def lines(have: Sequence[int], torn: Sequence[int] = ()) -> list[str]:
    return [f"have {number}" for number in have] + [f"torn {number} half of it" for number in torn]


@pytest.mark.parametrize(
    ("have", "torn", "promise", "kind", "recovered"),
    [
        ([1, 2, 3], [], "durable", "prefix", 3),
        ([], [], "atomic", "prefix", 0),
        ([1, 2, 3, 4, 5], [], "prefix", "prefix", 5),
        ([1, 2], [3], "durable", "prefix", 2),
        ([1, 2], [3], "prefix", "prefix", 2),
        ([1, 2], [3], "atomic", "torn", None),
        ([1, 3], [], "durable", "hole", None),
        ([1, 3], [2], "prefix", "hole", None),
        ([2], [], "atomic", "hole", None),
        ([1, 6], [], "durable", "foreign", None),
        ([], [0], "atomic", "foreign", None),
    ],
)
def test_an_answer_is_the_prefix_that_it_has_unless_its_promise_forbids_something_in_it(
    have: list[int], torn: list[int], promise: str, kind: str, recovered: int | None
) -> None:
    found = parse(lines(have, torn)).finding(COUNT, is_atomic=promise == "atomic")
    assert (kind, recovered) == (found.kind, found.recovered)
    assert not torn or "half of it" in found.detail or kind == "foreign"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "answered 'hello', which is neither"),
        ("have x", "answered 'have x'"),
        ("have  1", "answered 'have  1'"),
        ("have 1 and more", "answered"),
        ("torn", "answered 'torn'"),
        ("have " + "9" * 200, "9..."),
        ("have 2", "spoke twice of transaction 2"),
        ("torn 2 x", "spoke twice of transaction 2"),
    ],
)
def test_what_is_no_answer_is_damage_that_quotes_it(text: str, words: str) -> None:
    with pytest.raises(NoResult) as caught:
        parse(["have 1", "have 2", text])
    assert FindingKind.CORRUPT is caught.value.kind
    assert words in caught.value.words


@given(NUMBERS, NUMBERS, st.integers(0, COUNT))
def test_a_promise_breaks_exactly_where_the_definition_says_so(have: set[int], torn: set[int], acked: int) -> None:
    torn -= have
    # An honest disk leaves no trace of a transaction that was not begun, and one is begun after each acknowledgement.
    have, torn = ({n for n in numbers if n <= acked + 1} for numbers in (have, torn))
    should_break = {
        "durable": not set(range(1, acked + 1)) <= have,
        "prefix": have != set(range(1, len(have) + 1)),
        "atomic": bool(torn),
    }
    for promise in PROMISES:
        found = parse(lines(sorted(have), sorted(torn))).finding(COUNT, is_atomic="atomic" in promise)
        kind, lost = VerdictKind.DURABLE, 0
        if found.recovered is None:
            kind = VerdictKind(found.kind)
        elif found.recovered < acked:
            kind, lost = VerdictKind.LOST_SUFFIX, acked - found.recovered
        promised = promise_for("program", {"promise": promise}, "powercut", "none")
        assert promised
        is_broken = any(should_break[word] for word in promise.split("_"))
        assert is_broken is violates(promised, verdict(kind, lost)), (promise, found)


@pytest.mark.parametrize("kind", [kind for kind in VerdictKind if kind.is_damage])
def test_a_program_that_cannot_be_opened_breaks_every_promise_and_a_hole_all_but_atomic(kind: VerdictKind) -> None:
    for promise in PROMISES:
        promised = promise_for("program", {"promise": promise}, "torn", "none")
        assert promised
        is_broken = violates(promised, verdict(kind))
        assert is_broken is not (kind is VerdictKind.HOLE and promise == "atomic")


def test_nothing_is_promised_where_the_disk_lies_or_powersafe_overwrite_is_gone() -> None:
    for fault in ("lyingflush", "bitflip", "shorn"):
        promised = promise_for("program", {"promise": "durable"}, fault, "none")
        assert promised
        assert Keeps.ANYTHING is promised.keeps
    assert promise_for("program", {"promise": "eternal"}, "powercut", "none") is None


# Programs in the shell: what `run` does for each transaction, and what `recover` prints.
_PROGRAM = """#!/bin/sh
[ "$1" = recover ] && {{ {recover}; exit; }}
i=0
while [ $i -lt "$5" ]; do i=$((i + 1)); {commit}; done
{close}
"""
_GOOD = 'echo $i >> log; echo "ack $i"; read -r ok; [ "$ok" = ok ] || exit 9'
_ANSWER = "sed 's/^/have /' log"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Start, Task]]]:
    """Give a program in a directory of its own, as the guest starts it, but without its mounts."""
    monkeypatch.setattr(driver, "FOLDER", str(tmp_path))
    folder = tmp_path / "data"
    folder.mkdir()

    def made(commit: str = _GOOD, recover: str = _ANSWER, close: str = "") -> tuple[Start, Task]:
        path = tmp_path / "program"
        path.write_text(_PROGRAM.format(commit=commit, recover=recover, close=close))
        path.chmod(0o755)
        return start, Task({"library": "program", "promise": "durable"}, str(folder), 7, COUNT)

    def start(arguments: Sequence[str]) -> Process:
        return Child(arguments, str(folder), is_confined=False)

    with as_if_the_process_ended():
        yield made
        kill_children()


def carry_out(start: Start, task: Task) -> None:
    session = driver.session(start, task)
    for number in range(1, COUNT + 1):
        session.commit(number)
    session.close()
    assert "durable" == session.settings()["promise"]


def test_a_program_that_keeps_to_the_protocol_is_carried_out_and_recovers(
    site: Callable[..., tuple[Start, Task]],
) -> None:
    start, task = site()
    carry_out(start, task)
    assert Finding(FindingKind.PREFIX, recovered=COUNT) == driver.recovered(start, task)


@pytest.mark.parametrize(
    ("conduct", "words"),
    [
        ({"commit": "kill -SEGV $$"}, "died by SIGSEGV"),
        (
            {"commit": "echo no space >&2; exit 3"},
            "ended with exit code 3 before it had said `ack 1`; it said: no space",
        ),
        ({"commit": "echo ack 1; read -r ok"}, "said 'ack 1' where `ack 2` was due"),
        ({"commit": "echo ack $((i + 1)); read -r ok"}, "said 'ack 2' where `ack 1` was due"),
        ({"commit": "printf 'ack 1\\nack 2\\n'; sleep 9"}, "went on after transaction 1 without waiting for `ok`"),
        ({"commit": "echo starting"}, "said 'starting' where `ack 1` was due"),
        ({"commit": "head -c 2000000 /dev/zero"}, "printed more than 1 MiB"),
        ({"commit": "yes"}, "said 'y' where `ack 1` was due"),
        ({"close": "echo bye"}, "said 'bye' after its last transaction"),
        ({"close": "exit 4"}, "ended with exit code 4 after its last transaction"),
        ({"close": "sleep 1000 &"}, "left a process behind when it ended"),
        ({"close": "setsid sleep 1000 & setsid sleep 1001 &"}, "left 2 processes behind when it ended"),
    ],
    ids=lambda found: next(iter(found.values())) if isinstance(found, dict) else "",
)
def test_a_program_that_breaks_the_protocol_while_it_runs_is_told_in_words(
    conduct: dict[str, str], words: str, site: Callable[..., tuple[Start, Task]]
) -> None:
    with pytest.raises(NoResult) as caught:
        carry_out(*site(**conduct))
    assert words in caught.value.words


@pytest.mark.parametrize(
    ("recover", "kind", "words"),
    [
        ("echo no magic >&2; exit 3", "unopenable", "ended with exit code 3; it said: no magic"),
        ("kill -ABRT $$", "died", "died by SIGABRT"),
        ("echo nonsense", "corrupt", "answered 'nonsense'"),
        ("yes have 1", "corrupt", "printed more than 1 MiB, beginning with 'have 1"),
        ("echo >> log; wc -l < log | sed 's/^/have /'", "fickle", "said first: have 6; asked again: have 7"),
        ("mv log gone && echo have 1", "fickle", "said first: have 1; asked again, it ended with exit code 1"),
    ],
)
def test_a_recovery_without_an_answer_is_told_by_kind(
    recover: str, kind: str, words: str, site: Callable[..., tuple[Start, Task]]
) -> None:
    carry_out(*site())
    with pytest.raises(NoResult) as caught:
        driver.recovered(*site(recover=recover))
    assert kind == caught.value.kind
    assert words in caught.value.words


def test_a_recovery_that_leaves_a_process_behind_is_told_so_and_counts(
    site: Callable[..., tuple[Start, Task]],
) -> None:
    carry_out(*site())
    found = driver.recovered(*site(recover=f"setsid sleep 1000 & {_ANSWER}"))
    assert ("kept-open", COUNT) == (found.kind, found.recovered)
    assert "it left a process behind when it ended" == found.detail


def test_where_there_is_nothing_there_is_nothing_to_open(site: Callable[..., tuple[Start, Task]]) -> None:
    start, task = site(recover="cat log")
    found = driver.recovered(start, task)
    assert (FindingKind.PREFIX, 0) == (found.kind, found.recovered)
    assert found.detail.startswith("no files; it ended with exit code 1; it said: cat: log: No such file")
    Path(task.directory, "log").write_text("")
    assert Finding(FindingKind.PREFIX, recovered=0) == driver.recovered(start, task)


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_a_page_keeps_to_the_protocol(
    page: str, tmp_path: Path, site: Callable[..., tuple[Start, Task]]
) -> None:
    start, task = site()
    example = re.findall(
        r"^```python\n(#!/usr/bin/python3\n.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )[0]
    (tmp_path / "program").write_text(example)
    assert FindingKind.PREFIX is driver.recovered(start, task).kind
    carry_out(start, task)
    assert Finding(FindingKind.PREFIX, recovered=COUNT) == driver.recovered(start, task)
    log = Path(task.directory) / "log"
    log.write_bytes(log.read_bytes()[:-1])
    found = driver.recovered(start, task)
    assert (FindingKind.PREFIX, COUNT - 1) == (found.kind, found.recovered)


def compile_program(folder: Path, *flags: str) -> Path:
    (folder / "code.c").write_text("int main(void) { return 0; }\n")
    path = folder / "code"
    processes.run(["gcc", "-o", str(path), str(folder / "code.c"), *flags], timeout_s=60)
    return path


def guest(glibc: str, *libraries: str) -> ImageContents:
    return ImageContents(f"libc6:amd64\t{glibc}-1\n", lambda path: path.rpartition("/")[2] in libraries)


@pytest.mark.slow  # it needs a compiler
def test_a_program_is_kept_under_its_digest_and_outlives_its_file(tmp_path: Path, own_cache: Path) -> None:
    path = compile_program(tmp_path, "-static")
    found = builds.library(str(path))
    assert own_cache in found.path.parents
    assert (found.name, found.path.read_bytes()) == (driver.digest_name(path.read_bytes()), path.read_bytes())
    path.unlink()
    assert found == builds.library_of_run(found.name, None)
    other = builds.library(str(compile_program(tmp_path)))
    with pytest.raises(UsageError, match=f"made with {found.name}.*another program, {other.name}"):
        builds.library_of_run(found.name, str(tmp_path / "code"))
    other.path.write_bytes(b"x")
    with pytest.raises(StoreError, match="damaged"):
        builds.library_of_run(other.name, None)
    found.path.unlink()
    with pytest.raises(StoreError, match=f"{found.name}, which is no longer in the cache"):
        builds.library_of_run(found.name, None)


@pytest.mark.slow  # it needs a compiler
def test_what_the_guest_could_not_start_is_refused(tmp_path: Path) -> None:
    shared = compile_program(tmp_path, "-lm", "-Wl,--no-as-needed", "-lm")
    builds.require_loadable(builds.library(str(shared)), guest("99.9", "libm.so.6", "libc.so.6"))
    with pytest.raises(UsageError, match=r"the program needs libm\.so\.6, which the guest does not have"):
        builds.require_loadable(builds.library(str(shared)), guest("99.9", "libc.so.6"))
    with pytest.raises(UsageError, match=r"the program needs the C library 2.*the guest has 2.1; build it on an older"):
        builds.require_loadable(builds.library(str(shared)), guest("2.1", "libm.so.6", "libc.so.6"))
    foreign = bytearray(shared.read_bytes())
    foreign[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    for name, content, message in (
        ("foreign", bytes(foreign), "for another machine"),
        ("text", b"hello", "neither a script nor a program: it is not an ELF file"),
        ("script", b"#!perl\n", "script is a script whose first line names no interpreter: '#!perl'"),
        ("cut", shared.read_bytes()[:2000], "neither a script nor a program"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            builds.library(str(tmp_path / name))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        builds.library(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("#!/usr/bin/node", "/usr/bin/node"),
        ("#! /bin/bash -eu", "/bin/bash"),
        ("#!/usr/bin/env node", "/usr/bin/node"),
        ("#!/usr/bin/env  ruby3.3", "/usr/bin/ruby3.3"),
    ],
)
def test_a_script_runs_where_its_interpreter_is_and_is_refused_elsewhere(line: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(f"{line}\n")
    found = builds.library(str(tmp_path / "script"))
    builds.require_loadable(found, ImageContents("", lambda asked: asked == path))
    with pytest.raises(UsageError, match=rf"a script for {path}, which the guest does not have; .*--image"):
        builds.require_loadable(found, ImageContents("", lambda asked: asked != path))


@pytest.mark.slow  # it needs a compiler
def test_the_control_of_a_program_is_the_program_itself_with_the_same_promise(tmp_path: Path) -> None:
    path = str(compile_program(tmp_path, "-static"))
    found = programs.select(path, "ext4", ["torn"], "prefix")
    names = ("prefix+eatmydata", "prefix.creation+eatmydata", "prefix.creation", "prefix")
    assert [f"program-ext4-{name}_torn" for name in names] == [one.id for one in found.scenarios]
    assert "(prefix+eatmydata, prefix.creation+eatmydata)" in found.added
    own = programs.select(path, "ext4", (), None, controls=False, workload="own").scenarios
    assert ["program-ext4-durable_powercut"] == [one.id for one in own]
    assert not [one for one in matrix.all_scenarios() if one.engine == "program"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--fs", "ext4", "--program", "PATH", "--promise", "eternal"],
            "unknown promise 'eternal'; there are: durable",
        ),
        (["--program", "PATH", "--fault", "secondcut", "--focus", "x"], "--focus is for faults that cut what"),
        (["--transactions", "5"], "--transactions goes with --program"),
        (["--program", "PATH", "--fs", "fat"], "unknown file system 'fat'"),
        (["--program", "PATH", "--fs", "ext4", "--fault", "powercutt"], "unknown fault 'powercutt'; did you mean"),
        (["--program", "PATH", "--fs", "ext4", "--fault", "processkill"], "the rig does not make its transactions"),
        (["--program", "PATH", "--fs", "ext4", "sqlite-*"], "--program is measured alone"),
        (["--program", "absent", "--fs", "ext4"], "the program absent cannot be read"),
        (["--promise", "atomic"], "--promise only with --program"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_says_what_there_is(
    words: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "PATH").write_text("#!/bin/sh\n")
    done = CliRunner().invoke(cli.main, ["run", *(str(tmp_path / one) if one == "PATH" else one for one in words)])
    assert 2 == done.exit_code
    assert message in done.output


def of_program(
    promise: str, shim: str = "none", lost: int = 0, syncs: dict[str, int] | None = None
) -> MeasuredScenario:
    kind = VerdictKind.LOST_SUFFIX if lost else VerdictKind.DURABLE
    made = measured_scenario({"promise": promise}, [*durable(99), verdict(kind, lost, "a")], "powercut", shim)
    made = replace(made, recording=replace(made.recording, syncs=syncs or {}))
    return changed(made, engine="program", workload="own")


@pytest.mark.parametrize("promise", PROMISES)
def test_a_program_is_green_only_if_something_is_lost_without_its_syncs(promise: str) -> None:
    plain = of_program(promise)
    assert Result.KEPT is summarise([plain, of_program(promise, "eatmydata", 3)], 60).result
    assert Result.INCONCLUSIVE is summarise([plain, of_program(promise, "eatmydata", 0)], 60).result
    assert Result.INCONCLUSIVE is summarise([plain], 60).result


def test_only_a_program_that_never_syncs_is_told_about_its_syncs() -> None:
    def note(syncs: dict[str, int]) -> str:
        return compare(of_program("durable", syncs=syncs)).note

    assert NEVER_SYNCS == note({"none": 12})
    assert "" == note({"none": 11, "log": 1}) == note({})
