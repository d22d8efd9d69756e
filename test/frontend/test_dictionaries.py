"""Dictionaries and sets whose keys differ between calls: what a function reads of them, and what it leaves in them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape

READS: dict[str, Callable[[Tensor, Any], Any]] = {
    "list": lambda x, d: (x + 1, list(d)),
    "starred": lambda x, d: (x + 1, [*d]),
    "extended": lambda x, d: (x + 1, [1, *d, 2]),
    "deque": lambda x, d: (x + 1, collections.deque(d)),
    "truth": lambda x, d: x + 1 if d else x - 1,
    "not": lambda x, d: x + (not d),
    "bool": lambda x, d: x + bool(d),
    "any": lambda x, d: x + any(d),
    "copy": lambda x, d: (x + 1, d.copy()),
    "merged": lambda x, d: (x + 1, d | {"q": 1}),
    "keywords": lambda x, d: (x + 1, (lambda **named: named)(**d)),
    "text": lambda x, d: (x + 1, f"{d}"),
    "of a set": lambda x, d: (x + 1, sorted({"q"}.union(d))),
}


def _pop(x: Tensor, d: Any) -> Tensor:
    return x * d.pop("k", 3)


def _delete(x: Tensor, d: Any) -> Tensor:
    if "k" in d:
        del d["k"]
    return x + 1


def _take_last(x: Tensor, d: Any) -> Tensor:
    try:
        return x * d.popitem()[1]
    except KeyError:
        return x - 1


def _move(x: Tensor, d: Any) -> Tensor:
    if isinstance(d, collections.OrderedDict) and "k" in d:
        d.move_to_end("k")
    return x + 1


def _update(x: Tensor, d: Any) -> Tensor:
    d.update(k=3)
    return x + 1


CHANGES = {"pop": _pop, "del": _delete, "popitem": _take_last, "move_to_end": _move, "update": _update}
KINDS: dict[str, Callable[[dict[str, int]], Any]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda items: collections.defaultdict(None, items),
}
ITEMS: tuple[dict[str, int], ...] = (
    {},
    {"k": 5},
    {"a": 1, "k": 4, "b": 2},
    {"b": 1, "k": 4, "a": 2},
    {"j": 2},
    {"j": 2, "k": 4},
    {},
)


def _compare(program: Callable[[Tensor, Any], Any], makers: list[Callable[[], Any]]) -> None:
    compiled = symshape.compile(program)
    for make in makers:
        expected_owner, owner, x = make(), make(), torch.randn(3)
        expected, found = program(x, expected_owner), compiled(x, owner)
        torch.testing.assert_close(found[0], expected[0])
        assert repr(found) == repr(expected)
        assert repr(owner) == repr(expected_owner)


@pytest.mark.sample(13)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*READS, *CHANGES])
def test_keys_of_each_call(name: str, kind: str) -> None:
    program, make = READS.get(name) or CHANGES[name], KINDS[kind]
    for order in (ITEMS, ITEMS[::-1], ITEMS[2:]):
        torch._dynamo.reset()
        _compare(program, [lambda items=items: make(items) for items in order])  # type: ignore[misc]


def test_sets_without_elements_of_another() -> None:
    def program(x: Tensor, found: set[str]) -> Tensor:
        found -= {"k"}
        return x + len(found)

    _compare(program, [lambda names=names: set(names) for names in ("", "k", "jk", "j")])  # type: ignore[misc]
