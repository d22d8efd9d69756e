"""``symshape.jit`` of functions that take and return nested tensors of the jagged layout."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.export import Dim

import symshape
from symshape.errors import OptionError, SymshapeError

Tensor = torch.Tensor
WIDTH = 6
close = torch.testing.assert_close


def nested(*lengths: int, **options: Any) -> Tensor:
    return torch.nested.nested_tensor([torch.randn(n, WIDTH) for n in lengths], layout=torch.jagged, **options)


def of_offsets(*offsets: int) -> Tensor:
    """Of which no length is known."""
    return torch.nested.nested_tensor_from_jagged(torch.randn(offsets[-1], WIDTH), torch.tensor(offsets))


def close_nested(found: Tensor, expected: Tensor) -> None:
    close(found.values(), expected.values())
    close(found.offsets(), expected.offsets())
    assert found.requires_grad == expected.requires_grad and found.dim() == expected.dim()


def test_one_entry_for_all_rows_and_its_results_are_nested() -> None:
    jitted = symshape.jit(lambda x: x.softmax(-1) * 2)
    for lengths in ((3, 5, 2), (1,), (0, 0), (4, 0, 7), (6, 6)):
        x = nested(*lengths)
        found = jitted(x)
        close_nested(found, x.softmax(-1) * 2)
        assert found.size(1) == x.size(1)
        close((found + x).values(), found.values() + x.values())
    assert len(jitted.entries) == 1 and jitted.entries[0].guards == ("x.offsets().size(0) >= 1",)


def test_lengths_that_are_known_are_another_entry() -> None:
    jitted = symshape.jit(lambda x: x.sum(1))
    for x in (nested(3, 5), of_offsets(0, 4, 10), nested(2, 2, 2), of_offsets(0, 0, 3)):
        close(jitted(x), x.sum(1))
    assert len(jitted.entries) == 2


def test_equal_ragged_sizes() -> None:
    """Eager mode takes two nested tensors for alike if their offsets are one tensor, equal or not."""
    jitted = symshape.jit(lambda x, y: x * y)
    x = nested(3, 5, 2)
    same = torch.nested.nested_tensor_from_jagged(torch.randn(10, WIDTH), x.offsets())
    for _ in range(2):
        close_nested(jitted(x, same), x * same)
        close_nested(jitted(x, x), x * x)
        for other in (nested(3, 5, 2), nested(5, 3, 2)):
            with pytest.raises(RuntimeError):
                jitted(x, other)
    close_nested(jitted(x.double(), same), x.double() * same)
    sums = symshape.jit(lambda x, y: (x * 2, y.sum(1)))
    for y in (same, nested(1, 2), x):
        close(sums(x, y)[1], y.sum(1))


def test_offsets_that_are_an_argument_too() -> None:
    jitted = symshape.jit(lambda x, offsets: x + torch.nested.nested_tensor_from_jagged(x.values().exp(), offsets))
    x = nested(3, 4)
    close_nested(jitted(x, x.offsets()), x + x.exp())
    with pytest.raises(RuntimeError):
        jitted(x, x.offsets().clone())


def test_gradients() -> None:
    """Of a leaf, of values that it is a view of, of weights alone; where none is wanted there is none."""
    jitted = symshape.jit(lambda x, w: torch.sin(x) @ w)
    for grads in ((True, True), (True, False), (False, True), (False, False)):
        x, w = nested(3, 0, 2, requires_grad=grads[0]), torch.randn(WIDTH, 4, requires_grad=grads[1])
        results = []
        for function in (jitted, jitted.fn):
            result = function(x, w)
            wanted = [t for t in (x, w) if t.requires_grad]
            found = torch.autograd.grad(result.values().square().sum(), wanted) if wanted else ()
            results.append((result, *found))
        close_nested(results[0][0], results[1][0])
        for found, expected in zip(results[0][1:], results[1][1:]):
            close(found.values() if found.is_nested else found, expected.values() if found.is_nested else expected)
        with torch.no_grad():
            assert not jitted(x, w).requires_grad
    values = torch.randn(10, WIDTH, requires_grad=True)
    x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 3, 10]))
    result = symshape.jit(torch.sin)(x)
    result.mul_(2)
    result.values().sum().backward()
    close(values.grad, 2 * values.detach().cos())


def test_gradients_inside() -> None:
    def function(x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(x.sin().values().sum(), x, create_graph=True)
        return found * 2

    x = nested(3, 4, requires_grad=True)
    close_nested(symshape.jit(function)(x), function(x))


def test_changes_in_place() -> None:
    def write(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    jitted, offsets = symshape.jit(write), torch.tensor([0, 3, 8, 10])
    values, others = torch.arange(20.0).view(10, 2), torch.arange(20.0).view(10, 2)
    expected = write(torch.nested.nested_tensor_from_jagged(values, offsets))
    close_nested(jitted(torch.nested.nested_tensor_from_jagged(others, offsets)), expected)
    close(others, values)
    with pytest.raises(SymshapeError, match="changes a nested tensor that requires a gradient"):
        jitted(nested(3, 5, requires_grad=True) * 1)


def test_forms() -> None:
    """Another ragged dim, rows with gaps, more dims, containers, and dense tensors in the same place."""
    jitted = symshape.jit(lambda x: x * 3)
    gaps = torch.nested.nested_tensor_from_jagged(
        torch.randn(10, WIDTH), torch.tensor([0, 3, 8, 10]), torch.tensor([2, 4, 1])
    )
    for x in (nested(3, 5).transpose(1, 2), nested(3, 5).unsqueeze(-1), nested(2, 3).unflatten(-1, (2, 3)), gaps):
        found, expected = jitted(x), x * 3
        close_nested(found, expected)
        assert (found.lengths() is None) == (expected.lengths() is None)
        assert str(found.shape).count("j") == 1 and found.size() == expected.size()
    dense = torch.randn(2, 3, WIDTH)
    for _ in range(2):
        close(jitted(dense), dense * 3)
        close_nested(jitted(gaps), gaps * 3)
    tree = symshape.jit(lambda given, scale: {"all": (given["x"] * scale, given["y"] + 1, given["y"].shape[0])})
    for scale in (2, 5):
        x, y = nested(1, scale), torch.randn(scale)
        found = tree({"x": x, "y": y}, scale)["all"]
        close_nested(found[0], x * scale)
        assert found[2] == scale
    assert len(tree.entries) == 1


def test_values_that_are_not_contiguous() -> None:
    jitted, offsets = symshape.jit(lambda x: x.cos() * 2), torch.tensor([0, 2, 5])
    for values in (torch.randn(5, 8)[:, ::2], torch.randn(4, 5).t(), torch.randn(5, 1).expand(5, 4)):
        x = torch.nested.nested_tensor_from_jagged(values, offsets)
        found, expected = jitted(x), x.cos() * 2
        close_nested(found, expected)
        assert found.values().stride() == expected.values().stride()


def test_modules() -> None:
    module = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 3), torch.nn.GELU())
    jitted = symshape.jit(module)
    for lengths in ((3, 5), (0, 1, 4)):
        x = nested(*lengths)
        close_nested(jitted(x), module(x))


def test_declared_sizes() -> None:
    batch = Dim("batch", min=2, max=8)
    jitted = symshape.jit(lambda x, y: x.sum(1) * y, dynamic_shapes={"x": {0: batch, 2: WIDTH}, "y": {0: batch}})
    x = nested(3, 5, 2)
    close(jitted(x, torch.ones(3, 1)), x.sum(1))
    narrow = torch.nested.nested_tensor([torch.randn(2, 5), torch.randn(3, 5)], layout=torch.jagged)
    for bad, message in (
        ((nested(3), torch.ones(1, 1)), "outside the declared range of batch, 2 to 8"),
        ((x, torch.ones(4, 1)), "both are declared as 'batch'"),
        ((narrow, torch.ones(2, 1)), r"x.size\(2\) == 6 does not hold for x.size\(2\) = 5"),
    ):
        with pytest.raises(symshape.ShapeConstraintError, match=message):
            jitted(*bad)
    with pytest.raises(OptionError, match="the ragged dim has no size"):
        symshape.jit(torch.sin, dynamic_shapes=({1: batch},))(x)
    assumed = symshape.jit(lambda x: x.sum(1), options={"assume": ["x.size(0) <= 4", "x.size(2) % 2 == 0"]})
    close(assumed(x), x.sum(1))
    with pytest.raises(symshape.ShapeConstraintError, match=r"x.size\(0\) <= 4"):
        assumed(nested(*[1] * 5))


def test_branches_on_the_number_of_rows() -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.size(0) > 2 else x + 1

    jitted = symshape.jit(function)
    for lengths in ((1,), (2, 3), (1, 2, 3), (0, 0, 0, 0)):
        x = nested(*lengths)
        close_nested(jitted(x), function(x))
    assert len(jitted.entries) == 2


def test_refused() -> None:
    with pytest.raises(SymshapeError, match="a value of a tensor decides"):
        symshape.jit(lambda x: x.unbind()[0] * 2 if x.sum() > 0 else x.sum(1))(nested(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that such tensors are in a prototype stage
        strided = torch.nested.nested_tensor([torch.randn(2, 3)], layout=torch.strided)
    with pytest.raises(SymshapeError, match="nested tensor of the strided layout"):
        symshape.jit(torch.sin)(strided)


def test_bad_offsets() -> None:
    total = symshape.jit(lambda x: x.sum(1))
    values = torch.randn(10, WIDTH)
    before = values.clone()
    for offsets in ((0, 3, 12), (0, 5, 3, 10), (-2, 4, 10), (4, 2, 0)):
        with pytest.raises(RuntimeError, match="offsets of rows decrease, are negative, or end past the values"):
            total(torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets)))
        assert torch.equal(values, before)
