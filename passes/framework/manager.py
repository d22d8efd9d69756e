"""Runs pipelines of our passes and MLIR's, verifies, and dumps the IR before a pass that fails."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from symshape.activity import note
from symshape.dialects import verify
from symshape.errors import CompileError, KernelFailure, OptionError, StepFailure, SymshapeError, joined_steps
from symshape.passes.framework import registry
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.framework.diagnostics import Diagnostic, collect_diagnostics
from symshape.passes.framework.pipeline_text import (
    Step,
    keep_copies,
    parse_pipeline,
    print_pipeline,
    step_name,
)
from symshape.passes.framework.separate_destinations import separate_destinations

IRHook = Callable[[str, ir.Module], None]  # (step name, module)


@dataclass
class Hooks:
    """Instrumentation. ``before``/``after`` get the module around each step; ``timings`` collects (step name,
    seconds)."""

    before: IRHook | None = None
    after: IRHook | None = None
    timings: list[tuple[str, float]] = field(default_factory=list)


class PassFailure(StepFailure):
    """A pass failed or produced invalid IR. ``diagnostics``: of MLIR; ``instead``: the pipeline element that replaces
    the pass (``Pass.instead``). ``dump``: file with the IR before it, if that was kept."""

    def __init__(
        self, step: Step, reason: str, diagnostics: Sequence[Diagnostic], dump: Path | None, command: str
    ) -> None:
        self.diagnostics = tuple(diagnostics)
        self.instead = step.instead if isinstance(step, Pass) else ""
        super().__init__(
            f"pass '{step_name(step)}' failed: {reason}",
            step=step_name(step),
            command=command,
            operations=[name for diagnostic in diagnostics for name in diagnostic.operations],
            where=str(diagnostics[0].location) if diagnostics else "",
            next_step=f"the IR before this pass is in {dump}; replay it with\n    {command}" if dump else "",
        )


class UnverifiedFailure(StepFailure):
    """A pass failed, or the final IR is invalid, and the pass at fault is unknown because IR was not verified in
    between."""


def run_pipeline(
    module: ir.Module,
    steps: str | Iterable[Step],
    context: PassContext | None = None,
    *,
    disable: Collection[str] = (),
    hooks: Hooks | None = None,
    debug_dir: Path | None = None,
    allow_unregistered: bool = False,
    verify_each: bool = True,
) -> None:
    """Runs ``steps`` (pipeline text, or a list of ``Pass`` objects and MLIR's pipeline elements) on ``module`` in
    place.

    Without ``verify_each`` the caller verifies the module, and a failure is an UnverifiedFailure. Steps whose
    name is in ``disable`` are left out. Op handles taken before this call must not be used after it.
    """
    context = context or PassContext()
    hooks = hooks or Hooks()
    steps = parse_pipeline(steps) if isinstance(steps, str) else list(steps)
    target = context.options.get("target")
    steps = [step for step in steps if step_name(step) not in disable and _is_for(step, target)]
    check_steps(steps, module.context)
    for step in steps:
        name = step_name(step)
        if hooks.before:
            hooks.before(name, module)
        note(name)
        start = time.perf_counter()
        if verify_each:
            _run_step(module, step, context, debug_dir, allow_unregistered)
        else:
            _run_unverified(module, step, context)
        hooks.timings.append((name, time.perf_counter() - start))
        if hooks.after:
            hooks.after(name, module)


def _is_for(step: Step, target: str | None) -> bool:
    return isinstance(step, str) or target is None or not step.targets or target in step.targets


def check_steps(steps: Iterable[Step], ctx: ir.Context) -> None:
    """Raises OptionError for a name or option that neither we nor MLIR know, before anything has run."""
    for step in steps:
        if isinstance(step, str):
            try:
                with ctx:
                    PassManager.parse(f"builtin.module({step})")
            except ValueError as error:
                ours = ", ".join(registry.names())
                hint = f"`symshape-opt --list-passes` lists ours ({ours}); MLIR's own are those of mlir-opt"
                raise OptionError(f"no such pass or option: '{step}' ({_first_line(error)})", next_step=hint) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _changed(module: ir.Module, step: Step, context: PassContext) -> list[Any]:
    """Runs a step; the operations that it may have changed."""
    if isinstance(step, Pass):
        step.count(context)
        changed = step.run(module, context)
        if changed is False:
            return []
        if isinstance(changed, list):
            return changed
    else:
        manager = PassManager.parse(f"builtin.module({keep_copies(step)})")
        manager.enable_verifier(False)  # `verify` does it
        manager.run(module.operation)
        separate_destinations(module)
    context.scratch.clear()
    return [module]


def _run_unverified(module: ir.Module, step: Step, context: PassContext) -> None:
    with collect_diagnostics(module.context) as diagnostics, module.context, ir.Location.unknown(module.context):
        try:
            _changed(module, step, context)
        except Exception as error:
            name = step_name(step)
            raise UnverifiedFailure(f"pass '{name}' failed: {_reason(error, diagnostics)}", step=name) from error


def _run_step(
    module: ir.Module, step: Step, context: PassContext, debug_dir: Path | None, allow_unregistered: bool
) -> None:
    before = module.operation.clone()  # cheap; it is printed only if the step fails
    with collect_diagnostics(module.context) as diagnostics, module.context, ir.Location.unknown(module.context):
        try:
            if not all(verify(op, allow_unregistered=allow_unregistered) for op in _changed(module, step, context)):
                raise CompileError("it produced invalid IR")  # the diagnostics say what
        except Exception as error:
            reason = _reason(error, diagnostics)
            dump, command = _dump(before, step, debug_dir or Path("symshape-debug"))
            if isinstance(error, KernelFailure):  # a kernel that cannot be read is not the pass's fault
                raise KernelFailure(
                    error.what,
                    step=error.step,
                    operations=error.operations,
                    command=command,
                    where=error.where,
                    next_step=joined_steps(error.next_step, f"the IR is in {dump}; replay it with\n    {command}"),
                ) from error
            raise PassFailure(step, reason, diagnostics, dump, command) from error


def _reason(error: Exception, diagnostics: Sequence[Diagnostic]) -> str:
    if diagnostics:
        return "\n  ".join(d.message for d in diagnostics)
    if isinstance(error, SymshapeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _dump(before: ir.OpView, step: Step, folder: Path) -> tuple[Path | None, str]:
    """Writes the IR and returns its path with the one command that runs the failing pass on it again."""
    file = write_ir(before, step_name(step), folder)
    command = ["symshape-opt", str(file), f"--pass-pipeline={print_pipeline([step])}"]
    if isinstance(step, Pass) and (plugin := registry.file_of(type(step))):
        command.append(f"--load-pass={plugin}")
    return file, shlex.join(command)


def write_ir(op: Any, name: str, folder: Path) -> Path:
    """Writes an op to a new file of ``folder`` that is called after what failed on it."""
    stem = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    folder = writable(folder)
    file = folder / f"{stem}-{sum(1 for _ in folder.glob(f'{stem}-*.mlir'))}.mlir"
    file.write_text(op.operation.get_asm(enable_debug_info=True, assume_verified=True) + "\n")
    return file


def writable(folder: Path) -> Path:
    """The folder, which is created; a temporary one if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return Path(tempfile.mkdtemp(prefix="symshape-debug-"))
    return folder
