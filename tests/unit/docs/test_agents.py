"""The example for coding agents is the same on both pages, and compares every byte of what it finds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.unit.house import ROOT

COUNT = 3
_LIMIT_S = 30


def example_of(page: str) -> str:
    examples: list[str] = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert 1 == len(examples)
    return examples[0]


def answer(program: Path, folder: Path, *words: str, typed: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, str(program), *words], cwd=folder, input=typed, capture_output=True, text=True, check=True,
        timeout=_LIMIT_S,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_the_example_for_agents_compares_every_byte(tmp_path: Path) -> None:
    assert example_of("AGENTS.md") == example_of("docs/llms.txt")
    program, folder = tmp_path / "mydb", tmp_path / "data"
    program.write_text(example_of("AGENTS.md"))
    folder.mkdir()
    assert [] == answer(program, folder, "recover")
    acknowledged = answer(program, folder, "run", "--seed", "7", "--transactions", str(COUNT), typed="ok\n" * COUNT)
    assert [f"ack {number}" for number in range(1, COUNT + 1)] == acknowledged
    whole = [f"have {number}" for number in range(1, COUNT + 1)]
    assert whole == answer(program, folder, "recover")
    log = folder / "log"
    content = log.read_bytes()
    for place in range(0, len(content), 301):
        log.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert whole != answer(program, folder, "recover"), place
