"""``symshape.run_ir``: compiles IR of any stage from text, and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_mlir import ir

from symshape import dialects
from symshape.artifact.element_types import DTYPES
from symshape.compiler import Compiled, Start, Watch, attempts, build, load, target_of_devices
from symshape.dialects.foreign_tensors import Foreign
from symshape.errors import CompileError, OptionError
from symshape.fallbacks import Attempt, warn_of_fallbacks
from symshape.ir_text import parse_module, read_text, stage_of
from symshape.live_line import compiling
from symshape.options import Options
from symshape.passes.stages import STAGES
from symshape.prover.numbers.condition import Condition
from symshape.signature import Signature, constant_text, read_signature
from symshape.signature_inputs import checked_inputs, has_memory
from symshape.stage_files import require_fit


def run_ir(
    source: str | Path,
    *inputs: Any,
    stage: str | None = None,
    constants: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
) -> Any:
    """The results of the graph whose IR is in ``source`` (a file, or the text itself), compiled from its stage on.

    ``inputs``     the graph's arguments in order; integers that are sizes of tensors among them may be left out. They
                   are checked: number, type, rank, sizes, strides, and the facts that the graph assumes about sizes;
                   integers that it does not read are ignored
    ``stage``      the stage of the IR; by default that of its header (``// stage: linalg``), or of its operations
    ``constants``  the tensor constants of the graph, by position
    ``options``    those of ``compile``

    All results in a tuple, without gradients. ShapeConstraintError (a RuntimeError) for inputs that violate the graph's
    requirements; CompileError (a RuntimeError) for invalid IR, or IR of unknown stage; OptionError for a file that does
    not exist, an unknown stage, or an unknown option. See docs/debugging.md.
    """
    parsed = Options.parse(options)
    text, name = read_text(source)
    ready = read_ir(text, name, stage)
    target, device = _where(ready.signature, inputs, parsed)
    given = checked_inputs(ready.signature, inputs, device)
    _check_constants(ready.signature, constants, device)

    def once(attempt: Attempt) -> Compiled:
        start = ready.start(target, device, constants=constants)
        return load(build(start, parsed, attempt, Watch()), parsed, start.require)

    with compiling(name):
        made, fallbacks = attempts(once, parsed)
    warn_of_fallbacks(fallbacks, made.report.kind)
    require_fit(parsed, [made.report])
    with torch.no_grad():
        return tuple(made.run(given))


@dataclass(frozen=True)
class ReadyIR:
    """IR that was parsed and checked once. It is parsed again for each compile, which changes it."""

    text: str
    name: str
    stage: str
    signature: Signature

    def start(self, target: str, device: str, kind: str = "inference", constants: Sequence[Any] = ()) -> Start:
        """The state that a compile continues from: a module of its own."""
        module = parse_module(self.text, dialects.load(ir.Context()), self.name)
        require = RequiredOfSizes({symbol.name: symbol.hint for symbol in self.signature.symbols}, [])
        return Start(module, list(constants), kind, target, device, require, self.stage)


@dataclass(frozen=True)
class RequiredOfSizes:
    """``require`` of a compile without a tracer: it must hold for the sizes first seen (-1: unknown)."""

    hints: Mapping[str, int]
    made: list[tuple[Condition, str]]

    def __call__(self, condition: Condition, reason: str) -> None:
        known = {name: self.hints[name] for name in condition.symbols if self.hints.get(name, -1) >= 0}
        if len(known) < len(condition.symbols) or not condition.evaluate(known):
            raise CompileError(
                f"a pass requires `{condition}` of an input: {reason}; the IR has {known or 'no sizes first seen'}",
                next_step="correct the hints of the symbols, or disable the pass",
            )
        self.made.append((condition, reason))


def read_ir(text: str, name: str, stage: str | None = None) -> ReadyIR:
    """CompileError for invalid IR, or IR of unknown stage; OptionError for an unknown stage."""
    if stage is not None and stage not in STAGES:
        raise OptionError(f"unknown stage {stage!r}", next_step=f"stages: {', '.join(STAGES)}")
    module = parse_module(text, dialects.load(ir.Context()), name)
    with module.context, ir.Location.unknown(module.context):
        return ReadyIR(text, name, stage or stage_of(text, module, name), read_signature(module, name))


def _where(signature: Signature, inputs: Sequence[Any], options: Options) -> tuple[str, str]:
    """Target and device, by the tensors for which the graph does not specify a device."""
    arguments = [argument for argument in signature.arguments if argument.shape is not None]
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    pairs = enumerate(zip(arguments, tensors))
    own = [(value.device, f"input {i}") for i, (argument, value) in pairs if not argument.bound_device]
    return target_of_devices(own, options)


def _check_constants(signature: Signature, constants: Sequence[Any], device: str) -> None:
    for position, type_ in signature.constants:
        given = _constant_text(constants[position], device) if position < len(constants) else "not given"
        if given != type_:
            wanted = ", ".join(f"{i}: {t}" for i, t in signature.constants)
            raise OptionError(
                f"constant {position} of the graph is {type_}, and here {given}",
                next_step=f"give constants=[...], by position: {wanted}",
            )


def _constant_text(constant: Any, device: str) -> str:
    """A constant as in a signature; the Python type for one that is no readable tensor. ``device``: the program's."""
    if not isinstance(constant, torch.Tensor) or not has_memory(constant):
        return type(constant).__name__
    sizes, strides = ([str(number) for number in numbers] for numbers in (constant.size(), constant.stride()))
    dtype = DTYPES.get(str(constant.dtype).removeprefix("torch."), "none")
    elsewhere, negated = str(constant.device) if str(constant.device) != device else "", constant.is_neg()
    foreign = Foreign(elsewhere, negated) if elsewhere or negated else None
    return constant_text(f"tensor<{''.join(f'{size}x' for size in sizes)}{dtype}>", sizes, strides, foreign)
