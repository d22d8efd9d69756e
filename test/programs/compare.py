"""Runs a program compiled and in eager mode and compares all that can be seen of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import poison
import pytest
import torch
import torch.utils._pytree as pytree
from program import BF16, F16, F64, Program, smallest


class OtherLayout(AssertionError):
    """Strides, or which tensors share memory."""


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def distance(x: torch.Tensor, reference: torch.Tensor) -> float:
    x, reference = x.detach(), reference.detach()
    wide = torch.complex128 if x.is_complex() or reference.is_complex() else F64
    difference = (x.to(wide) - reference.to(wide)).abs()
    return difference[difference.isfinite()].max().item() if difference.isfinite().any() else 0.0


def assert_same(
    label: str, actual: Any, expected: Any, reference: Any, coarsest: torch.dtype = F64, may_be_copy: bool = False
) -> None:
    """One leaf of the results. ``coarsest``: a type that numbers may have been computed in, whatever theirs is.
    ``may_be_copy``: theirs is a view of an input, and ours may be laid out as a copy is."""
    if not isinstance(expected, torch.Tensor):
        assert type(actual) is type(expected), f"{label}: {type(actual)} instead of {type(expected)}"
        assert actual == expected or actual != actual and expected != expected, f"{label}: {actual} {expected}"
        return
    assert isinstance(actual, torch.Tensor), f"{label}: {type(actual)} instead of {type(expected)}"
    assert actual.dtype == expected.dtype, f"{label}: {actual.dtype} instead of {expected.dtype}"
    assert actual.shape == expected.shape, f"{label}: {actual.shape} instead of {expected.shape}"
    if expected.numel() or "gradient" not in label:  # eager's of cummax of nothing is its input
        assert actual.requires_grad == expected.requires_grad, f"{label}: requires_grad"
    if expected.layout == torch.strided and expected.device.type != "meta":
        if "gradient" not in label and not may_be_copy:  # gradients: as the chain of views made them
            assert_same_strides(label, actual, expected)
        assert_near(label, actual.detach(), expected.detach(), reference, coarsest)


def assert_same_strides(label: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    if expected.numel() == 0:
        return
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (actual, expected)]
    if strides[0] != strides[1]:
        raise OtherLayout(f"{label}: strides {actual.stride()} instead of {expected.stride()}")


def assert_near(
    label: str, actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor, coarsest: torch.dtype = F64
) -> None:
    if not (actual.is_floating_point() or actual.is_complex()):
        assert torch.equal(actual, expected), f"{label}: {actual} instead of {expected}"
        return
    if coarsest in (F16, BF16):  # eager mode rounds at each step: what overflows there need not overflow here
        exceeded = ~expected.isfinite() & reference.isfinite() & actual.isfinite()
        expected = torch.where(exceeded, reference.to(expected.dtype), expected)
    finite = expected.isfinite()
    assert torch.equal(actual.isfinite(), finite), f"{label}: infinities or NaN differ: {actual} and {expected}"
    rest = [t[~finite] for t in (actual, expected)]
    torch.testing.assert_close(
        rest[0], rest[1], rtol=0, atol=0, equal_nan=True, msg=f"{label}: not the same infinities"
    )
    ours, theirs = distance(actual, reference), distance(expected, reference)
    dtype = max(actual.dtype, coarsest, key=lambda dtype: torch.finfo(dtype).eps)
    if ours > max(2 * theirs, tolerance(reference, dtype)):
        raise AssertionError(f"{label}: error {ours:.3g}, eager's {theirs:.3g}")


def tolerance(reference: torch.Tensor, dtype: torch.dtype) -> float:
    """What rounding alone may do: one unit in the last place of a half type, a reordered sum in the others."""
    if reference.numel() == 0:
        return 0.0
    finite = reference.detach()[reference.isfinite()].abs()
    return (
        (1 if dtype in (F16, BF16) else 64)
        * torch.finfo(dtype).eps
        * max(1.0, float(finite.max()) if len(finite) else 0.0)
    )


def storages(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor, the first one in the list whose storage it shares."""
    keys = [t.untyped_storage()._cdata if t.layout == torch.strided else id(t) for t in tensors]
    return [keys.index(key) for key in keys]


def arguments(program: Program, n: int, wide: bool = False) -> list[Any]:
    torch.manual_seed(n)

    def prepare(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if wide and leaf.is_floating_point():
            leaf = leaf.double()
        return leaf.requires_grad_() if program.gradient and leaf.is_floating_point() else leaf

    return pytree.tree_map(prepare, list(program.inputs(n)))


def together(programs: Sequence[Program]) -> Callable[..., Any]:
    """One function of every program's arguments, which returns every program's result."""
    functions = [program.function for program in programs]

    def all_of_them(*arguments: list[Any]) -> list[Any]:
        return [function(*own) for function, own in zip(functions, arguments)]

    return all_of_them


def run(results: Sequence[Any], inputs: Sequence[list[Any]], gradient: bool) -> list[dict[str, Any]]:
    """For each program its result, and what the call left: inputs, their gradients."""
    seen = [{"result": result, "inputs": own} for result, own in zip(results, inputs, strict=True)]
    if not gradient:
        return seen
    outputs, cotangents = [], []
    for result in results:
        torch.manual_seed(1)
        own = [t for t in tensors_of(result) if t.requires_grad]
        outputs += own
        cotangents += [torch.randn(t.shape).to(t.dtype) for t in own]
    leaves = [[t for t in tensors_of(own) if t.requires_grad] for own in inputs]
    flat = [t for own in leaves for t in own]
    gradients = iter(torch.autograd.grad(outputs, flat, cotangents, allow_unused=True) if outputs else ())
    return [{**one, "gradients": list(itertools.islice(gradients, len(own)))} for one, own in zip(seen, leaves)]


def check(programs: Sequence[Program], compiled: Callable[..., Any], n: int) -> None:
    """One size against eager and against eager in float64; ``compiled`` is that of `together`."""
    theirs, ours = ([arguments(program, n) for program in programs] for _ in range(2))
    ours = poison.guarded(ours)
    gradient = programs[0].gradient
    expected = [run([p.function(*own)], [own], gradient)[0] for p, own in zip(programs, theirs)]
    actual = run(compiled(*ours), ours, gradient)
    for program, *one in zip(programs, actual, expected, ours, theirs, strict=True):
        compare(program, n, *one)


def check_or_raise(program: Program, compiled: Callable[..., Any], n: int) -> None:
    """One size of one program; what eager mode refuses must be refused."""
    own = arguments(program, n)
    try:
        run([program.function(*own)], [own], program.gradient)
    except Exception:  # noqa: BLE001 - whatever eager mode raises
        given = arguments(program, n)
        with pytest.raises(Exception):  # noqa: B017 - Dynamo has kinds of its own
            run(compiled(given), [given], program.gradient)
        return
    check([program], compiled, n)


def compare(program: Program, n: int, actual: Any, expected: Any, ours: list[Any], theirs: list[Any]) -> None:
    """What one program left; ``ours`` and ``theirs`` are the inputs."""
    try:
        wide = arguments(program, n, wide=True)
        reference = run([program.function(*wide)], [wide], program.gradient)[0]
    except RuntimeError:  # dtypes are part of the program
        reference = expected
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(expected)[0]]
    leaves = [pytree.tree_leaves(tree) for tree in (actual, expected, reference)]
    assert len(leaves[0]) == len(leaves[1])
    known = {t.untyped_storage()._cdata for t in tensors_of(theirs) if smallest(n) < 2 and t.layout == torch.strided}
    for name, *values in zip(names, *leaves):
        # PyTorch leaves open whether `reshape` and `contiguous` copy: a copy for larger sizes is one for these too.
        is_view = isinstance(values[1], torch.Tensor) and values[1].layout == torch.strided
        is_view = is_view and "result" in name and values[1].untyped_storage()._cdata in known
        assert_same(f"{program.name} at {n}, {name}", *values, may_be_copy=is_view)
    shared = [storages(tensors_of([inputs, tree["result"]])) for inputs, tree in ((ours, actual), (theirs, expected))]
    apart = smallest(n) < 2 and all(mine in (other, i) for i, (mine, other) in enumerate(zip(*shared, strict=True)))
    assert shared[0] == shared[1] or apart, f"{program.name} at {n}: storages {shared[0]} instead of {shared[1]}"
