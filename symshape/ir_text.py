"""Parses and verifies IR given as text, and finds out its stage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects import verify
from symshape.dialects.accessors import body_of, is_layer, is_subgraph, kernel_functions, main_functions
from symshape.dialects.short_form import read_short
from symshape.errors import CompileError, OptionError
from symshape.passes.framework.diagnostics import collect_diagnostics
from symshape.passes.framework.separate_destinations import separate_destinations
from symshape.passes.stages import STAGES
from symshape.stage_header import headed_stage

_SAY: Final = f"give stage=..., or begin the text with `// stage: NAME`; stages: {', '.join(STAGES)}"


def text_of(module: ir.Module, *, locations: bool = True) -> str:
    """The text of a module, valid or not, from which it can be parsed again: with locations, which programs use in
    errors."""
    text: str = module.operation.get_asm(enable_debug_info=locations, assume_verified=True)
    return text


def read_text(source: str | Path) -> tuple[str, str]:
    """The text of a file, or the text that was given itself, and what errors call it. OptionError for no such file."""
    if not isinstance(source, (str, os.PathLike)):
        raise OptionError(f"no IR can be read from {source!r}", next_step="give a file with IR, or IR as text")
    if isinstance(source, str) and ("\n" in source or "func.func" in source):
        return source, "the text"
    try:
        return Path(source).read_text(encoding="utf-8"), str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"{str(source)!r} cannot be read: {error}", next_step="give a file with IR, or IR as text"
        ) from error


def parse_module(text: str, context: ir.Context, name: str) -> ir.Module:
    """A verified module in which each launch writes to memory of its own; our ops may be in generic or in short form.
    CompileError with what is invalid, and the line of ``name``."""
    long = read_short(text, name)
    with context, ir.Location.unknown(context), collect_diagnostics(context) as errors:
        try:
            module = ir.Module.parse(long)
            valid = verify(module)
        except ir.MLIRError:
            valid = False
    if not valid:
        where = f"{name}, line {errors[0].location.line}" if errors and errors[0].location.file == "-" else name
        told = "\n  ".join(error.message for error in errors)
        raise CompileError(f"invalid IR: {told}", where=where, next_step="symshape-opt checks a file")
    with context:
        separate_destinations(module)
    return module


def main_function(module: ir.Module, name: str) -> Any:
    """The main function, from which the program is generated. CompileError if there is none, or several."""
    mains = [function for function in main_functions(module) if not is_subgraph(function) and not is_layer(function)]
    if len(mains) != 1:
        what = f"a program is made of one main function, not of {len(mains)}"
        raise CompileError(what, where=name, next_step="a recorded file (SYMSHAPE_RECORD) shows one")
    return mains[0]


def stage_of(text: str, module: ir.Module, name: str) -> str:
    """The stage of IR: from its header, else from its operations.

    IR with library calls alone counts as ``imported``: the passes up to ``linalg`` change nothing in IR that they have
    processed before. CompileError if it cannot be determined.
    """
    said = headed_stage(text)
    if said is not None:
        if said not in STAGES:
            raise OptionError(f"the header names no stage: {said!r}", where=name, next_step=_SAY)
        return said
    shown = set(_shown(module))
    has_kernels = bool(kernel_functions(module))
    if has_kernels and "linalg" in shown:
        what = "the stage is ambiguous: there are kernels, and compute operations outside of kernels"
        raise CompileError(what, where=name, next_step=_SAY)
    if has_kernels:
        return "planned" if "planned" in shown else "kernels"
    return "linalg" if "linalg" in shown else "imported"


def _shown(module: ir.Module) -> Iterator[str]:
    """Stages that single operations are of."""
    for function in main_functions(module):
        if is_layer(function):
            yield "linalg"
        for op in body_of(function):
            if op.name in ("linalg.generic", "host.layer", "symshape.scatter", "tensor.splat"):
                yield "linalg"
    for kernel in kernel_functions(module):
        if any(op.name == "symshape.variant" for op in body_of(kernel)):
            yield "planned"
