"""``symshape reduce``: reads IR that fails and writes smaller IR that still fails. Works like mlir-reduce."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symshape.errors import OptionError
from symshape.stage_header import headed_stage, with_header
from symshape.tools.command_line import Once, forbid, given, new_parser
from symshape.tools.terminal import CLEAR, LINE, is_live

if TYPE_CHECKING:
    from torch_mlir import ir

    from symshape.tools.reduce.failing_checks import Observe
    from symshape.tools.reduce.reducer import Reduction, State
    from symshape.tools.reduce.trial_process import Trial

_ONE: dict[str, Any] = {"action": Once}
_FLAGS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("input", {}, "file of IR that fails, in any stage"),
    (
        "-o",
        {"dest": "output", "metavar": "FILE", **_ONE},
        "output file (default: INPUT with .reduced before its suffix)",
    ),
    (
        "--match",
        {"metavar": "REGEX", "default": "", **_ONE},
        "what the error says; default: the line that says what is wrong, loosely",
    ),
    ("--pass-pipeline", {"metavar": "TEXT", **_ONE}, "the check: these passes raise, in this process"),
    (
        "--passes",
        {"metavar": "TEXT", **_ONE},
        'of --wrong: passes where a compile has them, at the end of stage linalg (options={"passes": [...]})',
    ),
    ("--to-stage", {"metavar": "STAGE", **_ONE}, "the compiler's own passes up to this stage, after --pass-pipeline"),
    (
        "--from-stage",
        {"metavar": "STAGE", **_ONE},
        "the stage of the input (default: as its first line says, else imported)",
    ),
    ("--load-pass", {"metavar": "FILE.py", "action": "append", "default": []}, "register the passes of a file"),
    (
        "--wrong",
        {"action": "store_true"},
        "the check: compiled, it computes other numbers than PyTorch's calls, or ends the process",
    ),
    ("--tolerance", {"metavar": "FACTOR", "type": float, "default": 1.0, **_ONE}, "of --wrong: times the tolerances"),
    (
        "--time-limit",
        {"metavar": "SECONDS", "type": float, "default": float("inf"), **_ONE},
        "write the best until then",
    ),
    (
        "--timeout",
        {"metavar": "SECONDS", "type": float, **_ONE},
        "for one run of the command; running longer is a failure",
    ),
)
_EPILOG = """The check is a command after --, which is run on a file ({} stands for it, else it comes last) and fails
with an exit status, or passes that are run in this process, which is faster. Interrupted, it writes the best so far."""


def main(argv: Sequence[str]) -> int:
    """Runs the command. Exit status 0. OptionError for inconsistent arguments, and for an input that does not fail."""
    own, command = _split(argv)
    parser = new_parser("symshape reduce", __doc__, _EPILOG)
    for name, options, help_ in _FLAGS:
        parser.add_argument(name, help=help_, **options)
    args = parser.parse_args(own)
    _check_arguments(args, parser, command)
    file = Path(args.input)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the input cannot be read: {error}", next_step="it is a file of MLIR text") from None
    output = Path(args.output) if args.output else file.with_name(f"{file.stem}.reduced{file.suffix}")
    _reduce(text, output, args, command)
    return 0


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    words = list(argv)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _check_arguments(args: argparse.Namespace, parser: argparse.ArgumentParser, command: Sequence[str]) -> None:
    passes = args.pass_pipeline is not None or args.to_stage is not None
    if bool(command) == (passes or args.wrong):
        raise OptionError(
            "give one check",
            next_step="a command after --, or --pass-pipeline, --to-stage, or --wrong with or without them",
        )
    for flag, needs, why in (
        ("--from-stage", args.to_stage or args.wrong, "--to-stage or --wrong"),
        ("--passes", args.wrong and not args.to_stage, "--wrong, or with --to-stage"),
        ("--timeout", command, "a command"),
        ("--load-pass", passes or args.wrong, "passes"),
        ("--tolerance", args.wrong, "--wrong"),
        ("--match", not args.wrong, "another check than --wrong"),
    ):
        if not needs:
            forbid(given(args, parser, [flag]), f"without {why}", "leave it out")


def _reduce(text: str, output: Path, args: argparse.Namespace, command: Sequence[str]) -> None:
    from torch_mlir import ir

    from symshape.dialects import load
    from symshape.ir_text import parse_module
    from symshape.passes.framework.diagnostics import collect_diagnostics
    from symshape.tools.reduce.edits import copied, operations_in
    from symshape.tools.reduce.failing_checks import SameFailure
    from symshape.tools.reduce.reducer import Reduction

    stage = args.from_stage or headed_stage(text)
    with load(ir.Context()) as ctx, ir.Location.unknown(), contextlib.ExitStack() as stack:
        module = parse_module(text, ctx, "the input")
        with collect_diagnostics(ctx):
            check = SameFailure(_observe(args, command, stage, stack), copied(module), args.match)
        before, writer = len(operations_in(module)), _Writer(output, stage)
        with writer, _Display(before) as display:
            reduction = Reduction(module, check, args.time_limit, display.show, writer.keep)
            _until_terminated(reduction)
            writer.keep(reduction.module, now=True)
    left = len(operations_in(reduction.module))
    end = "" if reduction.finished else ", not finished"
    print(f"{output}: {left} of {before} operations, {reduction.tries} tries, {reduction.seconds:.0f} s{end}")


def _until_terminated(reduction: Reduction) -> None:
    """Runs the reduction. SIGTERM stops it as KeyboardInterrupt does, so that the best result so far is written."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        reduction.run()
    finally:
        signal.signal(signal.SIGTERM, before)


def _observe(
    args: argparse.Namespace, command: Sequence[str], stage: str | None, stack: contextlib.ExitStack
) -> Observe:
    from torch_mlir import ir

    from symshape.passes.framework import registry
    from symshape.passes.framework.manager import check_steps
    from symshape.passes.framework.pipeline_text import parse_pipeline
    from symshape.passes.stages import passes_between
    from symshape.tools.reduce.failing_checks import Command, Raises

    if command:
        return Command(command, bool(args.match), args.timeout, stage)
    own = [args.pass_pipeline] if args.pass_pipeline else []
    elements = [*own, *(passes_between(stage or "imported", args.to_stage) if args.to_stage else [])]
    for file in args.load_pass:
        registry.load_pass_file(file)
    steps = [step for element in elements for step in parse_pipeline(element)]
    with ir.Context() as ctx:
        check_steps([*steps, *parse_pipeline(args.passes or "")], ctx)  # an unknown pass must not count as a failure
    if args.wrong:
        from symshape.tools.reduce.trial_process import TrialProcess

        return stack.enter_context(TrialProcess(_trial(args, own, elements, stage or "imported")))
    return Raises(steps)


def _trial(args: argparse.Namespace, own: Sequence[str], elements: Sequence[str], stage: str) -> Trial:
    """What to compile for ``--wrong``. ``--pass-pipeline`` runs first. With ``--to-stage`` the passes up to that stage
    and code generation follow; without it, the rest of the compiler from the input's stage on."""
    from symshape.passes.stages import STAGES, stages_after
    from symshape.tools.reduce.trial_process import Trial

    files = tuple(args.load_pass)
    if args.to_stage:
        return Trial(tuple(elements), files, args.tolerance, list(STAGES)[-1])
    if args.passes and "linalg" not in stages_after(stage):
        raise OptionError(
            f"--passes are run at the end of stage linalg, and the input is in stage {stage}",
            next_step="give them as --pass-pipeline",
        )
    return Trial(tuple(own), files, args.tolerance, stage, {"passes": [args.passes] if args.passes else []})


class _Writer:
    """Writes the smallest module to a file, at most once a second and at the end; the file is replaced atomically."""

    def __init__(self, output: Path, stage: str | None) -> None:
        self.output, self.stage, self.written = output, stage, 0.0
        self.latest: ir.Module | None = None

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self.latest is not None:
            self._write(self.latest)

    def keep(self, module: ir.Module, *, now: bool = False) -> None:
        self.latest = module
        if now or time.monotonic() - self.written > 1:
            self._write(module)

    def _write(self, module: ir.Module) -> None:
        from symshape.ir_text import text_of
        from symshape.tools.reduce.simplification import located

        draft = self.output.with_name(f"{self.output.name}.{os.getpid()}.part")
        text = text_of(module, locations=bool(located(module))).rstrip("\n") + "\n"
        draft.write_text(with_header(self.stage, text) if self.stage else text, encoding="utf-8")
        draft.replace(self.output)
        self.written, self.latest = time.monotonic(), None


class _Display:
    """A progress line on stderr if it is a terminal; else nothing."""

    def __init__(self, before: int) -> None:
        self.before, self.live = before, is_live(sys.stderr) and LINE.acquire(blocking=False)

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            print(CLEAR, end="", file=sys.stderr, flush=True)
            LINE.release()

    def show(self, state: State) -> None:
        if self.live:
            counts = f"{state.operations}/{self.before} operations  {state.tries} tries  {state.seconds:.0f} s"
            line = f"reduce: {counts}  {state.doing}"[: shutil.get_terminal_size().columns - 1]
            print(f"{CLEAR}{line}", end="", file=sys.stderr, flush=True)
