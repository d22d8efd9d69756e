"""Every rule of a pointwise operator against eager: all dtypes eager takes, pairs of special values, two sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lowering import Lowered, compare, lower_graph
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.passes.lowering import lower_aten
from symshape.passes.lowering.lower_aten import TABLES, rules, rules_of

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
_FLOAT_VALUES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -3.5, 7.25, -0.001, 30.0]
_INT_VALUES = [0, 1, 2, 3, -1, -2, -7, 5, 64, 100, -100]
POOLS = {
    **dict.fromkeys(FLOATS, _FLOAT_VALUES),
    **dict.fromkeys(INTEGERS, _INT_VALUES),
    torch.uint8: [0, 1, 2, 3, 7, 9, 100, 128, 200, 255],
    torch.bool: [False, True],
}
NUMBERS = {**dict.fromkeys(FLOATS, (2, 0.1, -1.5)), **dict.fromkeys(INTEGERS, (3, -2, 0.5)), torch.bool: (True, 2, 1.5)}
X, Y, Z, MASK, S = "x", "y", "z", "mask", "size"
CASES: dict[str, list[tuple[Any, ...]]] = {
    "aten.add.Tensor": [(X, Y), (X, Y, {"alpha": 2}), (X, Y, {"alpha": -0.5}), (X, S)],
    "aten.sub.Tensor": [(X, Y), (X, Y, {"alpha": 3}), (X, S)],
    "aten.mul.Tensor": [(X, Y), (X, S), (X, 0.1)],
    "aten.div.Tensor": [(X, Y), (X, S)],
    "aten.div.Tensor_mode": [(X, Y, {"rounding_mode": m}) for m in ("floor", "trunc", None)],
    "aten.div.Scalar_mode": [(X, n, {"rounding_mode": m}) for m in ("floor", "trunc", None) for n in (3, -2, 0.7, 0.1)],
    "aten.pow.Tensor_Scalar": [(X, n) for n in (0, 1, 2, 3, 4, 5, 0.5, -0.5, -1, -2, 1.7, S)],
    "aten.addcmul.default": [(X, Y, Z), (X, Y, Z, {"value": 2})],
    "aten.addcdiv.default": [(X, Y, Z), (X, Y, Z, {"value": 2})],
    "aten.lerp.Scalar": [(X, Y, 0.25), (X, Y, 0.75), (X, Y, 2.0)],
    "aten.clamp.default": [(X, -1), (X, None, 2), (X, -0.5, 3), (X, 3, -1)],
    "aten.round.decimals": [(X, {"decimals": 2}), (X, {"decimals": -1}), (X, {"decimals": 0})],
    "aten.where.self": [(MASK, X, Y)],
    "aten.threshold.default": [(X, 0.5, 20)],
    "aten._to_copy.default": [(X, {"dtype": t}) for t in DTYPES],
    "prims.convert_element_type.default": [(X, t) for t in DTYPES],
    **{
        f"aten.bitwise_{name}_shift.{form}": [args]
        for name in ("left", "right")
        for form, args in (("Tensor_Scalar", (X, 3)), ("Scalar_Tensor", (3, Y)))
    },
    **{f"aten.__{name}shift__.Scalar": [(X, 3)] for name in ("l", "r")},
    **{
        f"aten.special_{name}.n_scalar": [(X, degree) for degree in (-1, 0, 1, 2, 3, 7, 2.5)]
        for name in ("legendre_polynomial_p", "laguerre_polynomial_l")
    },
}
# Integer division by zero is undefined.
_NO_ZERO = ("div", "remainder", "fmod")
_FINITE = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -3.5, 7.25, -0.001, 30.0]
# NaN and infinities as integers are undefined, and eager's vector and scalar loops disagree about some of them.
FLOAT_POOLS: dict[str, list[float]] = {
    **dict.fromkeys(("aten._to_copy.default", "prims.convert_element_type.default"), _FINITE),
    "aten.pow.Tensor_Scalar": [v for v in _FLOAT_VALUES if v != 0 and v != -math.inf],
    # Of NaN eager mode returns memory that nothing has written: the loop of its recurrence does not run.
    **{
        f"aten.special_{name}.n_scalar": [v for v in _FLOAT_VALUES if not math.isnan(v)]
        for name in ("legendre_polynomial_p", "laguerre_polynomial_l")
    },
}
# Eager's own errors are larger than what is allowed here: test_special_functions.py. Two results, none for half types,
# unsigned order: test_unusual_operators.py.
ELSEWHERE = ("special_bessel_", "chebyshev", "hermite", "airy", "gcd", "frexp", "nextafter")
# Tables of other operators than pointwise ones.
OTHERS = ("factories", "views", "reductions", "scans", "indexing", "joining", "jagged", "segments", "scatters")
OTHERS += ("strided", "compact_reads")
POINTWISE = [name for table in TABLES if table not in OTHERS for name in rules_of(table)]


def overload(target: str) -> Any:
    namespace, name, form = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), form)


def cases_of(target: str, dtype: torch.dtype) -> list[tuple[Any, ...]]:
    """The listed calls, or for a plain signature one for each number."""
    if target in CASES:
        return CASES[target]
    arguments = [a for a in overload(target)._schema.arguments if not a.has_default_value()]
    names = iter((X, Y, Z))
    kinds = [next(names) if str(a.type) == "Tensor" else None for a in arguments]
    if None not in kinds:
        return [tuple(kinds)]
    return [tuple(n if k is None else k for k in kinds) for n in NUMBERS[dtype]]


def tensors(target: str, dtype: torch.dtype) -> dict[str, Any]:
    """All pairs of the dtype's special values in x and y."""
    pool = FLOAT_POOLS.get(target, POOLS[dtype]) if dtype.is_floating_point else POOLS[dtype]
    divisors = [v for v in pool if v or dtype in FLOATS] if any(name in target for name in _NO_ZERO) else pool
    x = torch.tensor(pool, dtype=dtype).repeat_interleave(len(divisors))
    y = torch.tensor(divisors, dtype=dtype).repeat(len(pool))
    z = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    return {X: x, Y: y, Z: z, MASK: torch.arange(len(x)) % 3 == 0, S: len(x)}


def call(function: Any, case: tuple[Any, ...], named: dict[str, Any]) -> Any:
    kwargs = case[-1] if isinstance(case[-1], dict) else {}
    args = [named[a] if isinstance(a, str) else a for a in case if not isinstance(a, dict)]
    return function(*args, **kwargs)


def eager(target: str, case: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor | None:
    """None where eager refuses the call, or an infinity becomes an integer."""
    if -math.inf in case and not named[X].dtype.is_floating_point:
        return None
    try:
        return call(overload(target), case, named)
    except (RuntimeError, TypeError, NotImplementedError):
        return None


class CallGraph:
    """One graph of many calls on vectors of one symbolic size, without tracing: composite ops are not decomposed."""

    def __init__(self) -> None:
        mode = FakeTensorMode(shape_env=ShapeEnv())
        self.fake = mode.from_tensor(torch.empty(17))
        self.graph, self.inputs, self.outputs = torch.fx.Graph(), {}, []

    def input(self, dtype: torch.dtype, name: str) -> torch.fx.Node:
        if (dtype, name) not in self.inputs:
            node = self.inputs[dtype, name] = self.graph.placeholder(f"{name}_{len(self.inputs)}")
            if name == S:
                node.meta["val"] = self.fake.shape[0]
            else:
                node.meta["val"] = self.fake.to(torch.bool if name == MASK else dtype)
        return self.inputs[dtype, name]

    def add(self, target: str, case: tuple[Any, ...], dtype: torch.dtype, result: torch.dtype) -> None:
        named = {a: self.input(dtype, a) for a in case if isinstance(a, str)}
        node = call(lambda *args, **kwargs: self.graph.call_function(overload(target), args, kwargs), case, named)
        node.meta["val"] = self.fake.to(result)
        self.outputs.append(node)

    def lower(self) -> Lowered:
        self.graph.output(tuple(self.outputs))
        return lower_graph(torch.fx.GraphModule({}, self.graph))


@pytest.mark.parametrize("target", sorted(t for t in POINTWISE if not any(name in t for name in ELSEWHERE)))
def test_rule(target: str) -> None:
    """As many values as special pairs, then fewer in another order."""
    samples = {dtype: tensors(target, dtype) for dtype in DTYPES}
    graph, chosen = CallGraph(), []
    for dtype, named in samples.items():
        for case in cases_of(target, dtype):
            result = eager(target, case, named)
            if result is not None and not has_bound_beyond(target, case, dtype):
                graph.add(target, case, dtype, result.dtype)
                chosen.append((dtype, case))
    assert chosen, "eager refuses every sample"
    lowered = graph.lower()
    assert not lowered.kept
    for size in (max(len(named[X]) for named in samples.values()), 7, 1, 0):
        resized = {dtype: resize(named, size) for dtype, named in samples.items()}
        actual = lowered.run([resized[dtype][name] for dtype, name in graph.inputs])
        for (dtype, case), mine in zip(chosen, actual, strict=True):
            compare(mine, eager(target, case, resized[dtype]), f"{target} {dtype} {case} at size {size}")


def test_every_file_of_rules_is_in_the_table() -> None:
    folder = Path(lower_aten.__file__).parent / "aten"
    found = {file.stem for file in folder.glob("*.py") if "\nRULES" in file.read_text()}
    assert found == set(TABLES)
    assert sum(len(rules_of(table)) for table in TABLES) == len(rules())  # no rule hides another one


def has_bound_beyond(target: str, case: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Whether a bound is no number of the type: such a call stays PyTorch's (test/programs/test_clamp_bounds.py)."""
    return dtype is torch.uint8 and "clamp" in target and any(isinstance(bound, int) and bound < 0 for bound in case)


def resize(named: dict[str, Any], size: int) -> dict[str, Any]:
    """``size`` values of each vector, cyclically."""
    chosen = torch.arange(size)
    return {S: size} | {name: v[(chosen * 5 + 3) % len(v)] for name, v in named.items() if name != S}
