"""The check for wrong numbers: a compiled program against the same IR, run call by call by PyTorch."""

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
from symshape.passes.framework.manager import Step, run_pipeline
from symshape.passes.stages import STAGES
from symshape.random_tensors import Draw
from symshape.run_text import RequiredOfSizes
from symshape.runtime.program import resolve_target
from symshape.tools.reduce import interpreter
from symshape.tools.reduce.comparison import differ
from symshape.tools.reduce.failing_checks import NOT_COMPARED, Failure
from symshape.tools.reduce.inputs import constants_of, inputs_of
from symshape.tools.reduce.scalars import hint_of

# The first that PyTorch's calls take: an index is not out of range, a square root is of no negative number.
DRAWS = (Draw(8), Draw(2), Draw(1))
_SEED, _KIND = 0, "forward"


@dataclass(frozen=True)
class Expected:
    """What PyTorch computes, the inputs that it was computed from, and those as they were left where calls write."""

    inputs: list[Any]
    constants: list[Any]
    result: Any
    left: list[Any]


@dataclass(frozen=True)
class WrongNumbers:
    """A compile after which a program computes other numbers: ``steps`` run first, then what the compiler does from
    ``stage`` on with these ``options``. ``factor``: of the tolerances that types have."""

    steps: Sequence[Step] = ()
    factor: float = 1.0
    stage: str = list(STAGES)[-1]  # after the last there are no passes, only code generation
    options: Options = Options()

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
                raise  # other numbers do not help
            except (IndexError, RuntimeError) as error:
                errors.append(error)
                continue
            return Expected(inputs, constants, result, left if writes else [])
        raise errors[0]

    def _compiled(self, module: ir.Module, constants: Sequence[Any]) -> Any:
        """The program for CPU tensors. What the passes leave must be calls and kernels."""
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
