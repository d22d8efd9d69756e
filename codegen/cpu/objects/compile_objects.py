"""`compile_objects`: MLIR text of kernels to one object file, through torch-mlir's execution engine."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symshape.codegen.cpu.emit.launch import join
from symshape.codegen.cpu.objects.target import Target, default
from symshape.errors import KernelError
from symshape.machine import instruction_sets as cpu_level
from symshape.machine.process_symbols import openmp_library, require_symbols

PIPELINE = "builtin.module(convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts)"
_ENTRY = re.compile(r"^llvm\.func @(\w+)\(.*\{$", re.MULTILINE)


@dataclass(frozen=True)
class Timings:
    """Seconds spent per stage of one compilation."""

    parse: float
    passes: float
    codegen: float

    @property
    def total(self) -> float:
        return self.parse + self.passes + self.codegen


def compile_objects(
    texts: Sequence[str], opt_level: int = 0, target: Target | None = None, context: Any = None
) -> tuple[bytes, Timings]:
    """The object file with all kernels of a graph, printed for ``target``, and the time of each step. ``context``: an
    MLIR context to work in, by default a new one.

    LLVM's middle-end has nothing to do in this code (`Writer` has done CSE and code motion): level 0 gives machine code
    that is as fast as level 2's in a third of the time. Instruction selection and scheduling run in full.
    """
    from torch_mlir.execution_engine import ExecutionEngine
    from torch_mlir.ir import Context, Location, MLIRError, Module
    from torch_mlir.passmanager import PassManager

    source = join(list(texts))
    entry = _ENTRY.search(source)
    if entry is None:
        raise KernelError("there is no kernel to compile", next_step="give the text of one kernel or more")
    marks = [time.perf_counter()]
    try:
        with context or Context(), Location.unknown():
            module = Module.parse(source)
            _restrict(module, (target or default()).level)
            marks.append(time.perf_counter())
            passes = PassManager.parse(PIPELINE)
            passes.enable_verifier(False)  # the parser has verified our text; it takes as long as the conversions
            passes.run(module.operation)
            marks.append(time.perf_counter())
            libraries = [openmp_library()]
            engine = ExecutionEngine(module, opt_level=opt_level, shared_libs=libraries, enable_object_dump=True)
            linked = bool(engine.raw_lookup(entry[1]))
    except (MLIRError, RuntimeError) as error:
        hint = "symshape-translate --to=cpu prints the text that MLIR and LLVM refuse"
        raise KernelError(f"a CPU kernel does not compile: {error}", where=entry[1], next_step=hint) from error
    with tempfile.TemporaryDirectory(prefix="symshape-") as folder:
        path = Path(folder, "kernels.o")
        engine.dump_to_object_file(str(path))
        data = path.read_bytes() if path.exists() else b""
    marks.append(time.perf_counter())
    if not data:
        hint = f"look whether {tempfile.gettempdir()} can be written to and has room"
        raise KernelError("LLVM gave no object file", where=entry[1], next_step=hint)
    if not linked:
        require_symbols(data)
        hint = "LLVM has written the reason to stderr; symshape-translate --to=cpu prints the kernels"
        raise KernelError("LLVM does not link the kernels of a graph", where=entry[1], next_step=hint)
    return data, Timings(*(after - before for before, after in zip(marks, marks[1:])))


def _restrict(module: Any, level: str) -> None:
    """Restricts LLVM to the instructions of a level, by attributes of each function; the engine would use all of this
    machine's. What the engine itself adds to the object (wrappers) is never called."""
    if level == cpu_level.NATIVE:
        return
    from torch_mlir.ir import Attribute, StringAttr

    name, features = cpu_level.processor(level)
    listed = ", ".join(f'"{feature}"' for feature in features.split(","))
    for operation in module.body.operations:
        if operation.operation.name == "llvm.func" and len(operation.regions[0].blocks):
            operation.attributes["target_cpu"] = StringAttr.get(name)
            operation.attributes["target_features"] = Attribute.parse(f"#llvm.target_features<[{listed}]>")
