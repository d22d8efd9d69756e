"""``symshape.jit``: what a user says of sizes: declared dims, ``torch._check``."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch
from imported import line
from torch.export import Dim

import symshape
from symshape.errors import OptionError, ShapeConstraintError, SymshapeError

close = torch.testing.assert_close


def test_ranges_names_and_fixed_sizes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.sum(1)

    batch = Dim("batch", min=2, max=16)
    jitted = symshape.jit(fn, dynamic_shapes={"x": {0: batch}, "y": {0: batch, 1: 4}})
    where = f"{__file__}:{inspect.currentframe().f_lineno - 1}: dynamic_shapes"  # type: ignore[union-attr]
    for size in (2, 9, 16):
        close(jitted(torch.ones(size), torch.ones(size, 4)), torch.full((size,), 5.0))
    assert len(jitted.entries) == 1
    expected = {
        (17, 17, 4): ("outside the declared range of batch, 2 to 16", "batch <= 16", {"batch": 17}),
        (1, 1, 4): ("outside the declared range of batch, 2 to 16", "batch >= 2", {"batch": 1}),
        (5, 6, 4): ("both are declared as 'batch'", "batch == y.size(0)", {"batch": 5, "y.size(0)": 6}),
        (5, 5, 3): ("declared as a fixed size", "y.size(1) == 4", {"y.size(1)": 3}),
    }
    for (first, *second), (message, constraint, values) in expected.items():
        with pytest.raises(ShapeConstraintError) as raised:
            jitted(torch.ones(first), torch.ones(*second))
        assert str(raised.value).startswith(f"{message}: {constraint} does not hold for ")
        assert (raised.value.constraint, raised.value.values) == (constraint, values)
        assert f"\n  at: {where}\n  next: pass inputs with another " in str(raised.value)
    assert len(jitted.entries) == 1


def test_static_named_and_derived_dims() -> None:
    static = symshape.jit(lambda x: x * 2, dynamic_shapes=({0: Dim.STATIC},))
    for size in (3, 4, 5, 4):
        static(torch.ones(size, size + 4))
    assert len(static.entries) == 3
    named = symshape.jit(lambda x, y: x @ y, dynamic_shapes=(("rows", "inner"), ("inner", None)))
    named(torch.ones(3, 4), torch.ones(4, 5))
    with pytest.raises(ShapeConstraintError, match=r"both are declared as 'inner': inner == y.size\(0\)"):
        named(torch.ones(3, 4), torch.ones(5, 5))
    half = Dim("half", min=2, max=8)
    derived = symshape.jit(lambda x, y: x[:, None] + y.view(-1, 2), dynamic_shapes=({0: half}, {0: 2 * half}))
    derived(torch.ones(4), torch.ones(8))
    with pytest.raises(ShapeConstraintError, match=r"declared as derived: 2\*half == y.size\(0\)"):
        derived(torch.ones(4), torch.ones(9))
    integer = symshape.jit(lambda x, n: x[:n], dynamic_shapes=(None, Dim("n", min=2, max=5)))
    close(integer(torch.ones(9), 4), torch.ones(4))
    with pytest.raises(ShapeConstraintError, match=r"n <= 5 does not hold for n = 6 \(n, argument n\)|argument n"):
        integer(torch.ones(9), 6)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"z": None}, "no argument is called 'z'"),
        (({0: 2.5},), "2.5 is no dim"),
        (({5: None},), "does not fit a tensor of 2 dims"),
        ((("a",),), "does not fit a tensor of 2 dims"),
        (7, "neither a dict nor a tuple"),
    ],
)
def test_wrong_declarations(spec: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        symshape.jit(lambda x: x + 1, dynamic_shapes=spec)(torch.ones(3, 4))


def test_torch_check_of_sizes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] % 2 == 0, lambda: "rows come in pairs")
        return x.view(-1, 2, x.shape[1]).sum(1)

    jitted = symshape.jit(fn, dynamic_shapes=({0: "rows"},))
    for _ in range(2):  # at the first call, and when there is an entry
        with pytest.raises(RuntimeError) as raised:
            jitted(torch.ones(5, 3))
        text = "rows come in pairs: rows % 2 == 0 does not hold for rows = 5 (x.size(0), dim 0 of argument x)\n"
        assert str(raised.value).startswith(text)
        assert f"at: {line(fn, 'torch._check')}: torch._check(x.shape[0] % 2 == 0" in str(raised.value)
        close(jitted(torch.ones(6, 3)), torch.full((3, 3), 2.0))
    assert isinstance(raised.value, ShapeConstraintError) and len(jitted.entries) == 1


def test_torch_check_of_data_dependent_sizes() -> None:
    def fn(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        n = (i * 2).item()
        torch._check(n >= 4)
        torch._check(n <= x.shape[0], lambda: "n is at most the rows")
        return x[:n] * 3

    jitted = symshape.jit(fn)
    close(jitted(torch.tensor(2), torch.ones(5, 4)), torch.full((4, 4), 3.0))
    with pytest.raises(ShapeConstraintError, match=">= 4 does not hold for u") as raised:
        jitted(torch.tensor(1), torch.ones(5, 4))
    assert f"at: {line(fn, 'n >= 4')}: torch._check(n >= 4)" in str(raised.value)
    with pytest.raises(ShapeConstraintError, match="^n is at most the rows: ") as raised:
        jitted(torch.tensor(4), torch.ones(5, 4))
    assert raised.value.values["x.size(0)"] == 5 and len(jitted.entries) == 1


def test_assumptions_are_checked_and_used() -> None:
    def fn(x: torch.Tensor, n: Any = None) -> torch.Tensor:
        return (x * 2).view(-1, 8).sum(1) if n is None else x * n

    jitted = symshape.jit(fn, options={"assume": ["x.size(1) % 8 == 0", "x.size(0) <= 64", "n >= 3"]})
    for _ in range(2):
        for args in ((torch.rand(3, 16),), (torch.rand(64, 24),), (torch.rand(3, 8), 5), (torch.rand(1, 16),)):
            close(jitted(*args), fn(*args))
        broken = {
            "x.size(1) % 8 == 0": (torch.rand(3, 7),),
            "x.size(0) <= 64": (torch.rand(65, 8),),
            "n >= 3": (torch.rand(3, 8), 2),
        }
        for text, args in broken.items():
            with pytest.raises(ShapeConstraintError, match="the assumption `" + re.escape(text)) as raised:
                jitted(*args)
            assert raised.value.constraint == text and "at: assume= of symshape.jit:" in str(raised.value)
    assert len(jitted.entries) == 2
    assert all("x.size(1) % 8 == 0" in entry.guards for entry in jitted.entries)
    assert jitted.entries[0].graphs[0].library_calls == []


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (["y.size(0) > 1"], "y.size.* is no argument, or no size of one"),
        (["x.size(5) > 1"], "x.size.* is no argument, or no size of one"),
        (["x.size(0) > 3", "x.size(0) < 2"], "cannot all hold"),
        (["x.size(0)"], "is not allowed"),
    ],
)
def test_assumptions_that_cannot_be(texts: list[str], what: str) -> None:
    with pytest.raises(SymshapeError, match=what):
        symshape.jit(lambda x: x * 2, options={"assume": texts})(torch.rand(3, 4))


@pytest.mark.parametrize(
    "name", ["target", "passes", "disable_passes", "debug_dir", "opt_level", "autotune", "cache", "mode", "fullgraph"]
)
def test_options_that_cannot_be(name: str) -> None:
    wrong: dict[str, Any] = {"passes": ["no-such"], "disable_passes": ["no-such"], "target": "no-such"}
    with pytest.raises(OptionError):
        symshape.jit(lambda x: x * 2, options={name: wrong.get(name, -1)})(torch.rand(3, 4))
