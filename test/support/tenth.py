"""A plugin of pytest: a share of the tests, the same ones in every run (``-p tenth --share 10``: one in ten)."""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=int, default=1, help="one test in so many is run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("--share")
    kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % share == 0]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
