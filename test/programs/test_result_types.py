"""Results have eager's type where operands have several."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import symshape

aten = torch.ops.aten
TYPES = (torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.float64)
# Of operands of two types, some without dims.
GRADIENTS = {
    "threshold": lambda x, y: aten.threshold_backward(x, y, 2),
    "mish": aten.mish_backward,
    "dropout": lambda x, y: aten.native_dropout_backward(x, y, 2.0),
    "leaky_relu": lambda x, y: aten.leaky_relu_backward(x, y, 0.1, False),
    "hardtanh": lambda x, y: aten.hardtanh_backward(x, y, -2.0, 2.0),
}
POINTWISE = {
    "huber": F.huber_loss,
    "remainder": torch.remainder,
    "where": lambda x, y: torch.where(x > 1, x, y),
    "pow": torch.pow,
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "clamp": lambda x, y: torch.clamp(x, y, y + 1),
    "xlogy": torch.xlogy,
    "copysign": torch.copysign,
    "atan2": torch.atan2,
}


FEW = (
    (torch.int64, torch.float32),
    (torch.float32, torch.int64),
    (torch.uint8, torch.int64),
    (torch.bfloat16, torch.float32),
)
ALL = tuple(itertools.product(TYPES, TYPES))


def pairs(n: int, types=ALL) -> list[tuple[torch.Tensor, torch.Tensor]]:
    found = []
    for (a, b), zero in itertools.product(types, (None, 0, 1) if types is ALL else (None,)):
        pair = [torch.arange(n).remainder(5).add(1).to(a), torch.arange(n).remainder(3).add(1).to(b)]
        if zero is not None:
            pair[zero] = pair[zero][1].clone()
        found.append(tuple(pair))
    return found


def computed_in(x: torch.Tensor, y: torch.Tensor) -> torch.dtype:
    """The type of floats that eager mode computes in. A gradient of an operand without dims may be of a more exact one:
    it is rounded first, and converted then."""
    found = torch.result_type(x, y)
    return found if found.is_floating_point else torch.get_default_dtype()


def check(table, types=ALL) -> None:
    def known(f, pair) -> bool:
        try:
            f(*pair)
        except RuntimeError:
            return False
        return True

    positions = {name: [i for i, pair in enumerate(pairs(5, types)) if known(f, pair)] for name, f in table.items()}

    def run(operands):
        return [table[name](*operands[i]) for name, known in positions.items() for i in known]

    torch._dynamo.reset()
    compiled = symshape.compile(run, fullgraph=True, opt_level=0)
    for n in (5, 8):
        given = pairs(n, types)
        computed = [computed_in(*given[i]) for known in positions.values() for i in known]
        for ours, eager, dtype in zip(compiled(given), run(pairs(n, types)), computed, strict=True):
            assert ours.dtype == eager.dtype
            narrow = torch.finfo(dtype).eps > torch.finfo(eager.dtype).eps if eager.is_floating_point() else False
            torch.testing.assert_close(*((x.to(dtype) for x in (ours, eager)) if narrow else (ours, eager)))


def test_gradients_called_directly() -> None:
    check({name: GRADIENTS[name] for name in ("threshold", "mish", "dropout")}, FEW)


@pytest.mark.long
@pytest.mark.parametrize("name", [*GRADIENTS, *POINTWISE])
def test_each(name) -> None:
    check({name: {**GRADIENTS, **POINTWISE}[name]})


def test_factor_of_index_add() -> None:
    """It is of the tensor's type first: a float times integers is truncated."""

    def added(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.index_add(0, torch.tensor([0]), x[1:2], alpha=factor) for factor in (1.75, -2.25, 0.5, 2, 0)]

    compiled = symshape.compile(added)
    for dtype in (torch.bool, torch.int8, torch.float32):
        x = torch.arange(-2, 4).reshape(3, 2).to(dtype)
        for actual, expected in zip(compiled(x), added(x), strict=True):
            assert actual.dtype == expected.dtype and torch.equal(actual, expected)
