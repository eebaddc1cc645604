"""The claims as data: all of the shared list are there, mistakes in a file are named, verdicts follow thresholds."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.analysis.documents import claim as claims
from rig.analysis.documents import loader
from rig.analysis.documents.answer import decide, fill
from rig.analysis.documents.claim import Claim, ClaimVerdict, GuestProbe, Probe, Scenarios
from rig.analysis.documents.condition import Condition, parse
from rig.analysis.documents.guestprobes import btrfs
from rig.analysis.documents.guestprobes import sqlite as hosts
from rig.analysis.documents.measuring import select
from rig.analysis.documents.probes import PROBES
from rig.contract.errors import UsageError
from rig.planning import matrix

DOCUMENTS = loader.documents()
CLAIMS = [claim for document in DOCUMENTS for claim in document.claims]
# How many claims the shared list has of each document.
COUNTS = {"S0": 25, "S1": 23, "S2": 12, "S3": 18, "S4": 11}
FILES = {
    "S0": "000_b23a4b58a0669b1a.txt",
    "S1": "001_25af1f99a4f1efd2.txt",
    "S2": "002_ae85c010a67609cc.txt",
    "S3": "003_4d9a875d495f2087.txt",
    "S4": "004_b69e233fac2395fd.txt",
}
GOOD = """
id = "S9"
file = "009_x.txt"
about = "an example"
[[claim]]
id = "S9-1"
line = 3
says = "water is dry"
probe = "wetness"
metric = "how wet it is"
control = "sand must be dry"
fires = ["sand == 0"]
confirm = ["water == 0"]
refute = ["water > 0"]
seen = "water is {water}, sand {sand}"
truth = "it is wet: {water}"
documentation = "water is wet"
source = "a book, page 3"
""" + "".join('[[summary]]\ntext = "wet"\nrests_on = { S9-1 = "refuted" }\n' for _ in range(5))
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z][a-z0-9_]{0,8})?", fullmatch=True).filter(
    lambda name: name not in {"true", "false"}
)
VALUES = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(-1000, 1000, allow_nan=False).map(lambda value: round(value, 2)),
    st.booleans(),
    st.from_regex(r"[a-z0-9 ]{0,9}", fullmatch=True),
)


def load(text: str) -> claims.Document:
    return loader.document_of(text, "S9.toml", {"wal": ("a", "b")})


def claim_of(text: str = GOOD) -> Claim:
    return load(text).claims[0]


def test_every_claim_of_the_shared_list_is_there_exactly_once_and_in_order() -> None:
    assert [f"{name}-{number}" for name, count in COUNTS.items() for number in range(1, count + 1)] == [
        claim.id for claim in CLAIMS
    ]
    assert FILES == {document.id: document.file for document in DOCUMENTS}


def test_every_experiment_exists_and_every_probe_is_used() -> None:
    assert set(PROBES) == {each.experiment.name for each in CLAIMS if isinstance(each.experiment, Probe)}
    of_hosts = {("nfs", f"sqlite.{name}") for name in hosts.PROBES}
    assert {("btrfs", name) for name in btrfs.PROBES} | of_hosts == {
        (each.experiment.filesystem, each.experiment.name) for each in CLAIMS if isinstance(each.experiment, GuestProbe)
    }
    known = {scenario.id for scenario in matrix.all_scenarios()}
    wanted = {one for each in CLAIMS if isinstance(each.experiment, Scenarios) for one in each.experiment.ids}
    assert set() == wanted - known
    assert len(wanted) > 10


@pytest.mark.parametrize(
    "claim", [each for each in CLAIMS if isinstance(each.experiment, Scenarios)], ids=lambda c: c.id
)
def test_claims_about_loss_name_only_figures_and_arms_that_there_are(claim: Claim) -> None:
    assert isinstance(claim.experiment, Scenarios)
    arms = {**claim.experiment.arms, **claim.experiment.controls}
    names = {"states", "contents", "lost_max", "losing", "losing_bound", "damaged", "damaged_bound", "harmed"}
    figures: dict[str, Any] = {f"{arm}.{name}": 1 for arm in arms for name in (*names, "flush_per_tx")}
    fill(claim.seen + claim.truth, figures)
    conditions = (*claim.fires, *claim.confirm, *claim.refute, *claim.imprecise)
    assert {name for condition in conditions for name in condition.names} <= set(figures)


def test_a_claim_can_be_read_without_its_document() -> None:
    for each in CLAIMS:
        assert each.says.endswith("."), each.id
        assert len(each.says) < 130, each.id
        assert each.documentation.endswith("."), each.id
        assert each.source, each.id


def test_the_example_is_a_whole_claim() -> None:
    claim = claim_of()
    assert Probe("wetness") == claim.experiment
    assert (Condition("water", "==", 0),) == claim.confirm
    assert "confirmed if water == 0; refuted if water > 0" == claim.threshold


@given(NAMES, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), VALUES)
def test_a_condition_that_is_written_down_reads_back_as_itself(name: str, operator: str, value: Any) -> None:
    made = Condition(name, "==" if isinstance(value, str | bool) else operator, value)
    assert made == parse(made.text)


@given(NAMES, NAMES, st.integers(1, 9))
def test_a_condition_on_two_figures_reads_back_as_itself(name: str, other: str, factor: int) -> None:
    made = Condition(name, "<", other=other, factor=factor)
    assert made == parse(made.text)


@given(st.text(max_size=30))
def test_a_condition_that_is_none_is_refused_and_never_guessed(text: str) -> None:
    try:
        found = parse(text)
    except UsageError:
        return
    assert re.match(r"[a-z]", text)
    assert found.name in text


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-3, 3))
def test_a_condition_holds_when_arithmetic_says_so(left: int, right: int, factor: int) -> None:
    figures = {"a": left, "b": right}
    assert (left <= factor * right) is parse(f"a <= {factor} * b").holds(figures)
    assert (left == right) is parse(f"a == {right}").holds(figures)
    assert (left > right) is parse("a > b").holds(figures)


@pytest.mark.parametrize("figures", [{}, {"a": None}, {"a": "word"}])
def test_a_condition_on_a_figure_that_there_is_not_is_neither_met_nor_missed(figures: dict[str, Any]) -> None:
    with pytest.raises(KeyError, match="a"):
        parse("a < 1").holds(figures)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('id = "S9-1"', 'id = "S8-1"', "begins with S9-"),
        ('id = "S9-1"', 'id = "water"', "is no id of a claim"),
        ("line = 3", "line = 0", "S9-1, line: a number from 1 on"),
        ("line = 3", 'line = "3"', "S9-1, line: a number is wanted"),
        ('probe = "wetness"', "", "S9-1: exactly one of probe, guest, scenarios"),
        ('probe = "wetness"', 'probe = "wetness"\nawaits = "rain"', "S9-1: exactly one of"),
        ('probe = "wetness"', 'scenarios = ["sea"]', "S9-1, scenarios: unknown arm 'sea'; there are: wal"),
        ('probe = "wetness"', 'scenarios = ["wal"]\nshows = "sea.lost"', "S9-1, shows"),
        ('probe = "wetness"', 'guest = "rot"', "S9-1, guest: write FILESYSTEM.PROBE"),
        ('probe = "wetness"', 'reading = "maybe"', "S9-1, reading: 'maybe' is not one of its words"),
        ('probe = "wetness"', 'reading = "not measured"', "S9-1, reading: what is not measured says why"),
        ('fires = ["sand == 0"]', "", "S9-1: fires is missing"),
        ('fires = ["sand == 0"]', 'fires = ["sand is dry"]', "S9-1, fires: 'sand is dry' is no condition"),
        ('confirm = ["water == 0"]\nrefute = ["water > 0"]', "", "S9-1: no threshold"),
        ('truth = "it is wet: {water}"', "", "S9-1: truth is missing"),
        ('truth = "it is wet: {water}"', 'truth = "it is {Wet!}"', "S9-1, truth"),
        ('metric = "how wet it is"', 'metric = " "', "S9-1, metric: the text is empty"),
        ('source = "a book, page 3"', 'source = "a book"\nsauce = "x"', "S9-1: unknown key 'sauce'"),
        (
            'rests_on = { S9-1 = "refuted" }',
            'rests_on = { S9-2 = "refuted" }',
            "summary 1, rests_on: unknown key 'S9-2'",
        ),
        ('rests_on = { S9-1 = "refuted" }', 'rests_on = { S9-1 = "wet" }', "summary 1, rests_on, S9-1"),
        ('about = "an example"', "about = [", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_file_claim_and_key(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        load(GOOD.replace(old, new))
    assert str(caught.value).startswith("S9.toml")
    # An id that is wrong itself is named by its place.
    assert words in str(caught.value).replace("claim 1", "S9-1")


@given(st.sampled_from(sorted(tomllib.loads(GOOD)["claim"][0])), st.one_of(st.integers(), st.booleans(), st.just([1])))
def test_a_value_of_another_kind_is_refused_by_its_key(key: str, value: Any) -> None:
    if key == "line" and value is not True and isinstance(value, int) and value > 0:
        return
    written = str(value).lower()
    broken = re.sub(rf"(?m)^{key} = .*$", f"{key} = {written}", GOOD, count=2 if key == "id" else 1)
    with pytest.raises(UsageError, match=r"S9\.toml.*") as caught:
        load(broken)
    assert key in str(caught.value)


def test_two_claims_of_one_id_are_refused() -> None:
    second = GOOD[GOOD.index("[[claim]]") : GOOD.index("[[summary]]")]
    with pytest.raises(UsageError, match=r"S9\.toml, S9-1: this id occurs 2 times"):
        load(GOOD.replace("[[summary]]", f"{second}[[summary]]", 1))


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({"sand": 0, "water": 0}, ClaimVerdict.CONFIRMED),
        ({"sand": 0, "water": 2}, ClaimVerdict.REFUTED),
        ({"sand": 0, "water": -1}, ClaimVerdict.NOT_MEASURED),
        ({"sand": 1, "water": 2}, ClaimVerdict.NOT_MEASURED),
        ({"sand": 0}, ClaimVerdict.NOT_MEASURED),
        ({"sand": 0, "water": None}, ClaimVerdict.NOT_MEASURED),
        ({"water": 2}, ClaimVerdict.NOT_MEASURED),
    ],
)
def test_a_verdict_follows_from_the_thresholds_and_there_is_none_without_the_control(
    figures: dict[str, Any], verdict: ClaimVerdict
) -> None:
    answer = decide(claim_of(), figures)
    assert verdict is answer.verdict
    assert bool(answer.why) is (verdict is ClaimVerdict.NOT_MEASURED)


def test_what_is_true_instead_stands_beside_a_refutation_with_its_figure() -> None:
    answer = decide(claim_of(), {"sand": 0, "water": 2.5})
    assert ("it is wet: 2.5", "water is 2.5, sand 0") == (answer.truth, answer.seen)
    assert "" == decide(claim_of(), {"sand": 0, "water": 0}).truth


def test_a_control_that_did_not_fire_is_named_with_what_was_seen() -> None:
    answer = decide(claim_of(), {"sand": 1, "water": 2})
    assert "its control did not fire (sand must be dry): sand is 1" == answer.why


def test_claims_are_chosen_by_id_and_by_document() -> None:
    assert ["S1-16"] == [each.id for found in select(DOCUMENTS, ["S1-16"]) for each in found.claims]
    assert 12 == len(select(DOCUMENTS, ["S2"])[0].claims)
    assert 89 == sum(len(found.claims) for found in select(DOCUMENTS, []))
    with pytest.raises(UsageError, match=r"unknown claim 'S7-1'; there are: S0-1 to S0-25"):
        select(DOCUMENTS, ["S7-1"])


def test_files_of_one_folder_have_ids_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "arms.toml").write_text('wal = ["a"]')
    for name in ("S8.toml", "S9.toml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(UsageError, match="two files have the same document id"):
        loader.documents(tmp_path)


def test_a_claim_that_only_refutes_is_never_confirmed() -> None:
    claim = replace(claim_of(), confirm=())
    assert ClaimVerdict.NOT_MEASURED is decide(claim, {"sand": 0, "water": 0}).verdict
