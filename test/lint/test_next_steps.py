"""The check of next steps finds errors that have none, and the tree has none of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("next_steps", Path(__file__).parent / "next_steps.py")
assert _spec is not None and _spec.loader is not None
checker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(checker)

ERRORS = """
class Base(Exception):
    def __init__(self, what, *, next_step=""): ...
class Inherits(Base): ...
class Own(Base):
    def __init__(self, kernel): ...
class Other(Exception): ...
"""
FOUND = ["raise Base('what')", "errors.Inherits('what', where='there')", "Base('what', next_step='')"]
FINE = ["Base('what', next_step='do')", "Base('what', **rest)", "Own('kernel')", "Other('what')", "Base"]


def test_each_call_without_a_step_is_found() -> None:
    classes = checker._taking_a_step(ERRORS)
    assert classes == {"Base", "Inherits"}
    assert all(len(list(checker.without_step(source, classes))) == 1 for source in FOUND)
    assert not [source for source in FINE if list(checker.without_step(source, classes))]


def test_a_function_that_is_completed_by_its_callers_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "COMPLETED", frozenset({("file.py", "fail")}))
    source = "def fail():\n    raise Base('what')\ndef other():\n    raise Base('what')"
    assert list(checker.without_step(source, frozenset({"Base"}), "file.py")) == [(4, "Base")]


def test_the_tree_has_none() -> None:
    assert checker.problems() == []
