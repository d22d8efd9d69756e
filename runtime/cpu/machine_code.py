"""LLVM IR as text to machine code, through llvmlite, and the common declarations of such modules. Needs no MLIR."""

from __future__ import annotations

from typing import Final

import llvmlite.binding as llvm

from symshape.machine.instruction_sets import processor
from symshape.machine.process_symbols import initialize

# ``word``: an argument. Arguments are int64s, one behind the other, at any address.
WORD: Final = """
define internal i64 @word(ptr %words, i64 %index) alwaysinline {
  %at = getelementptr i64, ptr %words, i64 %index
  %value = load i64, ptr %at, align 1
  ret i64 %value
}
"""

# ``share``: the first chunk of a thread, and the one behind its last. Argument 3 is the number of chunks.
SHARE: Final = f"""
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_num_threads()
declare i32 @omp_get_thread_num()
{WORD}
define internal void @share(ptr %words, ptr %first, ptr %end) alwaysinline {{
  %chunks = call i64 @word(ptr %words, i64 3)
  %team32 = call i32 @omp_get_num_threads()
  %team = zext i32 %team32 to i64
  %id32 = call i32 @omp_get_thread_num()
  %id = zext i32 %id32 to i64
  %next = add i64 %id, 1
  %scaled = mul i64 %chunks, %id
  %begin = udiv i64 %scaled, %team
  %scaled_next = mul i64 %chunks, %next
  %finish = udiv i64 %scaled_next, %team
  store i64 %begin, ptr %first
  store i64 %finish, ptr %end
  ret void
}}
"""


def object_code(text: str, level: str, *, as_written: bool = False) -> bytes:
    """The object file of a module for an instruction-set level. ``as_written``: LLVM only promotes variables to
    registers; else it optimises the code. OptionError for a level that this processor does not have."""
    initialize()
    name, features = processor(level)
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=name, features=features, opt=2 if as_written else 3, jit=True)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
    if as_written:
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    else:
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        builder.getModulePassManager().run(module, builder)
    made: bytes = machine.emit_object(module)
    return made
