"""``symshape-opt``: reads MLIR, runs passes (symshape's and MLIR's), writes MLIR. Works like mlir-opt.

Never imports torch, and imports MLIR only after parsing the arguments, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symshape.errors import OptionError, StepFailure, SymshapeError
from symshape.tools.command_line import Once, exit_status, forbid, given, new_parser, read_input

if TYPE_CHECKING:
    from torch_mlir import ir

    from symshape.passes.framework.diagnostics import Diagnostic
    from symshape.passes.framework.manager import Hooks
    from symshape.passes.framework.pipeline_text import Step

_SEPARATOR = re.compile(r"^// -----.*$", re.MULTILINE)

_LIST: dict[str, Any] = {"action": "append", "default": []}
_SWITCH: dict[str, Any] = {"action": "store_true"}
_ONE: dict[str, Any] = {"action": Once}
_FLAGS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("input", {"nargs": "?", "default": "-"}, "input file, - for standard input (the default)"),
    ("-o", {"dest": "output", "default": "-", "metavar": "FILE", **_ONE}, "output file (default: standard output)"),
    ("--pass-pipeline", {"metavar": "TEXT", **_ONE}, "e.g. 'builtin.module(lower-aten,canonicalize,func.func(cse))'"),
    ("--to-stage", {"metavar": "STAGE", **_ONE}, "run the compiler's own passes up to this stage"),
    ("--from-stage", {"metavar": "STAGE", **_ONE}, "with --to-stage: the stage of the input (default: imported)"),
    (
        "--target",
        {"choices": ("cpu", "triton"), **_ONE},
        "leave out the passes that are for other targets (default: run all)",
    ),
    ("--load-pass", {"metavar": "FILE.py", **_LIST}, "register the passes of a file"),
    ("--disable-pass", {"metavar": "NAME", **_LIST}, "leave a pass out"),
    ("--list-passes", _SWITCH, "list our passes and stop (MLIR's own are those of mlir-opt)"),
    ("--list-pipeline", _SWITCH, "list all steps of a compile in order with their files, passes among them, and stop"),
    ("--split-input-file", _SWITCH, "treat the parts between '// -----' lines separately"),
    ("--verify-diagnostics", _SWITCH, "check what is reported against '// expected-error' comments"),
    ("--allow-unregistered-dialect", _SWITCH, "accept ops of unknown dialects"),
    ("--mlir-print-ir-before-all", _SWITCH, "print the module before each pass, on stderr"),
    ("--mlir-print-ir-after-all", _SWITCH, "print the module after each pass, on stderr"),
    ("--print-after", {"metavar": "NAME", **_LIST}, "print it after this pass or stage, on stderr"),
    ("--mlir-print-debuginfo", _SWITCH, "print source locations"),
    ("--mlir-print-op-generic", _SWITCH, "print all ops in generic form"),
    ("--pretty", _SWITCH, "print our ops in short form, which is read like the generic one"),
    ("--print-constraints", _SWITCH, "print the table of constraints instead of the module"),
    ("--mlir-pass-statistics", _SWITCH, "print what each pass counted, on stderr"),
    ("--mlir-timing", _SWITCH, "print the wall time of each pass, on stderr"),
    ("--debug-dir", {"metavar": "DIR", "default": "symshape-debug", **_ONE}, "where the IR before a failing pass goes"),
)
_OF_PASSES = (
    "--target",
    "--disable-pass",
    "--print-after",
    "--mlir-print-ir-before-all",
    "--mlir-print-ir-after-all",
    "--mlir-pass-statistics",
    "--mlir-timing",
    "--debug-dir",
)
_LISTS = ("--list-passes", "--list-pipeline")
_OF_LISTS = (*_LISTS, "--load-pass")


@dataclass(frozen=True)
class Source:
    """One part of the input. ``text`` is padded with empty lines so that line numbers match the file."""

    file: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """The result of one part: its printed IR (None after an error) and all diagnostics."""

    text: str | None
    diagnostics: Sequence[Diagnostic]
    failure: StepFailure | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool and returns its exit status: 0, or 1 after any error. After an error no output is written."""
    args, rest = _parser().parse_known_args(argv)
    words = [args.input, args.output, args.debug_dir, *args.load_pass]
    return exit_status("symshape-opt", words, lambda: _run(args, rest))


def _parser() -> argparse.ArgumentParser:
    from symshape.passes.framework.registry import TABLE

    epilog = f"A pass is a flag of its own: --canonicalize, --cse, --NAME='option=value ...'. Ours: {', '.join(TABLE)}."
    parser = new_parser("symshape-opt", __doc__, epilog)
    for name, options, help_ in _FLAGS:
        parser.add_argument(name, help=help_, **options)
    return parser


def _run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    from symshape.passes.framework import registry

    for file in args.load_pass:
        registry.load_pass_file(file)
    if args.list_passes or args.list_pipeline:
        others = [name for name, _, _ in _FLAGS if name not in _OF_LISTS]
        listing = next(iter(given(args, _parser(), _LISTS)))
        forbid([*given(args, _parser(), others), *rest], f"beside {listing}", "leave it out")
        return _list_pipeline() if args.list_pipeline else _list_passes()
    steps, outputs, failed = read_steps(args, rest), [], False
    _check_printing(args, steps)
    timings: list[tuple[str, float]] = []
    for source in _read(args):
        outcome = _process(source, steps, timings, args)
        if args.verify_diagnostics:
            failed |= _complain(source, outcome)
        else:
            failed |= outcome.text is None
            _report(source, outcome)
        outputs.append(outcome.text or "")
    if args.mlir_timing:
        _print_timings(timings)
    if failed:
        return 1
    _write(args.output, "// -----\n".join(outputs))
    return 0


def read_steps(args: argparse.Namespace, rest: Sequence[str]) -> list[Step]:
    """The passes to run, in order: from ``--pass-pipeline``, from ``--to-stage``, or from flags named like passes.
    OptionError if more than one of these is used."""
    from symshape.passes.framework.pipeline_text import parse_pipeline, parse_step
    from symshape.passes.stages import passes_between

    ways = [args.pass_pipeline is not None, args.to_stage is not None, bool(rest)]
    if sum(ways) > 1:
        raise OptionError("give passes in one way only", next_step="use --pass-pipeline, --to-stage or flags of passes")
    if args.from_stage is not None and args.to_stage is None:
        raise OptionError("--from-stage does nothing without --to-stage", next_step="say to which stage")
    if args.pass_pipeline is not None:
        steps = parse_pipeline(args.pass_pipeline)
        if not steps:
            raise OptionError("the pipeline has no passes", next_step="leave --pass-pipeline out to run none")
        return steps
    if args.to_stage is not None:
        start = args.from_stage or "imported"
        elements = passes_between(start, args.to_stage)
        if not elements:
            raise OptionError(f"no passes lead from stage '{start}' to itself", next_step="leave --to-stage out")
        return [parse_step(text) for text in elements]
    return [parse_step(_flag_as_element(flag)) for flag in rest]


def _check_printing(args: argparse.Namespace, steps: Sequence[Step]) -> None:
    """OptionError for flags without effect: pass flags if no pass runs, or that name a pass that does not run."""
    from symshape.passes.framework.pipeline_text import step_name
    from symshape.passes.stages import last_pass

    if not steps:
        forbid(given(args, _parser(), _OF_PASSES), "without passes", "name passes, or leave it out")
    run = [step_name(step) for step in steps]
    named = [("--disable-pass", name, name) for name in args.disable_pass]
    left = set(run) - set(args.disable_pass)
    named += [("--print-after", name, last_pass(name) or name) for name in args.print_after]
    for flag, text, name in named:
        if name not in (left if flag == "--print-after" else run):
            raise OptionError(f"{flag}={text} does nothing: no such pass is run", next_step=f"run: {', '.join(run)}")
    if args.pretty and args.mlir_print_op_generic:
        raise OptionError("--pretty and --mlir-print-op-generic ask for two forms", next_step="leave one of them out")
    dumps = args.print_after or args.mlir_print_ir_before_all or args.mlir_print_ir_after_all
    if args.print_constraints and not dumps:
        shape = given(args, _parser(), ("--mlir-print-debuginfo", "--mlir-print-op-generic", "--pretty"))
        forbid(shape, "with --print-constraints, which prints no module", "leave one of them out")


def _flag_as_element(flag: str) -> str:
    """A flag such as ``--cse`` or ``--NAME=options`` as an element of a pipeline text."""
    name, equals, options = flag.removeprefix("--").partition("=")
    if not flag.startswith("--") or not name:
        raise OptionError(f"unknown argument '{flag}'", next_step="see symshape-opt --help")
    return f"{name}{{{options}}}" if equals else name


def _read(args: argparse.Namespace) -> list[Source]:
    """The input, split at ``// -----`` lines if ``--split-input-file`` is given."""
    text = read_input(args.input)
    file = "<stdin>" if args.input == "-" else args.input
    if not args.split_input_file:
        return [Source(file, text)]
    starts = [0, *(m.end() + 1 for m in _SEPARATOR.finditer(text))]
    ends = [*(m.start() for m in _SEPARATOR.finditer(text)), len(text)]
    return [Source(file, "\n" * text.count("\n", 0, start) + text[start:end]) for start, end in zip(starts, ends)]


def _process(
    source: Source, steps: Sequence[Step], timings: list[tuple[str, float]], args: argparse.Namespace
) -> Outcome:
    from torch_mlir import ir

    from symshape.dialects import load, verify
    from symshape.dialects.short_form import read_short
    from symshape.passes.constraints.constraint_table import read_entries, table_text
    from symshape.passes.framework.base import PassContext
    from symshape.passes.framework.diagnostics import collect_diagnostics
    from symshape.passes.framework.manager import PassFailure, run_pipeline

    foreign = args.allow_unregistered_dialect
    text = read_short(source.text, source.file)
    with load(ir.Context()) as ctx, collect_diagnostics(ctx, only_errors=False) as diagnostics:
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError:
            return Outcome(None, diagnostics)
        if not verify(module, allow_unregistered=foreign):
            return Outcome(None, diagnostics)
        context = PassContext(options={} if args.target is None else {"target": args.target})
        try:
            run_pipeline(
                module,
                steps,
                context,
                disable=args.disable_pass,
                hooks=_hooks(args, timings),
                debug_dir=Path(args.debug_dir),
                allow_unregistered=foreign,
            )
        except StepFailure as failure:
            found = failure.diagnostics if isinstance(failure, PassFailure) else ()
            return Outcome(None, [*diagnostics, *found], failure)
        if args.mlir_pass_statistics:
            _print_statistics(context.statistics)
        text = table_text(read_entries(module, context)) if args.print_constraints else _print(module, args)
        return Outcome(text, diagnostics)


def _print(module: ir.Module, args: argparse.Namespace) -> str:
    from symshape.dialects.short_form import print_short

    text: str = module.operation.get_asm(
        enable_debug_info=args.mlir_print_debuginfo,
        print_generic_op_form=args.mlir_print_op_generic,
        assume_verified=True,
    )
    return (print_short(text) if args.pretty else text).rstrip("\n") + "\n"


def _hooks(args: argparse.Namespace, timings: list[tuple[str, float]]) -> Hooks:
    from symshape.passes.framework.manager import Hooks
    from symshape.passes.stages import last_pass

    after = {last_pass(name) or name for name in args.print_after}

    def dump(when: str) -> Any:
        def show(name: str, module: ir.Module) -> None:
            if when == "Before" or args.mlir_print_ir_after_all or name in after:
                print(f"// -----// IR Dump {when} {name} //----- //\n{_print(module, args)}", file=sys.stderr)

        return show

    shows_after = args.mlir_print_ir_after_all or after
    before = dump("Before") if args.mlir_print_ir_before_all else None
    return Hooks(before=before, after=dump("After") if shows_after else None, timings=timings)


def _report(source: Source, outcome: Outcome) -> None:
    """Prints diagnostics with their source lines, then the pass failure with its next step."""
    lines = source.text.split("\n")
    for diagnostic in outcome.diagnostics:
        for d in (diagnostic, *diagnostic.notes):
            own = d.location.file == "-"  # MLIR's file name for text parsed from a string
            location = f"{source.file}:{d.location.line}:{d.location.column}" if own else str(d.location)
            print(f"{location}: {d.severity}: {d.message}", file=sys.stderr)
            if own and 0 < d.location.line <= len(lines):
                print(f"{lines[d.location.line - 1]}\n{' ' * (d.location.column - 1)}^", file=sys.stderr)
    if outcome.failure is not None:
        cause = outcome.failure.__cause__
        if cause is not None and not isinstance(cause, (SymshapeError, *_told_by_diagnostics())):
            traceback.print_exception(cause, file=sys.stderr)
        text = str(outcome.failure).replace("\n  at: -:", f"\n  at: {source.file}:")
        print(f"symshape-opt: error: {text}", file=sys.stderr)


def _told_by_diagnostics() -> tuple[type[Exception], ...]:
    """MLIR's error for an invalid module, whose diagnostics have been printed."""
    from torch_mlir import ir

    return (ir.MLIRError,)


def _complain(source: Source, outcome: Outcome) -> bool:
    """Prints mismatches of ``--verify-diagnostics``; returns whether there are any."""
    from symshape.tools.expectations import check

    complaints = check(source.file, source.text, outcome.diagnostics)
    print("".join(f"{line}\n" for line in complaints), end="", file=sys.stderr)
    return bool(complaints)


def _list_passes() -> int:
    from symshape.passes.framework import registry

    for name in registry.names():
        cls = registry.lookup(name)
        print(f"  --{name:<28} {cls.description() if cls else ''}")
    return 0


def _list_pipeline() -> int:
    from symshape.pipeline import pipeline_text

    print(pipeline_text(), end="")
    return 0


def _print_statistics(counted: Mapping[str, Mapping[str, int]]) -> None:
    """Prints statistics as mlir-opt does: ``(S)``, value, name, meaning."""
    from symshape.passes.framework import registry

    print("  ... Pass statistics report ...", file=sys.stderr)
    for name, amounts in counted.items():
        cls = registry.lookup(name)
        print(name, file=sys.stderr)
        for statistic, amount in amounts.items():
            meaning = cls.statistics[statistic] if cls else ""
            print(f"  (S) {amount:5d} {statistic.replace('_', '-'):<12} - {meaning}", file=sys.stderr)


def _print_timings(timings: Sequence[tuple[str, float]]) -> None:
    total = sum(seconds for _, seconds in timings) or 1e-9
    print("  wall time (s)          pass", file=sys.stderr)
    for name, seconds in (*timings, ("total", total)):
        print(f"  {seconds:9.4f} ({seconds / total:6.1%})  {name}", file=sys.stderr)


def _write(output: str, text: str) -> None:
    if output == "-":
        sys.stdout.write(text)
    else:
        Path(output).write_text(text)


if __name__ == "__main__":
    sys.exit(main())
