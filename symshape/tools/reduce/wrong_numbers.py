"""The check for wrong numbers: a compiled program against the same IR, run call by call by PyTorch."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch_mlir import ir

from symshape.artifact.compiled_program import Program
from symshape.codegen.build_kernels import build_kernels
from symshape.codegen.host.host_program import emit_program
from symshape.dialects.accessors import body_of, call_target, main_functions, symbol_name
from symshape.dialects.symbols import SYMBOLS
from symshape.errors import CompileError
from symshape.frontend.bridge.operators import schema_of
from symshape.machine.instruction_sets import NATIVE
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import Step, run_pipeline
from symshape.run_text import RequiredOfSizes
from symshape.runtime.load_kernels import load_kernels
from symshape.runtime.program import Run, load_program, resolve_target
from symshape.tools.reduce import interpreter
from symshape.tools.reduce.comparison import differ
from symshape.tools.reduce.failing_checks import NOT_COMPARED, Failure
from symshape.tools.reduce.inputs import Draw, constants_of, inputs_of
from symshape.tools.reduce.scalars import hint_of

# The first that PyTorch's calls take: an index is not out of range, a square root is of no negative number.
DRAWS = (Draw(8), Draw(2), Draw(1))
_SEED = 0


@dataclass(frozen=True)
class Expected:
    """What PyTorch computes, the inputs that it was computed from, and those as they were left where calls write."""

    inputs: list[Any]
    constants: list[Any]
    result: Any
    left: list[Any]


@dataclass(frozen=True)
class WrongNumbers:
    """Passes after which a program computes other numbers. ``factor``: of the tolerances that types have."""

    steps: Sequence[Step]
    factor: float = 1.0

    def __call__(self, module: ir.Module) -> Failure | None:
        try:
            found = self.difference(module)
        except Exception as error:  # of PyTorch, a pass or the program: not the failure that is looked for
            return Failure(NOT_COMPARED, f"{type(error).__name__}: {error}")
        return Failure("wrong numbers", f"wrong numbers\n{found}") if found else None

    def difference(self, module: ir.Module) -> str:
        """What differs; "" for nothing. The module is changed. Raises what PyTorch, a pass or the program raises."""
        cases = [self._expected(module, DRAWS)]
        if not all(map(_is_finite, pytree.tree_leaves(cases[0].result))):
            cases.append(self._expected(module, [Draw(draw.integers, positive=True) for draw in DRAWS]))
        program = compiled(module, self.steps, cases[0].constants)
        for expected in cases:
            inputs = copy.deepcopy(expected.inputs) if expected.left else expected.inputs
            torch.manual_seed(_SEED)
            result = program(list(inputs))
            found = differ((result, inputs if expected.left else []), (expected.result, expected.left), self.factor)
            if found:
                return found
        return ""

    def _expected(self, module: ir.Module, draws: Sequence[Draw]) -> Expected:
        main, errors = interpreter.main_of(module), []
        writes = any(_writes(op) for function in main_functions(module) for op in body_of(function))
        for draw in draws:
            inputs, constants = inputs_of(main, draw), constants_of(main, draw)
            left = copy.deepcopy(inputs) if writes else inputs
            torch.manual_seed(_SEED)
            try:
                with torch.no_grad():
                    result = interpreter.run(module, left, constants)
            except CompileError:
                raise  # other numbers do not help
            except (IndexError, RuntimeError) as error:
                errors.append(error)
                continue
            return Expected(inputs, constants, result, left if writes else [])
        raise errors[0]


def _writes(op: ir.Operation) -> bool:
    """Whether an operation is a call that changes an operand: ``aten.copy_.default``."""
    if op.name != "host.call":
        return False
    target = call_target(op)
    schema = schema_of(resolve_target(target))
    return bool(schema.is_mutable) if schema is not None else target.rpartition(".")[0].endswith("_")


def _is_finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(value.isfinite().all())


def compiled(module: ir.Module, steps: Sequence[Step], constants: Sequence[Any]) -> Run:
    """The program that the passes make of a module, for CPU tensors. What they leave must be calls and kernels."""
    hints = {symbol_name(op): hint_of(op) for f in main_functions(module) for op in body_of(f) if op.name in SYMBOLS}
    given = {"target": "cpu", "cpu": NATIVE, "kind": "forward"}
    context = PassContext(options=given, require=RequiredOfSizes(hints, []))
    with tempfile.TemporaryDirectory(prefix="symshape-reduce-") as folder, ir.Location.unknown(module.context):
        run_pipeline(module, steps, context, debug_dir=Path(folder))
        kernels = build_kernels(module, "cpu", 2)
        text = emit_program(main_functions(module), pointers=True, checking=kernels.checking, device="cpu")
    program = Program(text.source, text.targets, text.checks, list(constants), "cpu", True, text.user_lines)
    return load_program(program, load_kernels(kernels.image))
