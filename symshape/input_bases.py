"""Bases of inputs that share memory: their sizes are checked when a graph is called.

If inputs are views of one memory and one of them is written to, AOTAutograd replaces them by a base. It traces the base
with the size that the memory had at the first call, without a guard. Generated code for a base of another size would
access memory out of bounds. So the sizes are compared at each call, and for others the graph runs operator by operator,
as eager mode would.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import base_arguments, takes_boxed_arguments
from symshape.frontend.importer.traced_symbols import collect_symbols, layout_of
from symshape.prover.numbers.expr import Expr

log = logging.getLogger("symshape.frames")


class OtherBase(Exception):
    """Inputs are views of a memory of another size than the one that the graph was traced with."""


def check_bases(graph: torch.fx.GraphModule, env: Any, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Wraps ``run`` of a compiled graph: raises OtherBase, before anything is done, for bases of other layouts."""
    fakes = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    wanted = {i: layout for i in base_arguments(graph) if (layout := layout_of(fakes[i])) is not None}
    symbols = [(row.name, _reader(row.binding)) for row in collect_symbols(fakes, env)]

    def checked(args: list[Any]) -> Any:
        values = {name: read(args) for name, read in symbols}
        for i, (sizes, strides, offset) in wanted.items():
            actual = (*args[i].size(), *args[i].stride(), args[i].storage_offset())
            if actual != tuple(_value(expr, values) for expr in (*sizes, *strides, offset)):
                raise OtherBase
        return run(args)

    takes_boxed_arguments(checked)
    return checked


def _reader(binding: str) -> Callable[[list[Any]], int]:
    """A function of the arguments that reads the binding of a symbol, such as ``arg0.size(1)``."""
    text = re.sub(r"\barg(\d+)", r"args[\1]", binding.replace(".offset", ".storage_offset()"))
    made: Callable[[list[Any]], int] = eval(f"lambda args: {text}")
    return made


def _value(expr: Expr, values: dict[str, int]) -> int:
    known = expr.as_int()
    return expr.evaluate(values) if known is None else known


def or_in_eager_mode(run: Callable[..., Any], eager: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, compiled from the Dynamo graph that ``eager`` runs; for inputs with other bases ``eager``."""

    def call(*args: Any) -> Any:
        try:
            return run(*args)
        except OtherBase:
            log.info("inputs share memory of another size than at the first call: the graph runs in eager mode")
        return eager(*args)

    return call
