"""Our CPU vectoriser against MLIR's own: linalg on tensors, tiled, fused and vectorised by the transform dialect.

    python bench/transform_dialect.py [--rounds 7] [--out bench/results/transform_dialect.json]

Softmax, layer norm and a transpose. MLIR's side is compiled for each size by itself (``dynamic``: once for all),
through the passes of the torch-mlir wheel and LLVM at -O3. Two schedules:

``rows``   the last operation is tiled by rows and the others fused into the loop; a row is one vector
``tiles``  inside of that loop each operation goes over the row in steps of 64 elements, reductions with as many
           accumulators (``tile_reduction_using_for``); vectors are masked where the steps do not divide the row

For a transpose they are tiles of 8 x 8 and of 16 x 16, transposed by shuffles. ``math.exp`` is a call per lane there:
the wheel has no pass that makes a polynomial of it. A second softmax has a polynomial written out, as ours has. Ours is
one kernel for all sizes. Both write to memory that is there, on one thread. A figure is processor time, the median over
rounds. Each result is compared with eager mode.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

import symshape
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.runtime.cpu.load_objects import Library
from symshape.tools.measure import samples, write_result
from symshape.tools.terminal import table

FULL, ROW = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d0)>"
COLUMN = "affine_map<(d0, d1) -> (d1)>"
STEP = 64
SIZES = {"softmax": ((4096, 512), (4096, 500)), "layer_norm": ((4096, 512), (4096, 500)), "transpose": ((2048, 2048),)}
_TO_BUFFERS = (
    "transform-interpreter,canonicalize,cse,eliminate-empty-tensors,one-shot-bufferize,canonicalize,cse,"
    "func.func(buffer-hoisting,buffer-loop-hoisting,promote-buffers-to-stack{max-alloc-size-in-bytes=65536}),"
    "canonicalize,cse,func.func(lower-vector-mask),convert-linalg-to-loops,convert-vector-to-scf"
)
_TO_LLVM = (
    "func.func(lower-vector-multi-reduction{lowering-strategy=inner-reduction}),canonicalize,cse,"
    "loop-invariant-code-motion,convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "convert-vector-to-llvm{reassociate-fp-reductions=true},convert-math-to-llvm,finalize-memref-to-llvm,"
    "convert-arith-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,convert-ub-to-llvm,convert-index-to-llvm,"
    "reconcile-unrealized-casts"
)

# --- programs ---------------------------------------------------------------------------------------------------------

EXP = "%e = math.exp %d : f32\nlinalg.yield %e : f32"
# exp(d) = 2**n * p(d - n*log(2)), n = round(d / log(2)), of Cephes; d is at most 0 here, and below -87 nothing is left.
EXP_POLYNOMIAL = """
%low = arith.constant -87.0 : f32
%dc = arith.maximumf %d, %low : f32
%log2e = arith.constant 1.44269504088896341 : f32
%n0 = arith.mulf %dc, %log2e : f32
%n = math.roundeven %n0 : f32
%h = arith.constant -0.693359375 : f32
%l = arith.constant 2.12194440e-4 : f32
%r0 = math.fma %n, %h, %dc : f32
%r = math.fma %n, %l, %r0 : f32
%k0 = arith.constant 1.9875691500E-4 : f32
%k1 = arith.constant 1.3981999507E-3 : f32
%k2 = arith.constant 8.3334519073E-3 : f32
%k3 = arith.constant 4.1665795894E-2 : f32
%k4 = arith.constant 1.6666665459E-1 : f32
%k5 = arith.constant 5.0000001201E-1 : f32
%p1 = math.fma %k0, %r, %k1 : f32
%p2 = math.fma %p1, %r, %k2 : f32
%p3 = math.fma %p2, %r, %k3 : f32
%p4 = math.fma %p3, %r, %k4 : f32
%p5 = math.fma %p4, %r, %k5 : f32
%rr = arith.mulf %r, %r : f32
%p6 = math.fma %p5, %rr, %r : f32
%one = arith.constant 1.0 : f32
%p = arith.addf %p6, %one : f32
%i = arith.fptosi %n : f32 to i32
%bits = arith.constant 23 : i32
%bias = arith.constant 127 : i32
%i1 = arith.addi %i, %bias : i32
%i2 = arith.shli %i1, %bits : i32
%scale = arith.bitcast %i2 : i32 to f32
%e = arith.mulf %p, %scale : f32
linalg.yield %e : f32"""


@dataclass
class Text:
    """A function over memrefs of [rows, columns], written operation by operation on tensors."""

    rows: int | str  # "?": dynamic
    columns: int | str
    lines: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        return f"tensor<{self.rows}x{self.columns}xf32>"

    @property
    def row(self) -> str:
        return f"tensor<{self.rows}xf32>"

    def reduce(self, out: str, start: str, inputs: Sequence[tuple[str, str]], body: str) -> Text:
        """A reduction along the rows; the body has %a, %b, ... and the accumulator %acc."""
        fill = f"%fill_{out} = linalg.fill ins({start} : f32) outs(%row : {self.row}) -> {self.row}"
        maps = ", ".join([*(map_ for _, map_ in inputs), ROW])
        return self._with(fill, self._generic(out, inputs, maps, '"reduction"', f"%fill_{out}", self.row, body))

    def pointwise(self, out: str, inputs: Sequence[tuple[str, str]], body: str) -> Text:
        maps = ", ".join([*(map_ for _, map_ in inputs), FULL])
        return self._with(self._generic(out, inputs, maps, '"parallel"', "%full", self.full, body))

    def _generic(
        self, out: str, inputs: Sequence[tuple[str, str]], maps: str, last: str, into: str, type_: str, body: str
    ) -> str:
        types = {FULL: self.full, ROW: self.row, COLUMN: f"tensor<{self.columns}xf32>"}
        names = ", ".join(name for name, _ in inputs)
        shown = ", ".join(types[map_] for _, map_ in inputs)
        arguments = ", ".join(f"%{chr(ord('a') + i)}: f32" for i in range(len(inputs)))
        return (
            f'%{out} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", {last}]}} '
            f"ins({names} : {shown}) outs({into} : {type_}) {{\n^bb0({arguments}, %acc: f32):\n{body}\n}} -> {type_}"
        )

    def _with(self, *lines: str) -> Text:
        return Text(self.rows, self.columns, (*self.lines, *lines))

    def function(self, result: str, vectors: Sequence[str] = ()) -> str:
        memref = f"memref<{self.rows}x{self.columns}xf32>"
        more = "".join(f", %m_{name}: memref<{self.columns}xf32>" for name in vectors)
        reads = [
            f"%{name} = bufferization.to_tensor %m_{name} restrict : memref<{self.columns}xf32> to "
            f"tensor<{self.columns}xf32>"
            for name in vectors
        ]
        body = "\n".join([*reads, *self.lines])
        dynamic = self.rows == "?"
        columns, rows = ("%columns", "%rows") if dynamic else ("", "")
        size = (
            "%size = arith.sitofp %count : i64 to f32" if dynamic else f"%size = arith.constant {self.columns}.0 : f32"
        )
        return f"""func.func @run(%xm: {memref}, %om: {memref}{more}) attributes {{llvm.emit_c_interface}} {{
%x = bufferization.to_tensor %xm restrict : {memref} to {self.full}
%zero_index = arith.constant 0 : index
%one_index = arith.constant 1 : index
%rows = memref.dim %xm, %zero_index : {memref}
%columns = memref.dim %xm, %one_index : {memref}
%count = arith.index_cast %columns : index to i64
%full = tensor.empty({", ".join(filter(None, (rows, columns)))}) : {self.full}
%row = tensor.empty({rows}) : {self.row}
%zero = arith.constant 0.0 : f32
%least = arith.constant 0xFF800000 : f32
{size}
%eps = arith.constant 1.0e-05 : f32
{body}
bufferization.materialize_in_destination %{result} in restrict writable %om : ({self.full}, {memref}) -> ()
return
}}"""


def softmax(rows: int | str, columns: int | str, exp: str = EXP) -> str:
    text = Text(rows, columns)
    text = text.reduce("most", "%least", [("%x", FULL)], "%r = arith.maximumf %acc, %a : f32\nlinalg.yield %r : f32")
    text = text.pointwise("exp", [("%x", FULL), ("%most", ROW)], f"%d = arith.subf %a, %b : f32\n{exp}")
    text = text.reduce("sum", "%zero", [("%exp", FULL)], "%r = arith.addf %acc, %a : f32\nlinalg.yield %r : f32")
    division = "%r = arith.divf %a, %b : f32\nlinalg.yield %r : f32"
    return text.pointwise("out", [("%exp", FULL), ("%sum", ROW)], division).function("out")


def layer_norm(rows: int | str, columns: int | str) -> str:
    text = Text(rows, columns)
    text = text.reduce("sum", "%zero", [("%x", FULL)], "%r = arith.addf %acc, %a : f32\nlinalg.yield %r : f32")
    centred = "%mean = arith.divf %b, %size : f32\n%d = arith.subf %a, %mean : f32\n"
    squares = centred + "%p = arith.mulf %d, %d : f32\n%q = arith.addf %acc, %p : f32\nlinalg.yield %q : f32"
    text = text.reduce("squares", "%zero", [("%x", FULL), ("%sum", ROW)], squares)
    inputs = [("%x", FULL), ("%sum", ROW), ("%squares", ROW), ("%w", COLUMN), ("%v", COLUMN)]
    scaled = centred + (
        "%var = arith.divf %c, %size : f32\n%s = arith.addf %var, %eps : f32\n%root = math.sqrt %s : f32\n"
        "%n = arith.divf %d, %root : f32\n%r = math.fma %n, %wl, %vl : f32\nlinalg.yield %r : f32"
    ).replace("%wl", "%w_").replace("%vl", "%v_")
    text = text.pointwise("out", inputs, scaled)
    # The body's arguments are named by position: the fourth and fifth are the weights.
    lines = (*text.lines[:-1], text.lines[-1].replace("%d: f32, %e: f32", "%w_: f32, %v_: f32"))
    return Text(rows, columns, lines).function("out", ("w", "v"))


def transpose(rows: int, columns: int) -> str:
    text = Text(rows, columns)
    return text._with(
        f"%out = linalg.transpose ins(%x : {text.full}) outs(%full : {text.full}) permutation = [1, 0]"
    ).function("out")


# --- schedules --------------------------------------------------------------------------------------------------------

_ANY = "(!transform.any_op) -> !transform.any_op"
_LINALG = '"linalg.generic", "linalg.fill", "linalg.reduce", "linalg.transpose"'
_VECTORISE = f"""
%func = transform.structured.match ops{{["func.func"]}} in %root : {_ANY}
%ops = transform.structured.match ops{{[{_LINALG}]}} in %func : {_ANY}
transform.structured.vectorize %ops : !transform.any_op
transform.apply_patterns to %func {{
  transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
  transform.apply_patterns.vector.reorder_multi_reduction_dims lowering_strategy = "innerreduction"
  transform.apply_patterns.vector.multi_reduction_flattening lowering_strategy = "innerreduction"
  transform.apply_patterns.vector.multi_reduction_unrolling lowering_strategy = "innerreduction"
  transform.apply_patterns.vector.transfer_permutation_patterns
  transform.apply_patterns.vector.cast_away_vector_leading_one_dim
  transform.apply_patterns.vector.lower_transpose lowering_strategy = "shuffle_16x16"
  transform.apply_patterns.canonicalization
}} : !transform.any_op
%hoisted = transform.structured.hoist_redundant_vector_transfers %func : {_ANY}
transform.yield
"""


def by_rows(reductions: Sequence[bool], inner: bool, masked: bool = False) -> str:
    """``reductions`` says of each operation whether it is one; the last is pointwise. ``masked``: the steps need not
    divide the row."""
    count = len(reductions)
    handles = ", ".join(["!transform.any_op"] * count)
    names = [f"%op{i}" for i in range(count)]
    lines = [
        f'%all = transform.structured.match ops{{["linalg.generic"]}} in %root : {_ANY}',
        f"{', '.join(names)} = transform.split_handle %all : (!transform.any_op) -> ({handles})",
        f"%t, %loop = transform.structured.fuse {names[-1]} tile_sizes [1] {{apply_cleanup}} : (!transform.any_op) -> "
        "(!transform.any_op, !transform.any_op)",
        f'%f0 = transform.structured.match ops{{["func.func"]}} in %root : {_ANY}',
        "transform.apply_cse to %f0 : !transform.any_op",
        "transform.apply_patterns to %f0 { transform.apply_patterns.tensor.fold_tensor_empty } : !transform.any_op",
    ]
    if inner:
        inside = [f"%in{i}" for i in range(count)]
        lines.append(f'%inside = transform.structured.match ops{{["linalg.generic"]}} in %loop : {_ANY}')
        lines.append(f"{', '.join(inside)} = transform.split_handle %inside : (!transform.any_op) -> ({handles})")
        for i, is_reduction in enumerate(reductions):
            form, results = ("tile_reduction_using_for", 4) if is_reduction else ("tile_using_for", 2)
            sizes = f"by tile_sizes = [0, {STEP}]" if is_reduction else f"tile_sizes [0, {STEP}]"
            outs = ", ".join(f"%r{i}_{k}" for k in range(results))
            types = ", ".join(["!transform.any_op"] * results)
            lines.append(f"{outs} = transform.structured.{form} %in{i} {sizes} : (!transform.any_op) -> ({types})")
            if masked:
                stepped = f"%r{i}_{1 if is_reduction else 0}"
                lines.append(f"transform.structured.vectorize {stepped} vector_sizes [1, {STEP}] : !transform.any_op")
    return "\n".join(lines) + _VECTORISE


def by_tiles(size: int) -> str:
    return (
        f'%op = transform.structured.match ops{{["linalg.transpose"]}} in %root : {_ANY}\n'
        f"%t, %l0, %l1 = transform.structured.tile_using_for %op tile_sizes [{size}, {size}] : (!transform.any_op) -> "
        f"(!transform.any_op, !transform.any_op, !transform.any_op){_VECTORISE}"
    )


@dataclass
class Compiled:
    """MLIR's side: a function over arrays, and seconds that compiling it took."""

    engine: ExecutionEngine
    seconds: float

    def bind(self, *arrays: np.ndarray) -> Callable[[], None]:
        """A call with these arrays, which it keeps."""
        descriptors = [_descriptor(array) for array in arrays]
        pointers = [ctypes.c_void_p(ctypes.addressof(one)) for one in descriptors]
        packed = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(one) for one in pointers))
        entry = self.engine.lookup("run")
        kept = (self.engine, arrays, descriptors, pointers)

        def run() -> None:
            assert kept
            entry(packed)

        return run


def _descriptor(array: np.ndarray) -> ctypes.Structure:
    """What MLIR passes for a memref."""
    sizes = ctypes.c_int64 * array.ndim
    fields = [("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64)]
    made = type("Descriptor", (ctypes.Structure,), {"_fields_": [*fields, ("sizes", sizes), ("strides", sizes)]})
    strides = [stride // array.itemsize for stride in array.strides]
    return made(array.ctypes.data, array.ctypes.data, 0, sizes(*array.shape), sizes(*strides))


def compile_mlir(function: str, schedule: str) -> Compiled:
    start = time.process_time()
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(
            f"module attributes {{transform.with_named_sequence}} {{\n{function}\n"
            "transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {\n"
            f"{schedule}}}\n}}"
        )
        PassManager.parse(f"builtin.module({_TO_BUFFERS})").run(module.operation)
        for operation in list(module.body.operations):
            if operation.operation.name.startswith("transform"):
                operation.operation.erase()
        PassManager.parse(f"builtin.module({_TO_LLVM})").run(module.operation)
        engine = ExecutionEngine(module, opt_level=3)
        engine.lookup("run")
    return Compiled(engine, time.process_time() - start)


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """``seconds`` by side; ``compile_seconds`` of MLIR's sides; ``error``: largest difference from eager mode."""

    kernel: str
    shape: tuple[int, int]
    seconds: dict[str, float]
    compile_seconds: dict[str, float]
    error: dict[str, float]
    failures: dict[str, str]


def mlir_sides(kernel: str, rows: int, columns: int) -> dict[str, tuple[str, str]]:
    """Function and schedule by name."""
    if kernel == "transpose":
        return {f"mlir tiles {n}x{n}": (transpose(rows, columns), by_tiles(n)) for n in (8, 16)}
    masked = columns % STEP != 0
    if kernel == "layer_norm":
        shape, text = (True, True, False), layer_norm(rows, columns)
        found = {"mlir rows": (text, by_rows(shape, False)), "mlir tiles": (text, by_rows(shape, True, masked))}
        return found | {"mlir tiles, dynamic": (layer_norm("?", "?"), by_rows(shape, True, True))}
    shape = (True, False, True, False)
    found = {}
    for name, exp in (("", EXP), (", polynomial", EXP_POLYNOMIAL)):
        text = softmax(rows, columns, exp)
        found[f"mlir rows{name}"] = (text, by_rows(shape, False))
        found[f"mlir tiles{name}"] = (text, by_rows(shape, True, masked))
    return found | {"mlir tiles, polynomial, dynamic": (softmax("?", "?", EXP_POLYNOMIAL), by_rows(shape, True, True))}


def eager_of(kernel: str) -> Callable[..., torch.Tensor]:
    if kernel == "softmax":
        return lambda x: torch.softmax(x, -1)
    if kernel == "layer_norm":
        return lambda x, w, v: torch.nn.functional.layer_norm(x, x.shape[-1:], w, v)
    return lambda x: x.t().contiguous()


def our_kernel(kernel: str) -> Callable[[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]], Callable[[], None]]:
    """Our kernel, compiled at another size; it is bound to tensors as the host program calls it."""
    small = [torch.randn(20, 30), *([torch.randn(30), torch.randn(30)] if kernel == "layer_norm" else [])]
    (graph,) = symshape.explain(eager_of(kernel), *small, options={"cache": False}).graphs
    (code,) = graph.kernels
    data, _ = compile_objects([code.source])
    library = Library(data)

    def bind(x: torch.Tensor, out: torch.Tensor, more: Sequence[torch.Tensor]) -> Callable[[], None]:
        symbols = [expr.evaluate(dict(zip(names, x.shape))) for expr in launched]
        words = [tensor.data_ptr() for tensor in (x, *more, out)] + symbols
        return partial(library.function(code.name, len(words)), *words)

    names = [row.name for row in graph.symbols]
    ((_, launched),) = graph.launched
    return bind


def measure(kernel: str, shape: tuple[int, int], ours: Callable[..., Any], rounds: int) -> Row:
    rows, columns = shape
    x, mine = torch.randn(shape), torch.empty(shape)
    more = [torch.randn(columns), torch.randn(columns)] if kernel == "layer_norm" else []
    expected = eager_of(kernel)(x, *more)
    runs: dict[str, Callable[[], Any]] = {"symshape": ours(x, mine, more)}
    runs["symshape"]()
    error = {"symshape": float((mine - expected).abs().max())}
    seconds, failures = {}, {}
    for name, (function, schedule) in mlir_sides(kernel, rows, columns).items():
        out = torch.empty(rows, columns)
        try:
            compiled = compile_mlir(function, schedule)
        except (ir.MLIRError, RuntimeError) as problem:
            failures[name] = str(problem).strip().splitlines()[-1]
            continue
        run = compiled.bind(*(tensor.numpy() for tensor in (x, out, *more)))
        run()
        runs[name], seconds[name] = run, compiled.seconds
        error[name] = float((out - expected).abs().max())
    found = samples(runs, rounds, clock=time.process_time)
    medians = {name: statistics.median(values) for name, values in found.items()}
    return Row(kernel, shape, medians, seconds, error, failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for kernel, shapes in SIZES.items():
        ours = our_kernel(kernel)
        rows += [measure(kernel, shape, ours, options.rounds) for shape in shapes]
    shown = [
        (
            row.kernel,
            "x".join(map(str, row.shape)),
            name,
            f"{seconds * 1e3:.2f}",
            f"{seconds / row.seconds['symshape']:.2f}x",
        )
        + (f"{row.compile_seconds.get(name, 0) * 1e3:.0f}", f"{row.error[name]:.1e}")
        for row in rows
        for name, seconds in row.seconds.items()
    ]
    print(table(("kernel", "shape", "side", "ms", "over ours", "compile ms", "difference"), shown))
    for row in rows:
        for name, reason in row.failures.items():
            print(f"{row.kernel} {row.shape} {name}: {reason}")
    if options.out:
        write_result(options.out, "transform_dialect", [asdict(row) for row in rows], clock="processor")


if __name__ == "__main__":
    main()
