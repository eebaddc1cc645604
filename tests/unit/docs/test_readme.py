"""What the README and the manual tell people to type and to open exists, and CI runs the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from tests.unit.house import ROOT

README_LINES_MAX = 150
README = ROOT / "README.md"
# For coding agents: an agent that follows them sees no other page.
FOR_AGENTS = (ROOT / "AGENTS.md", ROOT / "docs" / "llms.txt")
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = (README, *FOR_AGENTS, *EXAMPLES, *sorted((ROOT / "docs").rglob("*.md")))
BESIDE = tuple(ROOT / f"{name}.md" for name in ("BENCHMARKS", "CHANGELOG", "CONTRIBUTING", "SECURITY"))


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(text: str) -> list[str]:
    """The lines of the fenced sh blocks, continued lines joined, without prompts and comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.strip() and not line.startswith("#")]


def goals_of(text: str) -> set[str]:
    return {goal for line in commands(text) for goal in re.findall(r"\bmake ([a-z][\w-]*)", line)}


def verbs_of(text: str) -> set[str]:
    return {call[0] for call in calls_of(text) if call}


def calls_of(text: str) -> list[list[str]]:
    """The words of each call of `rig`, in sh blocks and between backticks, from the verb on."""
    spans = re.findall(r"`(rig [a-z][^`]*)`", prose(text))
    lines = [part for line in [*commands(text), *spans] for part in re.split(r"[|;&]", line)]
    # An apostrophe of a comment is no quotation mark.
    words = [re.sub(r" # .*", "", line).replace("'", " ").split() for line in lines]
    starts = [(call, [i for i, word in enumerate(call) if word.rpartition("/")[2] == "rig"]) for call in words]
    return [call[at[0] + 1 :] for call, at in starts if at]


def unknown_options(call: list[str], main: click.Group) -> list[str]:
    """The options of a call that its command does not have."""
    command: click.Command = main
    while isinstance(command, click.Group) and call and call[0] in command.commands:
        command, call = command.commands[call[0]], call[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    return [word for word in call if word.startswith("--") and word.partition("=")[0] not in known]


def prose(text: str) -> str:
    """The text without fenced blocks, in which brackets are no links and hashes no headings."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#{1,6} +(.+?) *#*$", prose(text), re.MULTILINE)
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in words}


def links(text: str) -> list[str]:
    """The targets of links and pictures that lie in this repository."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(text))
    targets = re.findall(r"\]\(<?([^()\s>]+)>?(?: \"[^\"]*\")?\)", without_code)
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def broken_links(page: Path, text: str) -> Iterator[str]:
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.is_relative_to(ROOT.resolve()) or not target.exists():
            yield f"{page_name(page)}: {link}: there is no such file"
        elif anchor and anchor not in anchors(text if target == page else target.read_text()):
            yield f"{page_name(page)}: {link}: {page_name(target)} has no such heading"


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= README_LINES_MAX
    assert {"run", "test"} <= goals_of(text)


def test_every_make_goal_that_a_page_names_exists() -> None:
    goals = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [] == [
        (page_name(page), goals_of(page.read_text()) - goals) for page in PAGES if goals_of(page.read_text()) - goals
    ]


def test_every_rig_command_that_a_page_names_exists() -> None:
    from rig.front.cli import main

    verbs = set(getattr(main, "commands", {}))
    assert {"run", "replay", "advise", "speed"} <= {verb for page in PAGES for verb in verbs_of(page.read_text())}
    assert [] == [
        (page_name(page), verbs_of(page.read_text()) - verbs) for page in PAGES if verbs_of(page.read_text()) - verbs
    ]


def test_every_option_of_a_rig_command_that_a_page_names_exists() -> None:
    from rig.front.cli import main

    calls = [(page_name(page), call) for page in PAGES for call in calls_of(page.read_text())]
    assert len(calls) > 100
    assert {"README.md", "AGENTS.md", "docs/llms.txt"} <= {page for page, _ in calls}
    assert [] == [(page, call, wrong) for page, call in calls if (wrong := unknown_options(call, main))]
    assert ["--nosuch"] == unknown_options(["image", "list", "--nosuch"], main)
    assert [] == unknown_options(["run", "--no-controls", "--seed=1"], main)


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=page_name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [] == list(broken_links(page, page.read_text()))


def test_every_example_has_a_readme_that_begins_in_a_clean_clone() -> None:
    assert sorted(path.name for path in (ROOT / "examples").iterdir()) == [page.parent.name for page in EXAMPLES]
    assert {"make image"} == {commands(page.read_text())[0] for page in EXAMPLES}


def test_every_page_of_the_manual_is_on_its_map() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in links(index.read_text())}
    parts = ("tutorial", "how-to", "reference", "explanation", "extend", "develop")
    pages = [page for page in PAGES if page.parent.name in parts]
    assert pages
    assert [] == [page_name(page) for page in pages if page.resolve() not in linked]


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("[x](docs/index.md)", False),
        ("[x](docs/index.md#how-to)", False),
        ("## Old and *new*, in `code`\n[x](#old-and-new-in-code)", False),
        ("![x](docs/speed-against-loss.png)", False),
        ("[x](https://example.org/nowhere) [y](mailto:nobody@example.org)", False),
        ("```\n[x](nowhere.md)\n```\n`[x](nowhere.md)`", False),
        ("[x](docs/nowhere.md)", True),
        ("[x](docs/index.md#nowhere)", True),
        ("![x](docs/nowhere.png)", True),
        ("[x](#nowhere)", True),
        ("[x](../outside.md)", True),
    ],
)
def test_a_broken_link_is_noticed(text: str, is_broken: bool) -> None:
    assert is_broken is bool(list(broken_links(README, text)))


@pytest.mark.parametrize("page", FOR_AGENTS, ids=page_name)
def test_a_page_for_agents_is_short_and_has_what_they_need(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= README_LINES_MAX
    for needed in ("PROGRAM run --seed S --transactions N", "PROGRAM recover", "Exit codes", "\n10. "):
        assert needed in text, needed


def test_what_ci_runs_is_what_the_readme_tells_people_to_run() -> None:
    scripts = sorted((ROOT / ".ci").iterdir())
    assert ["as-user", "check", "login", "run"] == [path.name for path in scripts]
    assert "for goal in test docs rest; do" in (ROOT / ".ci" / "check").read_text()
    makefile = (ROOT / "Makefile").read_text()
    # Together the two have the tests in machines that `make test-all` has.
    assert re.search(r"^test: lint unit representative\b", makefile, re.MULTILINE)
    assert re.search(r"^test-all: lint unit machines\b", makefile, re.MULTILINE)
    smoke = "--rig-profile=smoke"
    assert ["-m representative", f"{smoke} -m 'not representative'", smoke] == [
        words.strip()
        for words in re.findall(r"PYTEST\) --durations \d+ (.*)tests/vm tests/durability$", makefile, re.MULTILINE)
    ]
    for path in (*scripts, ROOT / "bootstrap.sh"):
        assert path.stat().st_mode & 0o111, path
