"""Runs the same program compiled and in eager mode, and compares outputs and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

import symshape

Inputs = Sequence[tuple[Any, ...]]


def assert_as_eager(
    make: Callable[[], tuple[Callable[..., Any], Inputs]], *, rtol: float = 1e-3, atol: float = 1e-4
) -> None:
    """``make()``: a function or a module, and the arguments of each call. Both runs draw the same random numbers."""
    torch.manual_seed(0)
    program, calls = make()
    theirs = copy.deepcopy(program) if isinstance(program, nn.Module) else program
    compiled = symshape.compile(program)
    for i, arguments in enumerate(calls):
        torch.manual_seed(i)
        actual = _results(program, compiled, arguments)
        torch.manual_seed(i)
        expected = _results(theirs, theirs, arguments)
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


def _results(owner: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """Outputs, then gradients of the mean of their squares: of parameters, and of arguments that want one."""
    outputs = pytree.tree_leaves(call(*arguments))
    differentiable = [x for x in outputs if isinstance(x, Tensor) and x.requires_grad]
    found = [x.detach().clone() if isinstance(x, Tensor) else x for x in outputs]
    if differentiable:
        torch.stack([x.abs().square().mean() for x in differentiable]).sum().backward()
    leaves = [*(owner.parameters() if isinstance(owner, nn.Module) else ()), *pytree.tree_leaves(arguments)]
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.grad is not None:
            found.append(leaf.grad.to_dense() if leaf.grad.is_sparse else leaf.grad)
            leaf.grad = None
    return found
