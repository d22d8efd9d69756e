"""Every operator that we register passes the checks that PyTorch has for custom operators."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

from symshape import runtime
from symshape.frontend.opaque_calls.write_calls import text_of

aten: Any = torch.ops.aten
CPU = {"dtype": torch.float32, "device": torch.device("cpu")}  # keywords
KEPT = [["float32", [["tensor", 0, 0], ["tensor", 0, 1]]]]


def leaf() -> torch.Tensor:
    return torch.linspace(-1, 2, 12).reshape(3, 4).requires_grad_()


def opaque(
    op: Any, *args: Any, gradient: bool = False, random: bool = False, kept: bool = False, results: Any = KEPT
) -> tuple[Any, ...]:
    tensors: list[torch.Tensor] = []
    text = json.dumps({**text_of(op, args, tensors, ""), "results": results, "random": random})
    wanted = [tensor.requires_grad for tensor in tensors]
    if kept:
        return text, [tensor.detach() for tensor in tensors], [], wanted
    if not gradient:
        return text, tensors, []
    state = [torch.get_rng_state()] if random else []
    return text, [tensor.detach() for tensor in tensors], [], *state, wanted, [torch.ones(3, 4)]


def ragged(*others: Any, gradient: bool = False) -> tuple[Any, ...]:
    """Operands of ``jagged_attention``: 7 queries and 5 keys in 3 rows, 2 heads."""
    query, key = (torch.linspace(-1, 1, n * 8).reshape(n, 2, 4) for n in (7, 5))
    offsets = torch.tensor([0, 2, 2, 7]), torch.tensor([0, 3, 4, 5])
    if gradient:
        made = torch.ops.symshape.jagged_attention(query, key, key.cos(), *offsets, False, None)
        return torch.ones_like(query), query, key, key.cos(), *made, *offsets, False, None
    tensors = [t.requires_grad_() for t in (query, key, key.cos())]
    return *tensors, *offsets, *others


# Arguments for each of them.
OPERATORS: dict[str, list[Callable[[], tuple[Any, ...]]]] = {
    "draw": [
        lambda: ("normal_.default", [3, 4], [1, 3], [0.5, 2.0], None, CPU),
        lambda: ("bernoulli_.Tensor", [3, 4], [4, 1], [], torch.full((3, 4), 0.5), CPU),
    ],
    "jagged_attention": [lambda: ragged(False, None), lambda: ragged(True, 0.5)],
    "jagged_attention_backward": [lambda: ragged(gradient=True)],
    "opaque_call": [
        lambda: opaque(aten.mul.Tensor, leaf(), leaf()),
        lambda: opaque(
            aten.unique_dim.default,
            leaf().detach(),
            0,
            results=[["float32", [["fresh"], ["tensor", 0, 1]]], ["int64", [["fresh"]]], ["int64", [["fresh"]]]],
        ),
    ],
    "opaque_call_kept": [lambda: opaque(aten.mul.Tensor, leaf(), leaf().detach(), kept=True)],
    "opaque_call_gradient": [
        lambda: opaque(aten.mul.Tensor, leaf(), leaf(), gradient=True),
        lambda: opaque(aten.add.Tensor, leaf(), leaf(), gradient=True),  # each gradient is the one that is given
    ],
    "opaque_random_call": [lambda: opaque(aten.rand_like.default, leaf().detach(), random=True)],
    "opaque_random_call_kept": [lambda: opaque(aten.dropout.default, leaf(), 0.5, True, kept=True, random=True)],
    "opaque_random_call_gradient": [
        lambda: opaque(aten.dropout.default, leaf(), 0.5, True, gradient=True, random=True)
    ],
    "pack_convolution_weight": [lambda: (torch.randn(5, 3, 3, 2), 1), lambda: (torch.randn(6, 1, 3, 3), 6)],
    "packed_convolution": [
        lambda: convolution(groups=1, epilogue="add y a0"),
        lambda: convolution(groups=6, has_bias=False, epilogue="low y 0.0; mul v0 a0"),
    ],
}


def convolution(groups: int, epilogue: str, has_bias: bool = True) -> tuple[Any, ...]:
    packed = torch.ops.symshape.pack_convolution_weight(torch.randn(6, 6 // groups, 3, 3), groups)
    sizes: tuple[Any, ...] = (6, [3, 3], [1, 2], [1, 0], [1, 1], groups)
    bias = torch.ones(6) if has_bias else None
    return torch.randn(2, 6, 5, 7), packed, bias, None, [torch.randn(2, 6, 5, 3)], *sizes, epilogue


# Those that only IR calls, after tracing: they have no rule for traced values.
POSITIONS = torch.tensor([1, 3])
IN_IR: dict[str, list[Callable[[], tuple[Any, ...]]]] = {
    "mask_positions": [lambda: (torch.tensor([[True, False], [False, True]]), "cpu")],
    "select_at": [lambda: (leaf().detach(), POSITIONS, 0, 2)],
    "unravel_positions": [lambda: (torch.ones(3, 4, dtype=torch.bool), POSITIONS)],
    "scatter": [
        lambda: (leaf().detach(), torch.ones(2, 4), [0, 1], False, [2, 4], [-1, 1], [POSITIONS - 1], [0], "add", False),
    ],
}


def registered() -> set[str]:
    for module in pkgutil.iter_modules(runtime.__path__):
        if "triton" not in module.name:
            importlib.import_module(f"symshape.runtime.{module.name}")
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("symshape::") for name in names if name.startswith("symshape::")}


def test_each_is_in_the_table() -> None:
    assert registered() == OPERATORS.keys() | IN_IR.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_checks_of_custom_operators(name: str) -> None:
    op = getattr(torch.ops.symshape, name).default
    utils = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if torch.Tag.nondeterministic_seeded in op.tags:
        utils.remove("test_aot_dispatch_dynamic")  # it compares two calls, which draw different numbers
    for arguments in OPERATORS[name]:
        args = arguments()
        kwargs = args[-1] if args[-1] is CPU else {}
        found = torch.library.opcheck(op, args[: len(args) - bool(kwargs)], kwargs, test_utils=utils)
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", IN_IR)
def test_schemas_of_operators_in_ir(name: str) -> None:
    op = getattr(torch.ops.symshape, name).default
    for arguments in IN_IR[name]:
        found = torch.library.opcheck(op, arguments(), test_utils=["test_schema"])
        assert set(found.values()) == {"SUCCESS"}
