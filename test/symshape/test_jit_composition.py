"""``symshape.jit`` together with whatever else compiles, traces or transforms functions: both ways."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_over
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import symshape
from symshape.errors import CompileError, OptionError

Tensor = torch.Tensor
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def plain(predicate: Any, true: Any, false: Any, operands: Any = ()) -> Any:
    return true(*operands) if predicate else false(*operands)


# --- others inside jit -----------------------------------------------------------------------------------------------


def test_cond_in_a_jitted_function() -> None:
    linear = nn.Linear(3, 3)

    def function(x: Tensor, n: int, cond: Any = torch.cond) -> Tensor:
        scale = x.exp().sum(0)

        def positive(x: Tensor) -> Tensor:
            return cond(x.mean() > 0.5, lambda x: x * scale, lambda x: linear(x) + n, (x,))

        return cond(x.sum() > 0, positive, lambda x: x.cos(), (x,)) * cond(
            x.shape[0] > 3, lambda x: x.sin(), lambda x: x + 1, (x,)
        )

    jitted = symshape.jit(lambda x, n: function(x, n))
    for rows, shift in ((2, 0.0), (5, 0.7), (1, 0.0)):
        x = torch.rand(rows, 3) + shift
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = jitted(ours, 4), function(theirs, 4, plain)
        close(found, expected)
        for result, source in ((found, ours), (expected, theirs)):
            linear.zero_grad(set_to_none=False)
            result.sum().backward()
            source.weights = [torch.zeros(3, 3) if linear.weight.grad is None else linear.weight.grad.clone()]
        close([ours.grad, *ours.weights], [theirs.grad, *theirs.weights])
    assert len(jitted.entries) == 1  # cond compiles both branches
    assert not any(
        "higher_order" in call for entry in jitted.entries for graph in entry.graphs for call in graph.library_calls
    )


def test_cond_of_data_dependent_sizes_in_a_jitted_function() -> None:
    def function(x: Tensor, cond: Any = torch.cond) -> Tensor:
        return cond((y := x[x > 0]).shape[0] > 2, lambda y: y.sin().sum(), lambda y: y.sum(), (y,)) * x

    jitted = symshape.jit(lambda x: function(x))
    for values in ([1.0, 2, -1], [3.0, 4, 5, 6, -1], [-1.0, -2]):
        close(jitted(torch.tensor(values)), function(torch.tensor(values), plain))
    (entry,) = jitted.entries
    assert not any("higher_order" in call for graph in entry.graphs for call in graph.library_calls)


def test_other_higher_order_operators_in_a_jitted_function() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        _, looped = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x.sin() + i), (torch.tensor(0), x))
        last, each = scan(lambda c, x: (c + x, (c * x).sin()), torch.zeros(x.shape[1:]), x)
        return looped, last, each, map_over(lambda row: row.sin() * 2, x), vmap(lambda row: row * row.sum())(x)

    jitted = symshape.jit(function)
    for rows in (4, 2):
        x = torch.rand(rows, 3)
        looped = x
        for i in range(5):
            looped = looped.sin() + i
        each = torch.stack([(x[:i].sum(0) * x[i]).sin() for i in range(rows)])
        close(jitted(x), (looped, x.sum(0), each, x.sin() * 2, x * x.sum(1, keepdim=True)))
    assert len(jitted.entries) == 1


def test_compiled_functions_in_a_jitted_function_are_part_of_it() -> None:
    def double(x: Tensor) -> Tensor:
        return x * 2 + x.shape[0]

    makers: list[Callable[[Any], Any]] = [
        lambda f: torch.compile(f, backend="eager"),
        lambda f: torch.compile(f, backend="aot_eager", fullgraph=True),
        symshape.compile,
        symshape.jit,
    ]
    x = torch.rand(4, 5)
    for make in makers:
        for warm in (False, True):
            inner = make(double)
            if warm:
                inner(x)
            jitted = symshape.jit(lambda x: inner(x).sin())  # noqa: B023
            for rows in (4, 7):
                close(jitted(x[:rows]), double(x[:rows]).sin())
            (entry,) = jitted.entries
            assert [(len(graph.kernels), graph.library_calls) for graph in entry.graphs] == [(1, [])]
    module = torch.compile(nn.Linear(5, 3), backend="eager")
    jitted = symshape.jit(lambda x: module(x) * 2)
    jitted(x).sum().backward()
    close(module.bias.grad, torch.full((3,), 8.0))


def test_modes_and_gradients_inside() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            a = x.exp()
        with torch.enable_grad():
            b = x.exp()
            (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True) if x.requires_grad else (x,)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = x @ x.t()
        return a, b, slope * x, c

    jitted = symshape.jit(function)
    for mode in (torch.enable_grad(), torch.no_grad(), torch.inference_mode(), torch.autocast("cpu")):
        x = torch.rand(4, 3, requires_grad=not isinstance(mode, (torch.no_grad, torch.inference_mode)))
        with mode:
            found, expected = jitted(x), function(x)
        for ours, theirs in zip(found, expected):
            close(ours, theirs)
            assert (ours.requires_grad, ours.is_inference()) == (theirs.requires_grad, theirs.is_inference())
    x = torch.rand(4, 3, requires_grad=True)
    gradients = [torch.autograd.grad(f(x)[2].sum(), x)[0] for f in (jitted, function)]
    close(*gradients)


def test_double_backward_is_an_error() -> None:
    x = torch.rand(3, requires_grad=True)
    (slope,) = torch.autograd.grad(symshape.jit(torch.sin)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.sum().backward()


# --- jit inside others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [False, True])
def test_a_jitted_function_that_others_trace_or_transform(warm: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() * 2

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return jitted(x) + 1

    x = torch.rand(4, 5)
    jitted = symshape.jit(function)
    if warm:
        jitted(x), jitted(x[0])
    count = len(jitted.entries)
    for make in (lambda f: torch.compile(f, backend="eager", fullgraph=True), symshape.compile):
        close(make(lambda x: jitted(x) + 1)(x), function(x) + 1)
    close(vmap(jitted)(x), function(x))
    close(grad(lambda x: jitted(x).sum())(x), 2 * x.cos())
    close(vmap(grad(lambda x: jitted(x).sum()))(x), 2 * x.cos())
    close(jvp(jitted, (x,), (x,))[1], 2 * x.cos() * x)
    with forward_ad.dual_level():
        close(forward_ad.unpack_dual(jitted(forward_ad.make_dual(x, x))).tangent, 2 * x.cos() * x)
    for mode in ("real", "symbolic"):
        graph = make_fx(jitted, tracing_mode=mode)(x)
        close(graph(2 * x), function(2 * x))
    for strict in (False, True):
        close(torch.export.export(Model(), (x,), strict=strict).module()(x), function(x) + 1)
    with FakeTensorMode():
        assert type(jitted(torch.empty(3))).__name__ == "FakeTensor"
    assert jitted(x.to("meta")).is_meta
    assert len(jitted.entries) == count


def test_modes_that_see_every_operation_see_those_of_jitted_functions() -> None:
    product = symshape.jit(lambda x: x @ x.t())
    ones = symshape.jit(lambda n: torch.ones(n) + 1)
    for _ in range(2):
        product(torch.rand(3, 4)), ones(4)
        with FlopCounterMode(display=False) as counter:
            product(torch.rand(3, 4))
        assert counter.get_total_flops() == 2 * 3 * 4 * 3
        with torch.device("meta"):
            assert ones(4).is_meta
        with torch.device("cpu"):
            close(ones(4), torch.full((4,), 2.0))


# --- modules ---------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))
        self.factor = 2.0
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.first(x)) * self.factor + self.shift

    @symshape.jit
    def encode(self, x: Tensor) -> Tensor:
        return self.first(x).sin()


def test_a_jitted_module_is_a_module() -> None:
    model = Net()
    jitted, x = symshape.jit(model), torch.rand(3, 4)
    close(jitted(x), model(x))
    assert isinstance(jitted, nn.Module) and jitted.rest is model.rest and jitted.factor == 2.0 and len(jitted.entries)
    assert jitted.eval() is jitted and not model.rest[0].training and not jitted.training
    jitted.shift = torch.zeros(4)
    assert model.shift is jitted.shift and [*map(id, jitted.parameters())] == [*map(id, model.parameters())]
    close(jitted(x), model(x))
    assert [*jitted.state_dict()] == [f"_orig_mod.{name}" for name in model.state_dict()]
    jitted.double().load_state_dict(torch.compile(copy.deepcopy(model).double(), backend="eager").state_dict())
    close(jitted(x.double()), model(x.double()))
    jitted.float()
    for other in (copy.deepcopy(jitted), pickle.loads(pickle.dumps(jitted))):
        with torch.no_grad():
            other.first.weight.zero_()
        close(other(x), other._orig_mod(x))
    close(jitted(x), model(x))
    around: list[int] = []
    jitted.register_forward_hook(lambda *_: around.append(1))
    close(functional_call(nn.Sequential(jitted), {}, (x,)), model(x))
    weights = {name: value * 2 for name, value in jitted.named_parameters()}
    doubled = functional_call(jitted, weights, (x,))
    close(doubled, functional_call(model, {name.removeprefix("_orig_mod."): w for name, w in weights.items()}, (x,)))
    assert len(around) == 2


def test_what_is_exchanged_in_a_module_is_seen() -> None:
    model = Net()
    jitted, x = symshape.jit(model), torch.rand(3, 4)

    def change_back_and_forth() -> list[Callable[[], Any]]:
        usual, other = model.rest[0], nn.Sigmoid()
        return [lambda: model.rest.__setitem__(0, other), lambda: model.rest.__setitem__(0, usual)]

    changes: list[Callable[[], Any]] = [
        *change_back_and_forth(),
        lambda: setattr(model, "first", nn.Linear(4, 4, bias=False)),
        lambda: model.rest.append(nn.Tanh()),
        lambda: model.rest.__delitem__(2),
        lambda: setattr(model.first, "weight", nn.Parameter(torch.ones(4, 4))),
        lambda: model.first.register_buffer("more", torch.ones(1)),
        lambda: model.first.requires_grad_(False),
        lambda: setattr(model, "rest", nn.Sequential(nn.Identity(), nn.Linear(4, 4))),
        lambda: setattr(model.rest[1], "weight", model.first.weight),
        lambda: setattr(model, "shift", torch.zeros(4)),
        lambda: setattr(model.rest[1], "weight", nn.Parameter(torch.zeros(4, 4))),
        lambda: setattr(model, "hook", model.first.register_forward_hook(lambda module, inputs, output: output * 3)),
        lambda: model.hook.remove(),
    ]
    close(jitted(x), model(x))
    for change in changes:
        change()
        found, expected = jitted(x), model(x)
        close(found, expected)
        assert found.requires_grad == expected.requires_grad


MODULE = nn.Linear(4, 4)


def helper(x: Tensor) -> Tensor:
    return MODULE(x)


def test_modules_that_a_function_names() -> None:
    class Holder:
        def __init__(self) -> None:
            self.inner = nn.Linear(4, 4)
            self.factor = 3

        @symshape.jit
        def step(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.factor

        @symshape.jit
        @staticmethod
        def twice(x: Tensor) -> Tensor:
            return x * 2

    holders, many, x = (Holder(), Holder()), [nn.Linear(4, 4)], torch.rand(3, 4)
    for holder in (*holders, holders[0]):
        close(holder.step(x), holder.inner(x) * 3)
    close(holders[0].twice(x), Holder.twice(x))
    jitted = symshape.jit(lambda x: many[0](helper(x)) + holders[0].inner(x))
    for _ in range(2):
        close(jitted(x), many[0](helper(x)) + holders[0].inner(x))
        jitted(x).sum().backward()
        assert all(m.weight.grad is not None for m in (MODULE, many[0], holders[0].inner))
        globals()["MODULE"], many[0], holders[0].inner = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    net = Net()
    other = copy.deepcopy(net) if net.encode(x) is not None else net
    with torch.no_grad():
        other.first.weight.zero_()
    for one in (net, other, pickle.loads(pickle.dumps(other))):
        close(one.encode(x), one.first(x).sin())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_sparse_arguments_are_errors(layout: torch.layout) -> None:
    with pytest.raises(
        symshape.SymshapeError, match=f"no guard can be made for an argument of type {layout} tensor"
    ) as error:
        symshape.jit(lambda s, x: s @ x)(torch.eye(3).to_sparse(layout=layout), torch.ones(3, 2))
    assert "at: s\n" in str(error.value)


def test_backward_inside_is_an_error() -> None:
    m = nn.Linear(4, 1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = m(x).square().sum()
        loss.backward()
        return loss

    with pytest.raises(CompileError, match=r"backward\(\) adds to the `grad` of parameters") as error:
        symshape.jit(step)(torch.ones(3, 4))
    assert "loss.backward()" in str(error.value) and m.weight.grad is None


def test_a_leaf_that_leaves_the_function() -> None:
    """Both would be results of one graph, and the leaf have no gradient."""
    w = torch.ones(4, requires_grad=True)

    def both(x: torch.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return leaf, {"loss": (leaf * 2).sum()}

    with pytest.raises(CompileError, match="makes a leaf is returned beside one that is computed from it"):
        symshape.jit(both)(torch.ones(3, 4))

    def apart(x: torch.Tensor, w: torch.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return leaf, x * w, w, torch.autograd.grad((leaf * x).sum(), leaf)[0]

    jitted = symshape.jit(apart)
    for size in (3, 1, 0):
        leaf, product, same, gradient = jitted(torch.full((size, 4), 2.0), w)
        assert leaf.is_leaf and leaf.requires_grad and same is w
        (from_w,) = torch.autograd.grad(product.sum(), w)
        torch.testing.assert_close(from_w, torch.full((4,), 2.0 * size))
        torch.testing.assert_close(gradient, torch.full((size, 4), 2.0))


def test_tensors_that_would_lose_their_gradient_and_classes_are_errors() -> None:
    weight = torch.rand(4, requires_grad=True)
    jitted = symshape.jit(lambda x: x * weight)
    with pytest.raises(CompileError, match=r"of shape \(4,\) that requires a gradient is no argument"):
        jitted(torch.rand(4))
    with torch.no_grad():
        close(jitted(torch.ones(4)), weight)
    with pytest.raises(OptionError, match="not the class Net"):
        symshape.jit(Net)


def test_lazy_modules_make_their_parameters() -> None:
    module, x = nn.LazyLinear(2), torch.rand(3, 4)
    jitted = symshape.jit(module)
    close(jitted(x), module(x))
    close(jitted(x[:2]), module(x[:2]))
    assert len(jitted.entries) == 1


def test_operators_that_check_for_errors() -> None:
    """Factorisations raise what LAPACK reports: the checks have an order, which is no input of the graph."""

    def factored(a: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(a @ a.mT + 5 * torch.eye(a.shape[-1])).sum()

    compiled = symshape.jit(factored)
    for n in (4, 6, 2):
        a = torch.randn(2, n, n, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(a), a), torch.autograd.grad(factored(a), a))
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        symshape.jit(torch.linalg.cholesky)(-torch.eye(3))


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.tensor(2.0)), torch.nn.Parameter(torch.tensor(5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.a - self.b


def test_parameters_in_another_order_are_other_inputs() -> None:
    module = _Scaled()
    compiled, x = symshape.jit(module), torch.ones(3)
    torch.testing.assert_close(compiled(x), torch.full((3,), -3.0))
    del module.a
    module.a = torch.nn.Parameter(torch.tensor(2.0))  # now the last of the table
    torch.testing.assert_close(compiled(x), torch.full((3,), -3.0))


class _Settings:
    layers: list[torch.nn.Module]


SETTINGS = _Settings()


def test_what_leads_to_a_module_is_exchanged() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        for layer in SETTINGS.layers:
            x = layer(x)
        return x

    SETTINGS.layers = [torch.nn.Linear(3, 3)]
    compiled, x = symshape.jit(run), torch.randn(2, 3)
    for change in (
        lambda: None,
        lambda: setattr(SETTINGS, "layers", [torch.nn.Linear(3, 3)]),
        lambda: SETTINGS.layers.append(torch.nn.Linear(3, 3)),
    ):
        change()
        torch.testing.assert_close(compiled(x), run(x))


def test_hooks_of_all_modules_are_seen() -> None:
    layer, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    compiled = symshape.jit(layer)
    torch.testing.assert_close(compiled(x), layer(x))
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 0)
    try:
        torch.testing.assert_close(compiled(x), torch.zeros(2, 3))
    finally:
        hook.remove()
    torch.testing.assert_close(compiled(x), layer(x))
