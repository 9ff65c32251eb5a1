"""Modules that a library may use, hidden while it is imported."""

from __future__ import annotations

import importlib
import sys

import pytest

from sparklog.core.hidden_imports import hidden

OTHER = "this"
"""A module of Python that nothing imports."""


def test_a_hidden_module_is_not_found_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, OTHER, raising=False)
    before = list(sys.meta_path)
    with hidden(OTHER), pytest.raises(ModuleNotFoundError, match=OTHER):
        importlib.import_module(OTHER)
    assert sys.meta_path == before
    assert importlib.import_module(OTHER).__name__ == OTHER


def test_a_loaded_module_stays_visible() -> None:
    with hidden("json"):
        assert importlib.import_module("json") is sys.modules["json"]
