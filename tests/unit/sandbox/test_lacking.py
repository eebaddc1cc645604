"""A host that lacks a layer of the sandbox hears of it, and nothing starts there if all layers are required."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from rig.front.cli import main
from rig.front.verbs import doctor
from rig.sandbox import sandbox


def test_a_required_sandbox_that_lacks_a_layer_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "lacking", dict)
    # So that it is put back in the end.
    monkeypatch.setenv(sandbox.REQUIRED, "")
    command = ["--require-sandbox", "plan", "sqlite-ext4-wal_full_powercut"]
    assert 0 == CliRunner().invoke(main, command).exit_code
    assert os.environ[sandbox.REQUIRED]
    monkeypatch.setenv(sandbox.REQUIRED, "")
    monkeypatch.setattr(sandbox, "lacking", lambda: {"namespaces": "Operation not permitted"})
    result = CliRunner().invoke(main, command)
    assert 3 == result.exit_code
    assert "no namespaces: Operation not permitted" in result.output
    assert not os.environ[sandbox.REQUIRED]


def test_doctor_says_which_layers_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "lacking", dict)
    assert doctor._sandbox().ok
    monkeypatch.setattr(sandbox, "lacking", lambda: {"Landlock": "Function not implemented"})
    check = doctor._sandbox()
    assert (False, True) == (check.ok, check.optional)
    assert "no Landlock: Function not implemented; the other layers hold" == check.detail
