"""``torch.func`` in compiled functions. (Around a compiled function PyTorch runs it as it is, for every backend.)"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.flop_counter import FlopCounterMode

import symshape


def _squash(x: Tensor) -> Tensor:
    """With a number, which transforms wrap like a tensor."""
    return (torch.tanh(x) - 1) * x.sum()


def _vjp(x: Tensor) -> Any:
    value, pull = vjp(_squash, x)
    return value, pull(x.exp())


def _newton(x: Tensor) -> Tensor:
    """A step of it, for a function of all elements."""
    loss = lambda t: (t**4).sum() + (t.sum() - 1) ** 2 + t.square().sum()  # noqa: E731
    return x - torch.linalg.solve(hessian(loss)(x), grad(loss)(x))


TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "jacrev": jacrev(_squash),
    "jacfwd": jacfwd(_squash),
    "jvp": lambda x: jvp(_squash, (x,), (x.cos(),)),
    "vjp": _vjp,
    "newton": _newton,
    "hessian": hessian(lambda x: _squash(x).sum()),
    "vmap": lambda x: vmap(lambda a: F.softmax(a * x, -1).cumsum(-1))(x),
}
FAST = ("jacrev", "jvp")


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.long) for n in TRANSFORMS])
def test_transforms(name: str, graphs: Callable[[], int]) -> None:
    transform = TRANSFORMS[name]
    compiled = symshape.compile(transform)
    for size in (3, 7, 5, 1):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), transform(x), rtol=1e-4, atol=1e-5)
    assert graphs() <= 2  # sizes, and one


@pytest.mark.parametrize("chunk", [None, pytest.param(2, marks=pytest.mark.long)])
def test_gradients_of_each_sample(chunk: int | None) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=chunk)
    compiled = symshape.compile(gradients)
    for batch in (3, 6, 4):
        x, y = torch.randn(batch, 4), torch.arange(batch) % 3
        torch.testing.assert_close(compiled(parameters, x, y), gradients(parameters, x, y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit], ids=["compile", "jit"])
def test_gradients_of_each_sample_through_reshapes(wrap: Callable[[Any], Any], graphs: Callable[[], int]) -> None:
    """What transforms wrap has no memory of its own, and ``reshape`` and ``contiguous`` ask whose memory it is."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 2))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        scores = functional_call(model, values, (x[None],))
        return F.mse_loss(scores.reshape(-1).contiguous(), y)

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    compiled = wrap(gradients)
    for batch in (3, 6, 2, 1):
        x, y = torch.randn(batch, 1, 6, 6), torch.randn(batch, 2)
        torch.testing.assert_close(compiled(parameters, x, y), gradients(parameters, x, y), rtol=1e-4, atol=1e-5)
    if wrap is symshape.compile:
        assert graphs() <= 2  # sizes, and one


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_in_a_vmap(randomness: str) -> None:
    """What PyTorch cannot trace there breaks the graph: no opaque call has a rule for batches."""
    transform = vmap(nn.Dropout(0.5), randomness=randomness)
    compiled = symshape.compile(lambda x: transform(x * 2) + 1)
    for batch in (5, 3):
        torch.manual_seed(batch)
        expected = transform(torch.full((batch, 4), 2.0)) + 1
        torch.manual_seed(batch)
        assert torch.equal(compiled(torch.ones(batch, 4)), expected)
        assert set(expected.unique().tolist()) <= {1.0, 5.0}


@pytest.mark.long
def test_transforms_around_a_compiled_function() -> None:
    """What is compiled serves calls outside of transforms, before and after one."""
    compiled = symshape.compile(_squash)
    for size in (3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), _squash(x))
        torch.testing.assert_close(jacrev(compiled)(x), jacrev(_squash)(x))
        torch.testing.assert_close(vmap(compiled)(torch.stack([x, x + 1])), vmap(_squash)(torch.stack([x, x + 1])))
        torch.testing.assert_close(compiled(x), _squash(x))


def test_a_transform_first_does_not_keep_it_from_being_compiled(launches: Counter[str]) -> None:
    """What Dynamo does not compile it runs in eager mode for good: not so for a transform, or under a dispatch mode."""
    compiled, x = symshape.compile(_squash), torch.randn(4)
    torch.testing.assert_close(vmap(compiled)(x[None]), _squash(x)[None])
    compiled(x)
    assert launches.total()

    other = symshape.compile(lambda t: _squash(t) + 1)
    with FlopCounterMode(display=False):
        other(x)
    launches.clear()
    torch.testing.assert_close(other(x), _squash(x) + 1)
    assert launches.total()


WRAPS = {"compile": symshape.compile, "backend": functools.partial(torch.compile, backend="symshape")}
WRAPS["jit"] = symshape.jit


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_tangents_around_a_compiled_function(wrap: Callable[[Any], Any]) -> None:
    compiled, x, tangent = wrap(_squash), torch.randn(4), torch.randn(4)
    compiled(x)
    for primal in (x, x.clone().requires_grad_()):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(primal, tangent)
            actual, expected = (forward_ad.unpack_dual(f(dual)) for f in (compiled, _squash))
            torch.testing.assert_close(actual.primal, expected.primal)
            torch.testing.assert_close(actual.tangent, expected.tangent)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_gradients_several_times(wrap: Callable[[Any], Any]) -> None:
    """With ``retain_graph``, and of a batch of tangents."""

    def layer(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w).softmax(-1) * w.sum()

    compiled = wrap(layer)
    for size in (3, 5, 1):
        x, w = torch.randn(size, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
        tangents = torch.randn(7, size, 2)

        def gradients(f: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor, v: Tensor) -> list[Any]:
            y, jacobian = f(x, w), torch.autograd.functional.jacobian
            found = [torch.autograd.grad(y, (x, w), v[i], retain_graph=True) for i in (0, 1, 0)]
            found.append(torch.autograd.grad(y, (x, w), v, is_grads_batched=True))
            return [*found, *(jacobian(lambda t: f(t, w), x, vectorize=vectorize) for vectorize in (False, True))]

        given = x, w, tangents
        torch.testing.assert_close(gradients(compiled, *given), gradients(layer, *given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_gradients_of_a_batch_of_tangents_are_not_lost_silently(wrap: Callable[..., Any]) -> None:
    compiled = wrap(lambda x: (x.sin() * x.sum(1, keepdim=True)).sum(0))
    for size in (4, 2, 1, 0):
        x = torch.randn(size, 3, requires_grad=True)
        once = torch.autograd.grad(compiled(x), x, torch.eye(3), is_grads_batched=True, retain_graph=True)[0]
        assert once.shape == (3, size, 3) and not once.requires_grad
        again = torch.autograd.grad(compiled(x), x, torch.eye(3), is_grads_batched=True, create_graph=True)[0]
        torch.testing.assert_close(again.detach(), once)
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            torch.autograd.grad(again.sum(), x)
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            again.sum().backward()
