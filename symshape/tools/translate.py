"""``symshape-translate``: prints the code generated for a module: kernels for a target, or the host program.

The input is MLIR in any stage (``--from-stage``, by default ``imported``); the remaining passes of the compiler run on
it first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from symshape.errors import CompileError, OptionError
from symshape.tools.command_line import Once, exit_status, new_parser, read_input


def _kernels(module: Any) -> list[Any]:
    from symshape.analysis.loop_form import finish_loops, read_loops

    return [finish_loops(function, read_loops(function)) for function in _some(_functions(module))]


def _functions(module: Any) -> list[Any]:
    from symshape.dialects.accessors import kernel_functions

    return kernel_functions(module)


def _some(functions: list[Any]) -> list[Any]:
    """The kernels, unchanged. CompileError if there are none, since nothing would be printed."""
    if not functions:
        raise CompileError(
            "there are no kernels in the module",
            next_step="is --from-stage the stage that it is in? "
            "A module of library calls only has a host program: --to=program",
        )
    return functions


def cpu(module: Any, level: str | None = None) -> str:
    """CPU kernels in MLIR's llvm dialect, one C function per kernel. ``level`` is an instruction set of
    ``symshape.machine.instruction_sets``; None means the default of the process."""
    from symshape.codegen.cpu.emit.kernel import emit_cpu
    from symshape.codegen.cpu.objects.target import default, target_of

    target = default() if level is None else target_of(level)
    return "\n".join(emit_cpu(kernel, target) for kernel in _kernels(module))


def triton(module: Any) -> str:
    """Triton source, one function per kernel."""
    from symshape.codegen.triton.kernel import emit_triton
    from symshape.codegen.variants import for_loops, read_variants

    planned = zip(_functions(module), _kernels(module))
    return "\n\n".join(emit_triton(k, for_loops(read_variants(f), k)).source for f, k in planned)


def program(module: Any) -> str:
    """The host program for CPU tensors as Python text. CompileError unless the module has exactly one main function."""
    from symshape.codegen.host.host_program import Callees, emit_program
    from symshape.dialects.accessors import is_subgraph, main_functions

    functions = main_functions(module)
    mains = [op for op in functions if not is_subgraph(op)]
    if len(mains) != 1:
        raise CompileError(f"a program is made of one main function, not of {len(mains)}", next_step="split the module")
    kernels = _kernels(module) if _functions(module) else []
    checking = frozenset(kernel.name for kernel in kernels if kernel.has_error_slot("cpu"))
    return emit_program(functions, Callees(pointers=True, checking=checking)).source


def loops(module: Any) -> str:
    """The loop programs that all targets are printed from, as text."""
    import pprint

    return "\n".join(pprint.pformat(kernel, width=120) for kernel in _kernels(module)) + "\n"


TARGETS: dict[str, Callable[[Any], str]] = {"cpu": cpu, "triton": triton, "program": program, "loops": loops}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool and returns its exit status: 0, or 1 after any error."""
    args = _parser().parse_args(argv)
    return exit_status("symshape-translate", [args.input, args.output], lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    source = translate(read_input(args.input), args.to, args.from_stage, args.cpu)
    if args.output == "-":
        sys.stdout.write(source)
    else:
        Path(args.output).write_text(source)
    return 0


def translate(text: str, to: str, from_stage: str = "imported", level: str | None = None) -> str:
    """The code for target ``to`` (a key of ``TARGETS``) of MLIR text in a stage. ``level``, for "cpu" only, is an
    instruction set (``symshape.machine.instruction_sets``)."""
    from torch_mlir import ir

    from symshape.dialects import load
    from symshape.ir_text import parse_module
    from symshape.passes.framework.manager import run_pipeline
    from symshape.passes.framework.pipeline_text import parse_step
    from symshape.passes.stages import STAGES, passes_between

    if level is not None and to != "cpu":
        raise OptionError("--cpu does nothing without --to=cpu", next_step="leave it out")
    steps = [parse_step(element) for element in passes_between(from_stage, list(STAGES)[-1])]
    with load(ir.Context()) as ctx, ir.Location.unknown():
        module = parse_module(text, ctx, "the input")
        run_pipeline(module, steps)
        return cpu(module, level) if to == "cpu" else TARGETS[to](module)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("symshape-translate", __doc__)
    parser.add_argument("input", nargs="?", default="-", help="input file, - for standard input (the default)")
    out = "output file, - for standard output"
    parser.add_argument("-o", dest="output", default="-", metavar="FILE", action=Once, help=out)
    parser.add_argument("--to", choices=list(TARGETS), required=True, action=Once, help="what to print")
    parser.add_argument(
        "--from-stage", default="imported", metavar="STAGE", action=Once, help="the stage that the input is in"
    )
    parser.add_argument(
        "--cpu", metavar="LEVEL", action=Once, help="of --to=cpu: native, x86-64-v2, x86-64-v3 or x86-64-v4"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
