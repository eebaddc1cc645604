"""The house rules about words: a class name means one thing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

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
