"""``copy.copy`` and ``copy.deepcopy`` of objects that hold more than attributes."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape


class _List(list[int]):
    pass


class _Dict(dict[str, int]):
    pass


class _Tuple(tuple[int, ...]):
    pass


class _Integer(int):
    pass


class _Plain:
    def __init__(self, number: int = 3) -> None:
        self.number = number


class _WithState(_Plain):
    def __getstate__(self) -> dict[str, int]:
        return {"number": 7}


class _Reduced(_Plain):
    def __reduce__(self) -> tuple[Any, ...]:
        return _Reduced, (9,)


class _WithSlots:
    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 3


OBJECTS: dict[str, Callable[[], Any]] = {
    "list": lambda: _List([1, 2]),
    "dict": lambda: _Dict(a=1),
    "tuple": lambda: _Tuple((1, 2)),
    "int": lambda: _Integer(4),
    "ordered": lambda: collections.OrderedDict(b=1, a=2),
    "counter": lambda: collections.Counter("aab"),
    "plain": _Plain,
    "state": _WithState,
    "reduced": _Reduced,
    "slots": _WithSlots,
}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_copy_is_equal(name: str, copied: Callable[[Any], Any]) -> None:
    def program(x: Tensor, owner: Any) -> tuple[Tensor, Any]:
        return x + 1, copied(owner)

    owner, compiled = OBJECTS[name](), symshape.compile(program)
    for size in (3, 1, 0):
        x = torch.randn(size)
        expected, found = program(x, owner), compiled(x, owner)
        torch.testing.assert_close(found[0], expected[0])
        assert type(found[1]) is type(owner)
        assert found[1] is not owner
        if hasattr(owner, "number"):
            assert found[1].number == expected[1].number
        else:
            assert found[1] == expected[1]
