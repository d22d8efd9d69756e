"""Traces a function with symbolic sizes, lowers it, and compares what the lowered module computes with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aten_interpreter
import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch_mlir import ir

from symshape.dialects import load, verify
from symshape.frontend.importer.import_fx import import_graph
from symshape.passes.framework.base import PassContext
from symshape.passes.lowering.lower_aten import LowerAten

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass
class Lowered:
    """A module after lower-aten. ``kept``: the library calls that are left, with their reasons."""

    module: ir.Module
    constants: list[Any]
    kept: dict[str, str]
    graph: torch.fx.GraphModule

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return aten_interpreter.run(self.module, list(inputs), self.constants)


def lower(function: Callable[..., Any], inputs: Sequence[Any]) -> Lowered:
    """Traces and lowers a function of flat tensors. Sizes that are equal by chance are different symbols."""
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False))
    return lower_graph(make_fx(function, tracing_mode="symbolic")(*(mode.from_tensor(x) for x in inputs)))


def lower_graph(gm: torch.fx.GraphModule) -> Lowered:
    """Imports a graph whose nodes carry fake values, and lowers it."""
    values = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    fake_mode = detect_fake_mode(values)
    imported = import_graph(gm, load(ir.Context()), fake_mode.shape_env if fake_mode else None)
    report = PassContext()
    with imported.module.context:
        LowerAten().run(imported.module, report)
    assert verify(imported.module)
    kept = {one.target: one.reason for one in report.remarks.get("lower-aten", ())}
    return Lowered(imported.module, imported.constants, kept, gm)


def check(function: Callable[..., Any], *input_sets: Sequence[Any], native: bool = True) -> Lowered:
    """Traces with the first inputs and compares with eager at all of them; ``native``: no library call may be left."""
    lowered = lower(function, input_sets[0])
    assert not native or not lowered.kept, lowered.kept
    for inputs in input_sets:
        expected = function(*inputs)
        actual = lowered.run(inputs)
        expected = expected if isinstance(expected, (tuple, list)) else (expected,)
        for i, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
            compare(mine, theirs, f"output {i}")
    return lowered


def compare(actual: Any, expected: Any, label: str) -> None:
    if not isinstance(expected, torch.Tensor):
        assert actual == expected, label
        return
    tolerance = TOLERANCE.get(expected.dtype, 0)
    torch.testing.assert_close(
        actual,
        expected,
        rtol=tolerance,
        atol=tolerance * 0.1,
        equal_nan=True,
        check_stride=False,
        msg=lambda text: f"{label}: {_differences(actual, expected, text)}",
    )


def _differences(actual: torch.Tensor, expected: torch.Tensor, text: str) -> str:
    """The first few values that differ."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return text
    wrong = ~torch.isclose(actual.double(), expected.double(), rtol=TOLERANCE.get(expected.dtype, 0), equal_nan=True)
    rows = [f"{i}: {actual[tuple(i)].item()} is not {expected[tuple(i)].item()}" for i in wrong.nonzero().tolist()[:6]]
    return f"{int(wrong.sum())} of {actual.numel()} differ: " + "; ".join(rows)
