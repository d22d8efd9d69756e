"""Stages that are taken from files: the option ``stage``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch_mlir import ir

from symshape.dialects.types import DTYPES
from symshape.errors import CompileError, OptionError
from symshape.ir_text import parse_module, read_text, stage_of
from symshape.options import Options
from symshape.signature import Signature, difference, read_signature
from symshape.tools.report import GraphReport, StageFile


def replaced(module: ir.Module, stage: str, file: str, constants: Sequence[Any], noted: list[StageFile]) -> ir.Module:
    """The module of a file, where it is for the graph that ``module`` is; else ``module``. ``noted`` takes which.

    OptionError for a file that is no valid IR of this stage.
    """
    text, name = read_text(file)
    try:
        found = parse_module(text, module.context, name)
        told = stage_of(text, found, name)
        with module.context, ir.Location.unknown(module.context):
            differs = difference(found, module, name)
            signature = read_signature(found, name)
    except CompileError as error:
        what = f"stage {stage} cannot be taken from {file}: {error.what}"
        raise OptionError(what, where=error.where, next_step=error.next_step) from error
    if _is_other(told, stage):
        raise OptionError(
            f"{file} is IR of stage {told}, not of {stage}", next_step=f'options={{"stage": {{"{told}": ...}}}}'
        )
    differs = differs or _of_constants(signature, constants)
    noted.append(StageFile(stage, file, differs))
    return module if differs else found


def _is_other(told: str, stage: str) -> bool:
    """IR of library calls alone is that of each of the first stages; kernels without variants are in either stage."""
    alike = ({"imported", "shaped", "linalg"}, {"kernels", "planned"})
    return told != stage and not (told in ("imported", "kernels") and any({told, stage} <= group for group in alike))


def _of_constants(signature: Signature, constants: Sequence[Any]) -> str:
    """Why the constants of a graph are not those that a signature names; "" where they are."""
    for position, type_ in signature.constants:
        own = tensor_type_text(constants[position]) if position < len(constants) else "none"
        if own != type_:
            return f"constant {position} is {type_} in the file, and {own} in the graph"
    return ""


def tensor_type_text(constant: Any) -> str:
    """MLIR's text for the type of a tensor; the Python type of anything else."""
    if not isinstance(constant, torch.Tensor):
        return type(constant).__name__
    sizes = "".join(f"{size}x" for size in constant.size())
    return f"tensor<{sizes}{DTYPES.get(str(constant.dtype).removeprefix('torch.'), 'none')}>"


def require_fit(options: Options, reports: Iterable[GraphReport]) -> None:
    """OptionError for a file of a stage that is for none of the graphs that a function was traced to."""
    files = [file for report in reports for file in report.stage_files]
    for stage, name in options.stage:
        own = [one for one in files if (one.stage, one.file) == (stage, name)]
        if own and all(one.difference for one in own):
            raise OptionError(
                f"stage {stage} from {name} fits no graph: " + "\n  ".join(one.difference for one in own),
                next_step="record the graph anew (SYMSHAPE_RECORD), and edit that; of a function with graph breaks, "
                "compile the part that the file is for by itself",
            )
