"""The check for wrong numbers: compares compiled code with the interpreter, which runs the same IR with PyTorch."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch_mlir import ir

from symshape.compiler import Start, Watch, build, load
from symshape.dialects.accessors import body_of, call_target, main_functions, symbol_name
from symshape.dialects.symbols import SYMBOLS
from symshape.errors import CompileError
from symshape.fallbacks import Attempt
from symshape.frontend.bridge.operators import schema_of
from symshape.ir_text import main_function
from symshape.options import Options
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import run_pipeline
from symshape.passes.framework.pipeline_text import Step
from symshape.passes.stages import STAGES
from symshape.random_tensors import Draw
from symshape.run_text import RequiredOfSizes
from symshape.runtime.program import resolve_target
from symshape.tools.reduce import interpreter
from symshape.tools.reduce.comparison import differ
from symshape.tools.reduce.failing_checks import NOT_COMPARED, Failure
from symshape.tools.reduce.inputs import constants_of, inputs_of
from symshape.tools.reduce.scalars import hint_of

# Distributions of random inputs, tried in order until PyTorch accepts the inputs (indices in range, no invalid values).
DRAWS = (Draw(8), Draw(2), Draw(1))
_SEED, _KIND = 0, "forward"


@dataclass(frozen=True)
class Expected:
    """PyTorch's result, its inputs, and, if calls write to inputs, the inputs after the run (``left``)."""

    inputs: list[Any]
    constants: list[Any]
    result: Any
    left: list[Any]


@dataclass(frozen=True)
class WrongNumbers:
    """The check whether a compiled program computes wrong numbers. ``steps`` run first, then the compiler from
    ``stage`` on with ``options``. ``factor`` scales the tolerances of element types."""

    steps: Sequence[Step] = ()
    factor: float = 1.0
    stage: str = list(STAGES)[-1]  # after the last stage only code generation is left
    options: Options = Options()

    def __call__(self, module: ir.Module) -> Failure | None:
        try:
            found = self.difference(module)
        except Exception as error:  # raised by PyTorch, a pass or the program: another failure than wrong numbers
            return Failure(NOT_COMPARED, f"{type(error).__name__}: {error}")
        return Failure("wrong numbers", f"wrong numbers\n{found}") if found else None

    def difference(self, module: ir.Module) -> str:
        """A description of the first difference; "" if there is none. Changes the module. Exceptions propagate."""
        cases = [self._expected(module, DRAWS)]
        if not all(map(_is_finite, pytree.tree_leaves(cases[0].result))):
            cases.append(self._expected(module, [Draw(draw.integers, positive=True) for draw in DRAWS]))
        program = self._compiled(module, cases[0].constants)
        for expected in cases:
            inputs = copy.deepcopy(expected.inputs) if expected.left else expected.inputs
            torch.manual_seed(_SEED)
            result = program(list(inputs))
            found = differ((result, inputs if expected.left else []), (expected.result, expected.left), self.factor)
            if found:
                return found
        return ""

    def _expected(self, module: ir.Module, draws: Sequence[Draw]) -> Expected:
        main, errors = main_function(module, "the module").operation, []
        writes = any(_writes(op) for function in main_functions(module) for op in body_of(function))
        for draw in draws:
            inputs, constants = inputs_of(main, draw), constants_of(main, draw)
            left = copy.deepcopy(inputs) if writes else inputs
            torch.manual_seed(_SEED)
            try:
                with torch.no_grad():
                    result = interpreter.run(module, left, constants)
            except CompileError:
                raise  # the IR is at fault, so that other inputs do not help
            except (IndexError, RuntimeError) as error:
                errors.append(error)
                continue
            return Expected(inputs, constants, result, left if writes else [])
        raise errors[0]

    def _compiled(self, module: ir.Module, constants: Sequence[Any]) -> Any:
        """The compiled program for CPU tensors. After ``steps`` and the passes only calls and kernels may be left."""
        symbols = [op for f in main_functions(module) for op in body_of(f) if op.name in SYMBOLS]
        require = RequiredOfSizes({symbol_name(op): hint_of(op) for op in symbols}, [])
        given = {"target": "cpu", "cpu": self.options.cpu, "kind": _KIND}
        with tempfile.TemporaryDirectory(prefix="symshape-reduce-") as folder:
            options = replace(self.options, debug_dir=folder)
            with ir.Location.unknown(module.context):
                run_pipeline(module, self.steps, PassContext(options=given, require=require), debug_dir=Path(folder))
            start = Start(module, list(constants), _KIND, "cpu", "cpu", require, self.stage)
            return load(build(start, options, Attempt(), Watch()), options, require).run


def _writes(op: ir.Operation) -> bool:
    """Whether an operation is a call that changes an operand: ``aten.copy_.default``."""
    if op.name != "host.call":
        return False
    target = call_target(op)
    schema = schema_of(resolve_target(target))
    return bool(schema.is_mutable) if schema is not None else target.rpartition(".")[0].endswith("_")


def _is_finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(value.isfinite().all())
