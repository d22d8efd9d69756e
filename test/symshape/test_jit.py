"""``symshape.jit``: results, entries, guards, errors, threads."""

from __future__ import annotations

import copy
import enum
import gc
import math
import re
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from imported import line
from torch.export import Dim

import symshape
from symshape.errors import CompileError, OptionError, SymshapeError

close = torch.testing.assert_close


# --- results and entries ---------------------------------------------------------------------------------------------


def test_one_entry_serves_all_sizes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + y, -1) * x.shape[0]

    jitted = symshape.jit(fn)
    for rows, columns in ((4, 6), (3, 2), (17, 33), (2, 128)):
        x, y = torch.randn(rows, columns), torch.randn(columns)
        close(jitted(x, y), fn(x, y))
    assert len(jitted.entries) == 1
    assert jitted.entries[0].guards == ("x.size(1) == y.size(0)",)
    for rows, columns in ((1, 6), (1, 9), (0, 5), (1, 1), (5, 1)):
        x, y = torch.randn(rows, columns), torch.randn(columns)
        close(jitted(x, y), fn(x, y))
    assert len(jitted.entries) == 1


def test_no_dynamo() -> None:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    symshape.jit(lambda x: x * 2)(torch.randn(3))
    assert not counters["stats"] and not counters["frames"]


def test_branches_on_sizes_are_entries_with_guards_at_the_users_line() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2 == 0:
            return x * 2
        if x.shape[0] > 10:
            return x - 1
        return x + 1

    jitted = symshape.jit(fn)
    for size in (4, 6, 5, 13, 15, 7, 100, 99):
        x = torch.randn(size)
        close(jitted(x), fn(x))
    assert len(jitted.entries) == 3
    places = {
        check.condition: check.location
        for tree in jitted._trees()
        for entry in tree.entries
        for check in entry.guards.checks
        if check.location
    }
    assert line(fn, "% 2 == 0") in places.values() and line(fn, "> 10") in places.values()


ON_FLOATS: dict[str, Callable[[Any], Any]] = {
    "powers": lambda n: n**0.5 > 3,
    "inverse powers": lambda n: n > 0 and n**-0.5 < 0.3,
    "quotients": lambda n: n / 3 > 2.5,
    "quotients of floats": lambda n: 1.0 / (n**0.5 + 1) < 0.3,
    "products": lambda n: n * 0.3 > 2,
    "roundings": lambda n: round(n / 4) == 2,
    "roundings to digits": lambda n: round(n / 3, 1) > 2.3,
    "floors": lambda n: math.floor(n * 0.3) % 2 == 0,
    "ceilings": lambda n: math.ceil(n**0.5) >= 3,
    "truncations": lambda n: math.trunc(n**0.5) == 2,
    "bits": lambda n: (n & 5) ^ 3 == 2,
    "extrema": lambda n: max(n * 0.5, 2.0) > 2.5,
    "chosen numbers": lambda n: torch.sym_ite(n > 5, n * 2, n + 1) > 10,
    "two conditions": lambda n: n * 0.5 > 1.2 and n**0.5 < 3.2,
    "equalities": lambda n: n * 0.1 == 0.5,
    "roots": lambda n: torch.sym_sqrt(n) > 2.3,
    "what is not defined for others": lambda n: n > 4 and torch.sym_sqrt(n - 5) > 1.5,
}


@pytest.mark.parametrize("name", ON_FLOATS)
def test_branches_on_floats_made_of_sizes(name: str) -> None:
    condition = ON_FLOATS[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if condition(x.shape[0]) else x + 1

    jitted = symshape.jit(fn)
    for n in (5, 9, 10, 2, 7, 16, 3, 1, 6, 0, 12):
        assert torch.equal(jitted(torch.arange(float(n))), fn(torch.arange(float(n)))), n
    assert len(jitted.entries) <= 6


def test_a_scale_that_follows_from_a_size() -> None:
    """Attention has a guard on ``1 / sqrt(size)``."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    jitted = symshape.jit(fn)
    for sizes in ((2, 4, 8), (3, 5, 8), (2, 4, 16), (2, 7, 8)):
        x = torch.randn(sizes)
        close(jitted(x), fn(x))
    assert len(jitted.entries) == 1


def test_strides_and_offsets() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2 + x.sum(1, keepdim=True), x.t()

    jitted = symshape.jit(fn)
    base = torch.randn(20, 30)
    views = (base, base.t(), base[:, 3:], base[2:], base[::2], base[:, ::3], base[:1], base[:, :1], base[3:3], base[4])
    for x in (view for view in views if view.dim() == 2):
        for result, expected in zip(jitted(x), fn(x)):
            close(result, expected)
            assert result.stride() == expected.stride()
    offset = symshape.jit(lambda x: torch.as_strided(x, (2, 2), (1, 1), x.storage_offset() + 1))
    flat = torch.arange(30.0)
    for x in (flat, flat[5:], flat[7:]):
        close(offset(x), torch.as_strided(x, (2, 2), (1, 1), x.storage_offset() + 1))


def test_containers_keywords_and_constants() -> None:
    def fn(d: Any, n: int, *, scale: float = 1.0, flag: bool = False, mode: str = "a", opt: Any = None) -> Any:
        x = d["x"] * scale + n
        x = -x if flag else x
        return {"x": x + d["more"][0].sum(), "n": n + 1, "mode": mode, "opt": opt}

    jitted = symshape.jit(fn)
    for n in (5, 7, 1, 0, -3):
        for flag in (True, False):
            d = {"x": torch.randn(3, n + 4), "more": [torch.randn(2)]}
            result, expected = jitted(d, n, scale=2.0, flag=flag), fn(d, n, scale=2.0, flag=flag)
            close(result.pop("x"), expected.pop("x"))
            assert result == expected
    count = len(jitted.entries)
    d = {"x": torch.randn(3, 4), "more": [torch.zeros(2)]}
    for scale in (0.0, -0.0):  # equal, but not the same
        close(1 / jitted(d, 0, scale=scale)["x"], 1 / fn(d, 0, scale=scale)["x"])
    assert len(jitted.entries) == count + 2


def test_outputs_keep_their_identity() -> None:
    jitted = symshape.jit(lambda x: (x, x.view(-1), None, 3, x.shape[0] * 2, [x.t()]))
    x = torch.randn(3, 4)
    same, flat, none, three, six, (turned,) = jitted(x)
    assert same is x and flat.data_ptr() == x.data_ptr() and (none, three, six) == (None, 3, 6)
    assert turned.stride() == (1, 4)


def test_the_same_tensor_twice_and_tensors_in_the_same_memory() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + 2 * y

    jitted, x = symshape.jit(add), torch.randn(4, 5)
    for args in ((x, x), (x, torch.randn(4, 5)), (x[:2], x[2:])):
        close(jitted(*args), add(*args))

    def change(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2

    jitted = symshape.jit(change)
    for size in (3, 5):
        x = torch.zeros(size)
        close(jitted(x, torch.ones(size)), torch.full((size,), 2.0))
        close(x, torch.ones(size))
    shared = torch.zeros(6)
    for args in ((shared, shared), (shared[:4], shared[2:])):
        with pytest.raises(SymshapeError, match="changes x, and another input is in the same memory"):
            jitted(*args)
    close(shared, torch.zeros(6))


def test_modes_of_pytorch_have_entries_of_their_own() -> None:
    module, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    jitted = symshape.jit(module)
    for mode in (torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode()):
        with mode:
            result, expected = jitted(x), module(x)
        assert (result.dtype, result.requires_grad) == (expected.dtype, expected.requires_grad)
    assert jitted(x).requires_grad
    assert len(jitted.entries) == 4


# --- modules and training --------------------------------------------------------------------------------------------


def test_training_a_module() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    reference = copy.deepcopy(module)
    jitted = symshape.jit(module)
    optimisers = [torch.optim.SGD(m.parameters(), 0.1) for m in (module, reference)]
    for size in (3, 6, 9):
        x = torch.randn(size, 4)
        for run, optimiser in zip((jitted, reference), optimisers):
            optimiser.zero_grad()
            run(x).square().sum().backward()
            optimiser.step()
    for ours, theirs in zip(module.parameters(), reference.parameters()):
        close(ours, theirs)
    assert len(jitted.entries) == 1


def test_buffers_change_and_modes_of_modules_are_guarded() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    reference = copy.deepcopy(module)
    jitted = symshape.jit(module)
    with torch.no_grad():
        for training in (True, False, True):
            module.train(training), reference.train(training)
            x = torch.randn(6, 4)
            close(jitted(x), reference(x))
            close(module[1].running_mean, reference[1].running_mean)
        assert len(jitted.entries) == 2
        module.double()
        close(jitted(x.double()), reference.double()(x.double()))


def test_modules_that_a_function_closes_over_are_not_frozen() -> None:
    module = torch.nn.Linear(4, 4)
    jitted = symshape.jit(lambda x: module(x) + 1)
    with torch.no_grad():
        close(jitted(torch.ones(3, 4)), module(torch.ones(3, 4)) + 1)
        module.weight.zero_()
        close(jitted(torch.ones(5, 4)), module(torch.ones(5, 4)) + 1)


def test_a_buffer_that_gets_another_tensor_is_an_error() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count = self.count + 1
            return x * 2

    with pytest.raises(CompileError, match="gives the buffer count another tensor"):
        symshape.jit(Counting())(torch.ones(3))


def test_a_parameter_that_gets_another_tensor_is_an_error() -> None:
    class Doubling(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight = torch.nn.Parameter(self.weight * 2)
            return super().forward(x)

    module = Doubling(3, 2)
    before = module.weight
    with pytest.raises(CompileError, match="gives the parameter weight another tensor"):
        symshape.jit(module)(torch.ones(4, 3))
    assert module.weight is before


@pytest.mark.parametrize("step", [1, 0.5])
def test_a_number_that_each_call_changes_is_an_error(step: float) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0 * step

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += step
            return x * self.calls

    module = Counting()
    with pytest.raises(CompileError, match="each call changes the attribute calls of Counting"):
        symshape.jit(module)(torch.ones(3))
    assert module.calls == 0


def test_a_number_that_is_remembered_is_none() -> None:
    class Remembering(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.width = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.width = x.dim()
            return x * self.width

    jitted = symshape.jit(Remembering())
    for x in (torch.ones(3), torch.ones(5), torch.ones(3, 4), torch.ones(0)):
        close(jitted(x), x * x.dim())


@pytest.mark.parametrize("by", ["method", "attribute"])
def test_a_parameter_that_is_frozen_inside_is_an_error(by: str) -> None:
    class Freezing(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if by == "method":
                self.weight.requires_grad_(False)
            else:
                self.weight.requires_grad = False
            return super().forward(x)

    module = Freezing(3, 2)
    with pytest.raises(CompileError, match="requires_grad of a parameter or an argument cannot be changed"):
        symshape.jit(module)(torch.ones(4, 3))
    assert module.weight.requires_grad


# --- errors ----------------------------------------------------------------------------------------------------------


def test_errors_of_the_function_itself_are_eagers() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert x.shape[0] > 2, "too small"
        return x + y

    jitted = symshape.jit(fn)
    with pytest.raises(AssertionError, match="too small"):
        jitted(torch.ones(2), torch.ones(2))
    with pytest.raises(RuntimeError, match="must match"):
        jitted(torch.ones(4), torch.ones(5))
    with pytest.raises(TypeError, match="missing"):
        jitted(torch.ones(4))


def test_control_flow_on_values_names_the_way_out() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    with pytest.raises(CompileError, match="a value of a tensor decides") as raised:
        symshape.jit(fn)(torch.ones(3))
    assert f"at: {line(fn, 'x.sum() > 0')}: return x" in str(raised.value)
    assert "symshape.compile" in str(raised.value)


def test_an_operator_without_a_rule_names_the_way_out() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse().to_dense()

    with pytest.raises(CompileError, match="no rule for what aten._to_sparse.default returns") as raised:
        symshape.jit(fn)(torch.ones(3))
    assert f"at: {line(fn, 'to_sparse')}: return x" in str(raised.value)
    assert "symshape.compile" in str(raised.value)
    assert torch.equal(symshape.compile(fn)(torch.ones(3)), torch.ones(3))


class Reduction(enum.Enum):
    SUM, MEAN = "sum", "mean"


class Level(enum.IntEnum):
    LOW, HIGH = 1, 3


def test_members_of_an_enum_and_classes_are_arguments() -> None:
    def fn(x: torch.Tensor, how: Reduction, *, level: Level = Level.LOW, kind: type = float) -> torch.Tensor:
        x = x.sum(0) if how is Reduction.SUM else x.mean(0)
        return (x * level).to(torch.float64 if kind is float else torch.int32)

    jitted = symshape.jit(fn)
    for rows in (3, 1, 5):
        for how in Reduction:
            for level in Level:
                for kind in (float, int):
                    x = torch.arange(rows * 4.0).view(rows, 4)
                    found, expected = (f(x, how, level=level, kind=kind) for f in (jitted, fn))
                    torch.testing.assert_close(found, expected)
    assert len(jitted.entries) == 8


def test_arguments_and_options_that_cannot_be() -> None:
    with pytest.raises(SymshapeError, match="no guard can be made for an argument of type object"):
        symshape.jit(lambda x, y: x)(torch.ones(3), object())
    with pytest.raises(OptionError, match="entry_limit"):
        symshape.jit(lambda x: x, options={"entry_limit": 0})
    with pytest.raises(OptionError, match="unknown option"):
        symshape.jit(lambda x: x, options={"no_such": 0})
    with pytest.raises(OptionError, match="options cannot be 3"):
        symshape.jit(lambda x: x, options=3)  # type: ignore[call-overload]


class _Pair(torch.Tensor):
    """A tensor that is a product of two others, and has no memory."""

    @staticmethod
    def __new__(cls, left: torch.Tensor, right: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, left.shape, dtype=right.dtype)

    def __init__(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self.left, self.right = left, right

    def __tensor_flatten__(self) -> Any:
        return ["left", "right"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, _meta: Any, _size: Any, _stride: Any) -> Any:
        return _Pair(parts["left"], parts["right"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return _Pair(args[0].left, args[0].right)
        args = pytree.tree_map_only(_Pair, lambda pair: pair.left * pair.right, args)
        return func(*args, **(kwargs or {}))


def test_classes_that_hold_tensors_are_refused() -> None:
    pair = _Pair(torch.randn(4, 4), torch.randn(4, 1))
    linear = torch.nn.Linear(4, 4)
    linear.weight = torch.nn.Parameter(pair, requires_grad=False)
    masked = torch.masked.masked_tensor(torch.ones(3, 4), torch.ones(3, 4, dtype=torch.bool))
    for function, x, name in ((lambda x: x * 2, pair, "x"), (linear, torch.ones(3, 4), "weight"), (sum, masked, "")):
        with pytest.raises(SymshapeError, match="which holds other tensors") as raised:
            symshape.jit(function)(x)
        assert raised.value.where.endswith(name) and "symshape.compile" in raised.value.next_step


class _Scaled(torch.Tensor):
    """A tensor whose products are sums."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = torch.Tensor.add if func is torch.Tensor.mul else func
        return super().__torch_function__(func, types, args, kwargs or {})


class _Named(torch.Tensor):
    """A tensor that functions return tensors of its class for."""


def test_classes_with_functions_of_their_own_are_refused() -> None:
    """They were traced as plain tensors: a result was another number, or of another class."""
    linear = torch.nn.Linear(4, 4)
    linear.weight = torch.nn.Parameter(torch.ones(4, 4).as_subclass(_Named), requires_grad=False)
    for function, kind in ((lambda x: x * 2, _Scaled), (lambda x: x * 2, _Named), (linear, torch.Tensor)):
        with pytest.raises(SymshapeError, match="has functions of its own"):
            symshape.jit(function)(torch.ones(3, 4).as_subclass(kind))
    x = torch.nn.Parameter(torch.ones(3, 4))
    close(symshape.jit(lambda x: x * 2)(x), x * 2)


# --- many entries ----------------------------------------------------------------------------------------------------


def test_the_least_recently_used_entry_leaves_and_it_is_said_once() -> None:
    jitted = symshape.jit(lambda x, n: x * n, dynamic_shapes=(None, Dim.STATIC), options={"entry_limit": 3})

    def guards() -> set[str]:
        return {guard for entry in jitted.entries for guard in entry.guards if guard.startswith("n ==")}

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in (3, 4, 5, 3, 6, 7):
            close(jitted(torch.ones(4), n), torch.full((4,), float(n)))
    assert guards() == {"n == 3", "n == 6", "n == 7"}
    (warning,) = [one for one in seen if "symshape.jit" in str(one.message)]
    said = str(warning.message)
    assert "has 3 entries, as many as entry_limit allows" in said and "n == 3 (failed" in said
    assert warning.filename == __file__


def test_classes_of_inputs() -> None:
    def fn(x: Any, y: Any) -> Any:
        return x * 2 if y is None else x + y

    jitted = symshape.jit(fn)
    x = torch.ones(3)
    others = (None, torch.ones(3), True, 1, 4, 2.5)
    calls = [*((x, y) for y in others), (x.long(), None), (torch.ones(2, 3), None), (x, 5)]
    for _ in range(2):
        for args in calls:
            close(jitted(*args), fn(*args))
    assert len(jitted.entries) == len(calls) - 1  # 4 and 5 share one


def test_guards_contain_none_that_others_imply_and_no_entry_takes_what_it_must_not() -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            return x * 2 if x.shape[0] > 5 else x * 3
        return x.sum(0)

    functions = {
        chosen: {("x.size(0) >= 6",), ("x.size(0) >= 4", "x.size(0) <= 5"), ("x.size(0) <= 3",)},
        lambda x: x.unfold(0, 4, 4).sum(1) if x.shape[0] >= 4 else x: {("x.size(0) >= 4",)},
        lambda x: x[: x.shape[0] // 4].sum() / (x.shape[0] // 4 + 1): {()},
        lambda x: torch.cat([x, x[1:]]).reshape(-1, 1) * x.numel(): {()},
        lambda x: torch.cat([x, x[1:] * x[:-1]]) if x.shape[0] >= 1 else x: {("x.size(0) >= 1",)},
    }
    for function, guards in functions.items():
        jitted = symshape.jit(function)
        for _ in range(2):  # in both orders of entries
            for size in (9, 5, 3, 0, 1, 2, 4, 6, 7, 8, 11, 12, 13, 16, 17):
                x = torch.randn(size)
                close(jitted(x), function(x))
        assert guards <= {entry.guards for entry in jitted.entries}


def test_storage_offsets_that_a_function_reads() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x[1:]
        return x * 2 + x.storage_offset(), y.storage_offset(), -1 if x.storage_offset() > 5 else 1

    jitted, base = symshape.jit(fn), torch.arange(60.0)
    table = base.view(6, 10)
    for x in (base, base[3:], base[7:11], table[:, 2:], table[2:, :3], table[4:], base[59:], base[8:8]):
        found, expected = jitted(x), fn(x)
        close(found[0], expected[0])
        assert found[1:] == expected[1:]


def test_numbers_of_numpy_and_tensors_of_one_element() -> None:
    jitted = symshape.jit(lambda x, n: x * n)
    for n in (np.float64(2.5), np.int64(3), np.float32(-0.0), np.bool_(True), np.float64("nan"), 2.5):
        close(jitted(torch.ones(3), n), torch.ones(3) * n, equal_nan=True)
    count = len(jitted.entries)
    jitted(torch.ones(4), np.float64("nan")), jitted(torch.ones(4), np.int64(3))
    assert len(jitted.entries) == count
    base = torch.rand(8, 9)
    double = symshape.jit(lambda x: x * 2)
    for x in (base[:1, :1], base[::2, ::3][:1, :1], base.t()[2:3, 1:2], base[:1, :1].clone(), base[:0, :3]):
        close(double(x), x * 2)


def test_entries_keep_no_inputs_alive() -> None:
    jitted = symshape.jit(lambda x, y: x * y)
    x = torch.ones(4, 5)
    seen = weakref.ref(x)
    jitted(x, torch.ones(4, 5))
    del x
    gc.collect()
    assert seen() is None


def test_threads() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + x.shape[0]

    jitted = symshape.jit(fn, dynamic_shapes=(None, Dim.STATIC), options={"entry_limit": 4})
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(40):
                x, n = torch.full((2 + (seed + i) % 5,), 1.5), 2 + (seed * i) % 5
                close(jitted(x, n), fn(x, n))
        except BaseException as error:
            errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert len(jitted.entries) <= 4


def test_a_call_while_another_thread_traces_the_module() -> None:
    """The module's parameters are those of the trace meanwhile."""
    linear, tracing = torch.nn.Linear(4, 3), threading.Event()

    def fn(x: torch.Tensor) -> torch.Tensor:
        tracing.set()
        time.sleep(0.05)
        return linear(x)

    jitted, x = symshape.jit(fn), torch.randn(2, 4)
    other = threading.Thread(target=jitted, args=(torch.randn(5, 4),))
    other.start()
    tracing.wait()
    close(jitted(x), linear(x))
    other.join()
    assert len(jitted.entries) == 1


def test_a_jitted_function_inside_another() -> None:
    inner = symshape.jit(lambda x: x * 2)
    outer = symshape.jit(lambda x: inner(x) + 1)
    close(outer(torch.ones(3)), torch.full((3,), 3.0))
    assert not inner.entries


def test_the_examples_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "jit.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/jit.md", "exec"), {})


def test_guards_over_sizes_that_backward_does_not_see() -> None:
    """Forward has checked them: the gradient's graph has inputs of other sizes."""
    compiled = symshape.jit(lambda x, y: -y.exp())
    for n in (2, 3, 9):
        x = torch.randn(n, n + 2, requires_grad=True)[:, 1:]
        y = torch.randn(n, n + 1, requires_grad=True)
        compiled(x, y).sum().backward()
        torch.testing.assert_close(y.grad, -y.exp().detach())


def test_gradient_of_bags() -> None:
    bags = torch.nn.EmbeddingBag(10, 3, mode="sum")
    compiled = symshape.jit(lambda i, offsets, y: bags(i, offsets).sum() * y.sum())
    for n in (4, 5, 7):
        i, y = torch.randint(0, 10, (n,)), torch.randn(3, n, requires_grad=True)
        compiled(i, torch.tensor([0, 2]), y).backward()
        counts = torch.bincount(i, minlength=10)[:, None] * y.detach().sum()
        torch.testing.assert_close(bags.weight.grad, counts.expand(10, 3))
        bags.weight.grad = None


def test_a_tensor_as_a_plain_tensor_is_an_alias() -> None:
    compiled = symshape.jit(lambda x: (x.as_subclass(torch.Tensor) * 2, x.as_subclass(torch.Tensor)))
    for n in (2, 3, 7):
        x = torch.randn(n, requires_grad=True)
        doubled, same = compiled(x)
        assert torch.equal(doubled, x * 2) and same.data_ptr() == x.data_ptr()
        (doubled.sum() + same.sum()).backward()
        assert torch.equal(x.grad, torch.full((n,), 3.0))
    assert "as_subclass" not in vars(torch.Tensor)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: y.clone()[1 : x.numel() * 2],
        lambda x, y: y[: x.shape[0] * x.shape[1]].exp() * 2,
        lambda x, y: torch.cat([y, y.new_zeros(x.shape[0] * x.shape[1] + 1)])[1:],
    ],
)
def test_backward_knows_sizes_that_only_an_unused_input_shows(program: Any) -> None:
    compiled = symshape.jit(program)
    for rows, columns in ((2, 3), (5, 3), (3, 7)):
        x, y = torch.randn(rows, columns, requires_grad=True), torch.randn(rows + 4, requires_grad=True)
        ours, theirs = compiled(x, y), program(x, y)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(one.pow(2).sum(), y)[0] for one in (ours, theirs)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * float(x.shape[1]), x.shape[1]),
        lambda x: (float(x.shape[1]) ** 0.5 * x, round(x.shape[1] / 3)),
        lambda x: (x + int(x.shape[1] / 2), x.shape[1] + 1, x.shape[1] * 2.0, float(x.shape[0])),
    ],
)
def test_sizes_that_are_asked_for_are_returned_as_numbers(function: Callable[..., Any]) -> None:
    jitted = symshape.jit(function)
    for n in (8, 9, 3, 8):
        x = torch.ones(2, n)
        (tensor, *numbers), (expected, *others) = jitted(x), function(x)
        assert torch.equal(tensor, expected)
        assert numbers == others and list(map(type, numbers)) == list(map(type, others))


def test_strides_of_a_tensor_that_is_known_to_be_empty_may_be_any() -> None:
    """Where it is asked for, the size 0 is a number, and so is the stride that the tracer computes from it."""
    jitted = symshape.jit(lambda x, y: x * 2 if x.shape[0] == 0 else x + y[: x.shape[0], None])
    for rows, columns in ((3, 5), (0, 2), (0, 3), (4, 2)):
        x, y = torch.ones(columns, rows).t(), torch.ones(6)
        assert torch.equal(jitted(x, y), x * 2)


@pytest.mark.parametrize(
    "view", [lambda x: x.transpose(0, 2), lambda x: x.permute(1, 2, 0), lambda x: x.permute(2, 0, 1)[:, ::2]]
)
def test_views_of_tensors_without_elements(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A size of 0 counts as 1 in strides."""
    function = symshape.jit(lambda x: (x * 2, x.sum(0)))
    for sizes in ((5, 6, 7), (0, 6, 7), (5, 0, 7), (5, 6, 0), (0, 0, 3), (1, 0, 4), (1, 1, 1), (3, 4, 5)):
        x = view(torch.randn(sizes))
        doubled, summed = function(x)
        torch.testing.assert_close(doubled, x * 2)
        torch.testing.assert_close(summed, x.sum(0))


class _TooLarge(Exception):
    pass


def _raises(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 3:
        raise _TooLarge(f"{x.shape[0]} rows of {tuple(x.shape)}")
    return x * 2


def _asserts(x: torch.Tensor) -> torch.Tensor:
    x = x.add_(1)
    assert x.shape[0] < 4, f"bad: {x.shape}"
    return x


def _asks(x: torch.Tensor) -> Any:
    return x.absent


def _differentiates_and_raises(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    raise _TooLarge(f"{torch.autograd.grad((x * x).sum(), x)[0].shape}")


@pytest.mark.parametrize("function", [_raises, _asserts, _asks, _differentiates_and_raises])
def test_errors_of_the_function_have_numbers(function: Callable[..., Any]) -> None:
    jitted = symshape.jit(function)
    for size in (7, 4, 1009):
        x, y = (torch.ones(size, 2) for _ in range(2))
        with pytest.raises(Exception) as ours:  # noqa: B017, PT011 - compared below
            jitted(x)
        with pytest.raises(Exception) as eager:  # noqa: B017, PT011
            function(y)
        assert ours.type is eager.type and str(ours.value) == str(eager.value)
        torch.testing.assert_close(x, torch.ones(size, 2))  # a failing call has not changed its inputs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x.numpy().sum(),
        lambda x: x + len(f"{x.sum():.3f}"),
        lambda x: x + x.untyped_storage().nbytes(),
    ],
    ids=["numpy", "format", "storage"],
)
def test_what_only_eager_mode_runs_is_an_error_that_says_so(function: Callable[..., Any]) -> None:
    with pytest.raises(CompileError, match=r"(?s)eager mode runs this call, a trace cannot.*test_jit.py.*lambda x"):
        symshape.jit(function)(torch.ones(5, 2))


def test_an_error_of_the_gradients_is_eager_modes() -> None:
    def overwritten(x: torch.Tensor) -> torch.Tensor:
        y = (x * 1).exp()
        return y.mul_(x.sum())

    x = torch.ones(5, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as eager:
        overwritten(x).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as ours:
        symshape.jit(overwritten)(x)
    assert ours.type is eager.type
