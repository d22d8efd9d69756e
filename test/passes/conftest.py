"""Verifies the IR after each pass in these tests; other tests verify once, as users do."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def verified_after_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pass that leaves invalid IR fail, even if a later one would correct it."""
    monkeypatch.setenv("SYMSHAPE_VERIFY_EACH", "1")
