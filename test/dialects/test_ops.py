"""The ops as Python classes: constructors, accessors, effects in the verifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch_mlir import ir
from torch_mlir.dialects import func

from symshape import dialects
from symshape.dialects.accessors import kernel_attributes
from symshape.passes.framework.diagnostics import collect_diagnostics


@pytest.fixture
def body() -> Iterator[Any]:
    """An empty function of an index, a ``tensor<?x4xf32>`` and an i1; ops are built into it."""
    with dialects.load(ir.Context()), ir.Location.unknown():
        module = ir.Module.create()
        types = [ir.Type.parse(text) for text in ("index", "tensor<?x4xf32>", "i1")]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", (types, []))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            yield function
            func.ReturnOp([])
        assert dialects.verify(module), module


def test_load_is_idempotent_in_many_contexts() -> None:
    contexts = [ir.Context() for _ in range(3)]
    for ctx in (*contexts, *contexts):
        assert dialects.load(ctx) is ctx
        module = ir.Module.parse('func.func @f(%c: i1) {\n"symshape.assume"(%c) : (i1) -> ()\nreturn\n}', ctx)
        (op, _) = module.body.operations[0].regions[0].blocks[0].operations
        assert isinstance(op, dialects.AssumeOp)


def test_symbols(body: Any) -> None:
    symbol = dialects.SymbolOp("s0", 2, 9, 1, -1, "x.size(0)", "arg1.size(0)")
    assert (symbol.symbol_name, symbol.min.value, symbol.max.value) == ("s0", 2, 9)
    assert symbol.name == "symshape.symbol"  # the op's own name, not the field
    assert dialects.parse_binding(symbol.binding.value) == (1, "size", 0)
    n, x, _ = body.arguments
    bind = dialects.BindOp(x, [symbol, n, n, n, n])
    assert bind.rank == 2
    assert list(bind.sizes) == [symbol.result, n]
    assert list(bind.strides) == [n, n]
    assert bind.offset == n


def test_optional_attributes(body: Any) -> None:
    n, x, _ = body.arguments
    identity = ir.AffineMap.get_identity(2)
    whole = dialects.ViewOp(identity, x, [n, n], x.type)
    assert whole.domain is None
    inside = ir.IntegerSet.get(2, 0, [ir.AffineExpr.get_dim(0) - 1, ir.AffineExpr.get_dim(1)], [False, True])
    part = dialects.ViewOp(identity, x, [n, n], x.type, domain=inside)
    constraints, equalities = dialects.set_constraints(part.domain)
    assert [str(expr) for expr in constraints.results] == ["d0 - 1", "d1"]
    assert equalities == [False, True]


def test_calls(body: Any) -> None:
    n, x, _ = body.arguments
    call = dialects.CallOp("aten.topk.default", "($0, $1)", [x, n], [x.type, n.type], result_indices=[0, 2])
    assert (call.target, call.arguments, call.result_indices) == ("aten.topk.default", "($0, $1)", [0, 2])
    assert dialects.CallOp("aten.neg.default", "($0)", [x], [x.type]).result_indices is None


def test_conditions_and_kernels(body: Any) -> None:
    n, _, condition = body.arguments
    dialects.AssumeOp(condition)
    dialects.ExpectTrueOp(condition, "must hold")
    dialects.GuardOp(condition, reason="the tile divides s0")
    for name, attribute in kernel_attributes("pointwise", num_inputs=1, num_outputs=0).items():
        body.attributes[name] = attribute
    space = dialects.SpaceOp(["parallel"], [n])
    assert list(space.sizes) == [n]
    check = dialects.CheckIndexOp("out of range", n, n)
    assert check.result.type == n.type
    check.operation.erase()  # its place is the body of a linalg.generic


def test_a_wrong_op_is_reported_not_raised() -> None:
    ctx = dialects.load(ir.Context())
    space = '"symshape.space"(%n) {iterators = ["parallel", "parallel"]} : (index) -> ()'
    text = f"func.func @f(%n: index) {{\n{space}\nreturn\n}}"
    with collect_diagnostics(ctx) as reported, pytest.raises(ir.MLIRError):
        ir.Module.parse(text, ctx)
    assert [str(d) for d in reported] == ["-:2:1: error: 'symshape.space' op has 2 iterators, but 1 sizes"]
