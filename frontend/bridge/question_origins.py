"""Finds the user's line, and the framework's, that a guard comes from.

User code is all code outside of PyTorch and symshape, libraries of models included.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._guards import TracingContext

from symshape.frontend.bridge.source_lines import is_of_torch, lines_of_node_now

_DYNAMO = os.path.join(os.path.dirname(torch.__file__), "_dynamo") + os.sep
_OURS = str(Path(__file__).absolute().parents[2]) + os.sep


@dataclass(frozen=True)
class Line:
    file: str
    number: int

    @property
    def text(self) -> str:
        """The source text of the line; "" if it cannot be read."""
        return linecache.getline(self.file, self.number).strip()

    @property
    def owner(self) -> str:
        """ "torch", "symshape", or "" for the user's."""
        return "torch" if is_of_torch(self.file) else "symshape" if self.file.startswith(_OURS) else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Origin:
    """``user``: the innermost user line that was traced; ``asked``: the framework's line that evaluated the condition,
    if known; ``operator``: the operator that the user line calls, if that evaluated it: ``asked`` is then somewhere in
    its rule, and for C++ code it is the Python line that called it."""

    user: Line | None = None
    asked: Line | None = None
    operator: str = ""

    @property
    def is_by_python(self) -> bool:
        """Whether the user's Python code itself, which Dynamo runs, evaluated the condition, not an operator that it
        calls."""
        by_python = self.asked is None or self.asked.file.startswith(_DYNAMO)
        return self.user is not None and not self.operator and by_python


def users_line(frames: Iterable[Any]) -> Line | None:
    """The innermost of the user's among frames, the outermost first."""
    lines = (Line(frame.filename, int(frame.lineno or 0)) for frame in reversed(list(frames)))
    return next((line for line in lines if not line.owner), None)


def users_line_now() -> Line | None:
    """The innermost line of the user's that is being traced: by Dynamo, or of the node that is traced again."""
    found = users_line(TracingContext.extract_stack() or ())
    if found is not None:
        return found
    lines = (Line(*line) for line in reversed(lines_of_node_now()))
    return next((line for line in lines if not line.owner), None)


def origin_of(sloc: Any) -> Origin:
    """The origin of a guard that is being added, at the location that the environment gives it."""
    frame: Any = getattr(sloc, "framework_loc", None)
    asked = Line(frame.filename, int(frame.lineno or 0)) if hasattr(frame, "filename") else None
    return Origin(users_line_now(), asked, _operator_now())


def _operator_now() -> str:
    """The name of the operator that is being traced; "" if user code evaluates the condition."""
    frame: Any = sys._getframe(1)
    found = ""
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if module == "torch._dynamo.symbolic_convert" or module.partition(".")[0] not in _FRAMEWORK:
            return found
        node = frame.f_locals.get(_NODES.get((module, code.co_name), ""))
        if isinstance(node, torch.fx.Node):
            return _name_of_call(node)
        if (module, code.co_name) == ("torch.autograd.graph", "_engine_run_backward"):
            found = "backward pass"
        elif code.co_name == "__torch_dispatch__" and (op := frame.f_locals.get("func")) is not None:
            found = found if found == "backward pass" else str(getattr(op, "overloadpacket", op)).rpartition(".")[2]
        frame = frame.f_back
    return found


# The variable with the node that is traced, by module and function: Dynamo's own, and those that run a graph again.
_NODES = {("torch._dynamo.utils", "run_node"): "node", ("torch.fx.interpreter", "run_node"): "n"}
_FRAMEWORK = ("torch", "symshape", "contextlib", "functools", "sympy")


def _name_of_call(node: torch.fx.Node) -> str:
    """ "" for arithmetic on sizes alone, which is the user's Python."""
    values = [one.meta.get("example_value", one.meta.get("val")) for one in node.all_input_nodes]
    if getattr(node.target, "__module__", "") in _ARITHMETIC and not any(isinstance(v, torch.Tensor) for v in values):
        return ""
    packet = getattr(node.target, "overloadpacket", node.target)
    name = packet if isinstance(packet, str) else getattr(packet, "__name__", "")
    return str(name)


_ARITHMETIC = ("_operator", "math", "builtins")
