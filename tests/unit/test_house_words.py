"""The house rules about words: a class name means one thing, and functions and variables say what they are."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.unit.house import module_name, modules, tree_of

# Class names that may occur in several modules -> why.
DOUBLED_CLASSES = {
    "Namer": "rig.engines.syncs asks a module `syncs` of each engine for a class of this name",
}


def doubled_classes(names_by_module: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the class names that occur in several modules without a reason, with these modules."""
    modules_by_name: dict[str, list[str]] = {}
    for module, names in names_by_module.items():
        for name in set(names):
            modules_by_name.setdefault(name, []).append(module)
    return [
        f"{name} is a class in {', '.join(sorted(places))}: name each after what it is"
        for name, places in sorted(modules_by_name.items())
        if len(places) > 1 and name not in DOUBLED_CLASSES
    ]


def test_a_class_name_means_one_thing() -> None:
    names = {
        module_name(path): [node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]
        for path in modules()
    }
    assert [] == doubled_classes(names)
    every_name = [name for of_module in names.values() for name in of_module]
    assert [] == [name for name in DOUBLED_CLASSES if every_name.count(name) < 2], "an exception without a case"


def test_a_class_name_in_two_modules_is_noticed() -> None:
    doubled = doubled_classes({"rig.a": ["Plan", "Namer"], "rig.b": ["Plan", "Namer"], "rig.c": ["Cut", "Cut"]})
    assert ["Plan is a class in rig.a, rig.b: name each after what it is"] == doubled


# Participles that do not end in -ed. Left out are those that are verbs or nouns as well: read, put, set, cut, split.
IRREGULAR = frozenset({
    "begun", "bound", "broken", "brought", "built", "caught", "chosen", "dealt", "done", "drawn", "driven",
    "fallen", "forgotten", "found", "frozen", "given", "gone", "grown", "heard", "held", "hidden", "kept",
    "known", "laid", "left", "lost", "made", "meant", "met", "paid", "rewritten", "said", "seen", "sent",
    "shaken", "shown", "spent", "spoken", "stolen", "struck", "taken", "taught", "thrown", "told", "torn",
    "undone", "withdrawn", "won", "worn", "written",
})  # fmt: skip
NO_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "proceed", "red", "seed", "shed", "speed"})
PARTICLES = frozenset({"and", "apart", "away", "back", "by", "in", "of", "off", "on", "or", "out", "up"})
# Functions that may be named with participles alone -> why.
ALLOWED_PARTICIPLES = {
    "connected": "a function of drivers, which docs/extend/engine.md documents for engines outside this tree",
    "met": "a function of drivers, which docs/extend/engine.md documents for engines outside this tree",
    "recovered": "a function of drivers, which docs/extend/engine.md documents for engines outside this tree",
    "seen": "a method of databases, which docs/extend/engine.md documents for engines outside this tree",
    "unflushed_lost": "whether the state is the one that lost everything that was not flushed",
}
# Names of variables that do not say what the variable holds.
VAGUE = frozenset({"found", "grief", "hindrance", "one", "said", "told", "whoever"})


def is_participle(word: str) -> bool:
    return word in IRREGULAR or (word.endswith("ed") and word not in NO_PARTICIPLES)


def says_only_that_it_happened(name: str) -> bool:
    """Whether a name is participles alone, such as `measured` or `carried_out`: no verb, and no noun."""
    first, *others = name.strip("_").split("_")
    return is_participle(first) and all(is_participle(word) or word in PARTICLES for word in others)


def function_names(tree: ast.AST) -> Iterator[str]:
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def units(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the functions and methods of a module, nested ones as parts of these, and its other statements."""
    for statement in tree.body:
        yield from statement.body if isinstance(statement, ast.ClassDef) else [statement]


def variables(unit: ast.AST) -> Iterator[str]:
    """Yield the name of every variable and parameter that is bound in a part of a module."""
    for node in ast.walk(unit):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name


def vague(tree: ast.Module) -> list[str]:
    """Return the vague names of variables; `one` is clear next to an `other`."""
    bound = (set(variables(unit)) for unit in units(tree))
    return sorted({name for names in bound for name in names & VAGUE if name != "one" or "other" not in names})


def test_a_function_is_named_with_a_noun_or_a_verb() -> None:
    names = {module_name(path): sorted(set(function_names(tree_of(path)))) for path in modules()}
    wrong = [
        f"{module}.{name} is a participle: name it after what it returns or does"
        for module, of_module in sorted(names.items())
        for name in of_module
        if says_only_that_it_happened(name) and name not in ALLOWED_PARTICIPLES
    ]
    assert [] == wrong
    every_name = {name for of_module in names.values() for name in of_module}
    assert set() == ALLOWED_PARTICIPLES.keys() - every_name, "an exception without a case"


def test_a_name_that_says_only_that_it_happened_is_noticed() -> None:
    participles = ["measured", "_taken", "carried_out", "judged_and_synced", "made"]
    others = ["measure", "read", "speed", "engine_named", "first_found", "acked_count", "is_closed", "seed"]
    assert participles == [name for name in participles + others if says_only_that_it_happened(name)]


def test_a_variable_says_what_it_holds() -> None:
    wrong = [f"{module_name(path)}: {name}" for path in modules() for name in vague(tree_of(path))]
    assert [] == wrong, "name a variable after what it holds"


def test_a_variable_that_does_not_say_what_it_holds_is_noticed() -> None:
    code = """
def first(told: str) -> list[str]:
    try:
        return [one for one in found]
    except OSError as grief:
        return []

def second(one: int, other: int) -> int:
    return one - other
"""
    assert ["grief", "one", "told"] == vague(ast.parse(code))
