from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def verified_after_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that leaves invalid IR must fail, even if a later one mends it. Other tests verify once, as users do."""
    monkeypatch.setenv("SYMSHAPE_VERIFY_EACH", "1")
