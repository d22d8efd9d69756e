"""What PyTorch works out for its logs is worked out where somebody reads them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch._dynamo import guards

import symshape


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_guards_are_timed_for_their_log(
    level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Any] = []
    usual = guards.profile_guard_manager
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *given: timed.append(given) or usual(*given))
    x = torch.randn(4, 5)
    with caplog.at_level(level, logger=guards.guards_log.name):
        torch.testing.assert_close(symshape.compile(lambda x: x.sin() * 2)(x), x.sin() * 2)
    assert len(timed) == (level == logging.DEBUG)
