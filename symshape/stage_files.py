"""The option ``stage``: stages taken from files."""

from __future__ import annotations

from collections.abc import Iterable

from torch_mlir import ir

from symshape.errors import CompileError, OptionError
from symshape.ir_text import parse_module, read_text, stage_of
from symshape.options import Options
from symshape.signature import difference
from symshape.tools.report import GraphReport, StageFile


def with_file(module: ir.Module, stage: str, options: Options, report: GraphReport) -> ir.Module:
    """The module of the user's file for this stage, if it has the signature of ``module``; else ``module``. ``report``
    notes which.

    OptionError for a file that is no valid IR of this stage.
    """
    file = dict(options.stage).get(stage)
    if file is None:
        return module
    text, name = read_text(file)
    try:
        found = parse_module(text, module.context, name)
        told = stage_of(text, found, name)
        with module.context, ir.Location.unknown(module.context):
            differs = difference(found, module, name)
    except CompileError as error:
        what = f"stage {stage} cannot be taken from {file}: {error.what}"
        raise OptionError(what, where=error.where, next_step=error.next_step) from error
    if _is_other(told, stage):
        raise OptionError(
            f"{file} is IR of stage {told}, not of {stage}", next_step=f'options={{"stage": {{"{told}": ...}}}}'
        )
    report.stage_files.append(StageFile(stage, file, differs))
    return module if differs else found


def _is_other(told: str, stage: str) -> bool:
    """IR of library calls alone is that of each of the first stages; kernels without variants are in either stage."""
    alike = ({"imported", "shaped", "linalg"}, {"kernels", "planned"})
    return told != stage and not (told in ("imported", "kernels") and any({told, stage} <= group for group in alike))


def require_fit(options: Options, reports: Iterable[GraphReport]) -> None:
    """OptionError for a file of a stage that is for none of the graphs that a function was traced to, or that no graph
    came to."""
    files = [file for report in reports for file in report.stage_files]
    for stage, name in options.stage:
        own = [one for one in files if (one.stage, one.file) == (stage, name)]
        if all(one.difference for one in own):
            why = "\n  ".join(one.difference for one in own) or "none was compiled from there"
            raise OptionError(
                f"stage {stage} from {name} fits no graph: {why}",
                next_step="record the graph anew (SYMSHAPE_RECORD), and edit that; of a function with graph breaks, "
                "compile the part that the file is for by itself",
            )
