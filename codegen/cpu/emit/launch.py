"""The entry of a kernel: the context on the stack, and the helper that runs the body on one thread or on OpenMP's.

Context words: body, units, threads to use, chunks, workspace and first unit of a split reduction (of a scatter a flag
instead), then the kernel's arguments.
"""

from __future__ import annotations

import re

from symshape.analysis.loops import LoopKernel
from symshape.codegen.cpu.emit.writer import Writer

HEADER, SPLITS_WORD, WORKSPACE_WORD, FIRST_WORD, FLAG_WORD = 6, 3, 4, 5, 3
_GRAIN = 65536  # cheap vector-lane operations that are worth a second thread
_SHARED = re.compile(r"^// shared (\S+)\n(.*?)^// end\n", re.MULTILINE | re.DOTALL)

RUNTIME = f"""\
llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func @omp_get_max_threads() -> i32
llvm.func @omp_get_num_threads() -> i32
llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_in_parallel() -> i32
llvm.func internal @ss_region(%context: !llvm.ptr) attributes {{passthrough = ["noinline"]}} {{
  %one = arith.constant 1 : i64
  %body = llvm.load %context : !llvm.ptr -> !llvm.ptr
  %units_at = llvm.getelementptr %context[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %units = llvm.load %units_at : !llvm.ptr -> i64
  %wanted_at = llvm.getelementptr %context[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %wanted = llvm.load %wanted_at : !llvm.ptr -> i64
  %team32 = llvm.call @omp_get_num_threads() : () -> i32
  %team = arith.extsi %team32 : i32 to i64
  %threads = arith.minsi %team, %wanted : i64
  %id32 = llvm.call @omp_get_thread_num() : () -> i32
  %id = arith.extsi %id32 : i32 to i64
  %least = arith.divui %units, %threads : i64
  %more = arith.remui %units, %threads : i64
  %extra = arith.minsi %id, %more : i64
  %all = arith.muli %id, %least : i64
  %begin = arith.addi %all, %extra : i64
  %gets = arith.cmpi slt, %id, %more : i64
  %plus = arith.extui %gets : i1 to i64
  %length = arith.addi %least, %plus : i64
  %end = arith.addi %begin, %length : i64
  %runs = arith.cmpi slt, %id, %threads : i64
  scf.if %runs {{
    llvm.call %body(%context, %begin, %end) : !llvm.ptr, (!llvm.ptr, i64, i64) -> ()
  }}
  llvm.return
}}
llvm.func internal @ss_launch(%context: !llvm.ptr, %body: !llvm.ptr, %units: i64, %work: i64)
    attributes {{passthrough = ["noinline"]}} {{
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %one32 = arith.constant 1 : i32
  %zero32 = arith.constant 0 : i32
  %grain = arith.constant {_GRAIN} : i64
  %parts = arith.divui %work, %grain : i64
  %share = arith.minsi %parts, %units : i64
  %large = arith.cmpi sgt, %share, %one : i64
  %threads = scf.if %large -> (i64) {{
    %inside = llvm.call @omp_in_parallel() : () -> i32
    %free = arith.cmpi eq, %inside, %zero32 : i32
    %max = llvm.call @omp_get_max_threads() : () -> i32
    %team = arith.select %free, %max, %one32 : i32
    %wide = arith.extsi %team : i32 to i64
    %least = arith.minsi %wide, %share : i64
    scf.yield %least : i64
  }} else {{
    scf.yield %one : i64
  }}
  %parallel = arith.cmpi sgt, %threads, %one : i64
  scf.if %parallel {{
    llvm.store %body, %context : !llvm.ptr, !llvm.ptr
    %units_at = llvm.getelementptr %context[1] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %units, %units_at : i64, !llvm.ptr
    %wanted_at = llvm.getelementptr %context[2] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %threads, %wanted_at : i64, !llvm.ptr
    %region = llvm.mlir.addressof @ss_region : !llvm.ptr
    llvm.call @GOMP_parallel(%region, %context, %zero32, %zero32) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  }} else {{
    llvm.call %body(%context, %zero, %units) : !llvm.ptr, (!llvm.ptr, i64, i64) -> ()
  }}
  llvm.return
}}
"""


def arguments(kernel: LoopKernel) -> int:
    """The number of arguments of the kernel's C function."""
    return len(kernel.args) + len(kernel.symbols) + kernel.has_error_slot("cpu")


def word(index: int, context: str = "%context") -> str:
    """Prints the address of a word of the context."""
    return f"llvm.getelementptr {context}[{index}] : (!llvm.ptr) -> !llvm.ptr, i64"


def words(writer: Writer, count: int) -> list[str]:
    """The kernel's arguments, read from the array in which the caller has packed them."""
    array = writer.argument("%words")
    addresses = [writer.emit(word(index, array)) for index in range(count)]
    return [writer.emit(f"llvm.load {one} {{alignment = 1 : i64}} : !llvm.ptr -> i64") for one in addresses]


def context(writer: Writer, values: list[str]) -> str:
    """Allocates the context on the stack and stores the kernel's arguments."""
    count = writer.pure(f"arith.constant {HEADER + len(values)} : i64")
    name = writer.emit(f"llvm.alloca {count} x i64 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")
    for index, value in enumerate(values):
        _store(writer, name, HEADER + index, value, "i64")
    return name


def workspace(writer: Writer, context: str, splits: str, size: int) -> None:
    """Allocates the workspace of a split reduction."""
    count = writer.pure(f"arith.constant {size} : i64")
    memory = writer.emit(f"llvm.alloca {count} x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")
    _store(writer, context, SPLITS_WORD, splits, "i64")
    _store(writer, context, WORKSPACE_WORD, memory, "!llvm.ptr")


def start(writer: Writer, name: str, context: str, units: str, work: str) -> None:
    """Calls a function on units of work, in parallel; ``work``, in cheap vector operations, decides the number of
    threads."""
    body = writer.emit(f"llvm.mlir.addressof @{name} : !llvm.ptr")
    writer.effect(f"llvm.call @ss_launch({context}, {body}, {units}, {work}) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()")


def first(writer: Writer, name: str, context: str) -> None:
    """Calls a function on its first unit of work, on this thread."""
    begin, end = (writer.pure(f"arith.constant {number} : i64") for number in (0, 1))
    writer.effect(f"llvm.call @{name}({context}, {begin}, {end}) : (!llvm.ptr, i64, i64) -> ()")


def call(writer: Writer, name: str, context: str, number: str) -> list[str]:
    """Calls a stage that follows the chunks, with one number: of all units, or of the unit that it finishes."""
    writer.effect(f"llvm.call @{name}({context}, {number}) : (!llvm.ptr, i64) -> ()")
    return []


def first_unit(writer: Writer, context: str, number: str) -> None:
    """Stores where the units of the next launch start."""
    _store(writer, context, FIRST_WORD, number, "i64")


def clear_flag(writer: Writer, context: str) -> None:
    """Clears the flag that units may set."""
    _store(writer, context, FLAG_WORD, writer.pure("arith.constant 0 : i64"), "i64")


def flag_is_clear(writer: Writer, context: str) -> str:
    """Whether no unit has set the flag since it was cleared (an i1)."""
    address = writer.emit(word(FLAG_WORD, context))
    flag = writer.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> i64")
    return writer.emit(f"arith.cmpi eq, {flag}, {writer.pure('arith.constant 0 : i64')} : i64")


def _store(writer: Writer, context: str, index: int, value: str, type_: str) -> None:
    address = writer.emit(word(index, context))
    writer.effect(f"llvm.store {value}, {address} {{alignment = 8 : i64}} : {type_}, !llvm.ptr")


def function(name: str, parameters: str, writer: Writer, public: bool = False) -> list[str]:
    """Prints a function without results. Never inlined: the engine makes a wrapper for each, which must stay small."""
    linkage = "" if public else "internal "
    head = f'llvm.func {linkage}@{name}({parameters}) attributes {{passthrough = ["noinline"]}} {{'
    return [head, *writer.body(), "  llvm.return", "}"]


def shared(name: str, text: str) -> str:
    """A helper function, marked so that `join` keeps one copy of it."""
    return f"// shared {name}\n{text}\n// end"


def join(texts: list[str]) -> str:
    """One module from the texts of several kernels."""
    helpers: dict[str, str] = {}
    parts = []
    for text in texts:
        helpers.update(_SHARED.findall(text))
        parts.append(_SHARED.sub("", text))
    return "\n".join(["module {", RUNTIME, *helpers.values(), *parts, "}"])
