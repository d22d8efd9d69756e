"""``symshape replay``: compiles recorded graphs (``symshape.recording``) again from their IR, without the model."""

from __future__ import annotations

import difflib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.compiler import Built, Watch, attempts, build, load
from symshape.errors import CompileError, OptionError
from symshape.live_line import compiling
from symshape.passes.stages import STAGES
from symshape.recording import ABOUT, Recorded, constants_of, missing_constants, read_recording, recordings_in
from symshape.run_text import ReadyIR, read_ir
from symshape.signature_inputs import random_inputs
from symshape.stage_header import without_header
from symshape.tools.report import Fallback

_SHOWN = 40  # lines shown of a difference
_TIMED = 5  # number of calls timed


@dataclass(frozen=True)
class Actions:
    """What to do after compiling. ``check``: compare the generated code with the recorded one. ``run``: run it on
    random inputs drawn from ``seed``, with the values ``sizes`` ("s0=7") for symbols."""

    check: bool = False
    run: bool = False
    sizes: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Replayed:
    """A recorded graph and the result of compiling it again."""

    recorded: Recorded
    ready: ReadyIR
    built: Built
    fallbacks: tuple[Fallback, ...]


def replay(folder: Path, actions: Actions) -> int:
    """Replays one recording, or all recordings in a folder. Returns exit status 0, or 1 if a graph fails or differs.
    OptionError if there is no recording or a size is malformed."""
    if actions.sizes and not actions.run:
        raise OptionError("--size does nothing without --run", next_step="add --run, or leave it out")
    folders = [folder] if (folder / ABOUT).exists() else recordings_in(folder) if folder.is_dir() else []
    if not folders:
        raise OptionError(f"there is no recording in {folder}", next_step="SYMSHAPE_RECORD=DIR makes some")
    if actions.sizes and len(folders) > 1:
        raise OptionError(f"--size is for one graph, and {folder} has {len(folders)}", next_step="name one of them")
    failed = 0
    for one in folders:
        recorded = read_recording(one)
        print(f"{one.name}: {_about(recorded)}")
        failed += not _replayed(recorded, actions)
    return 1 if failed else 0


def _about(recorded: Recorded) -> str:
    """One line on the recording: graph, target, outcome, and packages whose versions have changed since."""
    about = recorded.about
    other = recorded.other_versions()
    versions = f"; made with another {', '.join(other)}" if other else ""
    return f"{about['kind']} graph, {about.get('target', 'not imported')}, {about['outcome'].splitlines()[0]}{versions}"


def _replayed(recorded: Recorded, actions: Actions) -> bool:
    """Replays one recording and prints what happens; returns whether all requested steps succeeded."""
    try:
        made = compile_recorded(recorded, run=actions.run)
        report = made.built.report
        print(
            f"  compiled: {len(report.kernels)} kernels, {report.launches} launches, {len(report.called)} library calls"
        )
        for one in made.fallbacks:
            print(f"  {one}")
        if actions.check:
            _check(made)
        if actions.run:
            _run(made, actions)
    except OptionError:
        raise
    except Exception as error:  # any failure is a result of the replay
        print(_indented(f"{type(error).__name__}: {error}"))
        return False
    return True


def compile_recorded(recorded: Recorded, *, run: bool = False) -> Replayed:
    """Compiles a graph from its recorded IR of stage ``imported``. ``run`` also reads its constants, which loading it
    needs. CompileError if the recording has no IR."""
    text = recorded.stages.get("imported")
    if text is None:
        raise CompileError(
            f"the recording has no IR: {recorded.about['outcome']}",
            where=str(recorded.folder),
            next_step=f"the traced graph is in {recorded.folder / 'graph.txt'}",
        )
    ready = read_ir(text, str(recorded.folder / "imported.mlir"), "imported")
    about, constants = recorded.about, constants_of(recorded) if run else []

    def once(attempt: Any) -> Built:
        if attempt.as_calls:
            raise CompileError(
                "the graph can only be run as library calls, which needs the model",
                where=str(recorded.folder),
                next_step="run the program that was recorded, with SYMSHAPE_STRICT=1 to see what fails",
            )
        start = ready.start(about["target"], about["device"], about["kind"], constants)
        return build(start, recorded.options, attempt, Watch(keep=True))

    with compiling(recorded.folder.name):
        return Replayed(recorded, ready, *attempts(once, recorded.options))


def differences(made: Replayed) -> Iterator[str]:
    """Unified diffs between the recorded and the new host program and kernels; none if all are equal."""
    recorded, report = made.recorded, made.built.report
    yield from _difference("program.py", recorded.program, report.program_source)
    kernels = {kernel.name: kernel.source for kernel in report.kernels}
    for name in sorted({*kernels, *recorded.kernels}):
        yield from _difference(name, recorded.kernels.get(name, ""), kernels.get(name, ""))


def _difference(name: str, recorded: str, found: str) -> Iterator[str]:
    if recorded == found:
        return
    lines = difflib.unified_diff(recorded.splitlines(), found.splitlines(), f"{name}, recorded", name, lineterm="")
    yield "\n".join(list(lines)[:_SHOWN]) or f"{name}: the ends of its lines"


def _check(made: Replayed) -> None:
    """CompileError with the differences and the first stage that differs, if the code is not the recorded one."""
    if not made.recorded.is_compiled:
        raise CompileError(
            f"there is nothing to compare with: {made.recorded.about['outcome']}",
            where=str(made.recorded.folder),
            next_step="leave out --check: it compares with the stages and the code of a graph that was compiled",
        )
    found = list(differences(made))
    if found:
        versions = made.recorded.other_versions()
        cause = f"; another {', '.join(versions)} than when it was recorded" if versions else ""
        raise CompileError(
            f"it is not what was recorded{cause}\n" + "\n".join(found),
            where=f"stage {stage}" if (stage := _first_other_stage(made)) else "code generation",
            next_step=f"symshape-opt --from-stage and --to-stage run single passes on {made.recorded.folder}/*.mlir",
        )
    print("  the program and the kernels are those that were recorded")


def _first_other_stage(made: Replayed) -> str:
    """The first stage whose IR differs from the recorded one; "" if none does."""
    for stage in STAGES:
        recorded, found = made.recorded.stages.get(stage), made.built.report.stages.get(stage)
        if recorded is not None and found is not None and _plain(recorded) != _plain(found):
            return stage
    return ""


def _plain(text: str) -> str:
    return without_header(text.strip()).rstrip()


def _run(made: Replayed, actions: Actions) -> None:
    """Runs the graph and prints time and result types. CompileError if the recording lacks constants of the graph."""
    missing = list(missing_constants(made.recorded))
    if missing:
        raise CompileError(
            f"it cannot be run: the recording has no {', '.join(missing)}",
            where=str(made.recorded.folder),
            next_step="record the program again with SYMSHAPE_RECORD_DATA=1, which keeps the constants of a graph",
        )
    about, options = made.recorded.about, made.recorded.options
    inputs = random_inputs(made.ready.signature, _sizes(actions.sizes), about["device"], actions.seed)
    start = made.ready.start(about["target"], about["device"], about["kind"])
    run = load(made.built, options, start.require).run
    with torch.no_grad():
        results = run(list(inputs))
        seconds = [_timed(run, inputs, about["device"]) for _ in range(_TIMED)]
    shown = ", ".join(map(_shown, pytree.tree_leaves(list(results))))
    print(f"  ran in {statistics.median(seconds) * 1e3:.3f} ms (median of {_TIMED}), results: {shown or 'none'}")


def _timed(run: Any, inputs: Sequence[Any], device: str) -> float:
    start = time.perf_counter()
    run(list(inputs))
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.size())}"
    return repr(value)


def _sizes(given: Sequence[str]) -> Mapping[str, int]:
    """Parses ``NAME=NUMBER`` arguments of ``--size``. OptionError for other text or a repeated name."""
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        if not name or not number.isdigit():
            raise OptionError(f"--size cannot be {text!r}", next_step="it is NAME=NUMBER: s0=7")
        if name in found:
            raise OptionError(f"--size gives {name} twice", next_step="leave one of them out")
        found[name] = int(number)
    return found


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
