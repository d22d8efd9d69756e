"""Machine code of convolutions: one module for all sizes, which are arguments.

A tile is some output pixels times some vectors of output channels. Its accumulators stay in registers over the filter
and the input channels: weights are loaded as vectors, and each input is broadcast to all lanes. Pixels are numbered
through rows and images. A tile reads its inputs in place if an output pixel is an input pixel; else the inputs of each
of its pixels are first copied into a row of a buffer (im2col), with zeros where the filter is outside of the image. All
output channels share the cost of a copy. The order of each sum is that of the filter, whatever tile it is in.

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), and Dukhan, "The Indirect
Convolution Algorithm" (2019, arXiv:1907.02129).
"""

from __future__ import annotations

from functools import cache

from symshape.runtime.cpu.convolution_inputs import inputs
from symshape.runtime.cpu.convolution_tiles import tile
from symshape.runtime.cpu.convolution_words import WORDS, Shape, shape_of
from symshape.runtime.cpu.dense_convolution import dense_units
from symshape.runtime.cpu.depthwise_convolution import DEPTHWISE, depthwise_pixels, depthwise_units
from symshape.runtime.cpu.kept_objects import kept_object
from symshape.runtime.cpu.machine_code import WORD

_HEAD = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_max_threads()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_thread_num()
declare i32 @omp_in_parallel()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <L x float> @llvm.fmuladd.vLf32(<L x float>, <L x float>, <L x float>)
declare <L x float> @llvm.masked.load.vLf32.p0(ptr, i32, <L x i1>, <L x float>)
declare void @llvm.masked.store.vLf32.p0(<L x float>, ptr, i32, <L x i1>)
"""

# Context words: arguments, body, units, threads.
_LAUNCH = """
define internal void @region(ptr %context) noinline {
  %words = load ptr, ptr %context
  %body_at = getelementptr i64, ptr %context, i64 1
  %body = load ptr, ptr %body_at
  %units = call i64 @word(ptr %context, i64 2)
  %wanted = call i64 @word(ptr %context, i64 3)
  %team32 = call i32 @omp_get_num_threads()
  %team = zext i32 %team32 to i64
  %threads = call i64 @llvm.smin.i64(i64 %team, i64 %wanted)
  %id32 = call i32 @omp_get_thread_num()
  %id = zext i32 %id32 to i64
  %works = icmp slt i64 %id, %threads
  br i1 %works, label %work, label %done
work:
  %least = udiv i64 %units, %threads
  %more = urem i64 %units, %threads
  %extra = call i64 @llvm.smin.i64(i64 %id, i64 %more)
  %all = mul i64 %id, %least
  %begin = add i64 %all, %extra
  %gets = icmp slt i64 %id, %more
  %plus = zext i1 %gets to i64
  %length = add i64 %least, %plus
  %end = add i64 %begin, %length
  call void %body(ptr %words, i64 %begin, i64 %end)
  br label %done
done:
  ret void
}

define internal void @launch(ptr %words, ptr %body) noinline {
  %context = alloca i64, i64 4
  %units = call i64 @word(ptr %words, i64 UNITS)
  %parts = call i64 @word(ptr %words, i64 PARTS)
  %share = call i64 @llvm.smin.i64(i64 %units, i64 %parts)
  %large = icmp sgt i64 %share, 1
  br i1 %large, label %ask, label %single
ask:
  %inside = call i32 @omp_in_parallel()
  %free = icmp eq i32 %inside, 0
  %max32 = call i32 @omp_get_max_threads()
  %max = zext i32 %max32 to i64
  %several = icmp sgt i64 %max, 1
  %parallel = and i1 %free, %several
  br i1 %parallel, label %team, label %single
team:
  store ptr %words, ptr %context
  %body_at = getelementptr i64, ptr %context, i64 1
  store ptr %body, ptr %body_at
  %units_at = getelementptr i64, ptr %context, i64 2
  store i64 %units, ptr %units_at
  %threads_at = getelementptr i64, ptr %context, i64 3
  store i64 %share, ptr %threads_at
  call void @GOMP_parallel(ptr @region, ptr %context, i32 0, i32 0)
  ret void
single:
  call void %body(ptr %words, i64 0, i64 %units)
  ret void
}

define void @dense(ptr %words) {
  call void @launch(ptr %words, ptr @dense_units)
  ret void
}

define void @depthwise(ptr %words) {
  call void @launch(ptr %words, ptr @depthwise_units)
  ret void
}
"""


def text_of(shape: Shape) -> str:
    """The module: ``dense`` and ``depthwise``, which take ``WORDS``."""
    launch = _LAUNCH.replace("UNITS", str(WORDS.index("units"))).replace("PARTS", str(WORDS.index("parts")))
    sizes = [(pixels, vectors) for vectors in range(1, shape.vectors + 1) for pixels in range(1, shape.pixels + 1)]
    names = ", ".join(f"ptr @tile_{pixels}_{vectors}" for pixels, vectors in sizes)
    parts = [
        _HEAD.replace("vL", f"v{shape.lanes}").replace("<L", f"<{shape.lanes}"),
        WORD,
        launch,
        f"@tiles = internal constant [{len(sizes)} x ptr] [{names}]",
        *(tile(shape, pixels, vectors) for pixels, vectors in sizes),
        inputs(shape),
        dense_units(shape),
        *(depthwise_pixels(shape, pixels, vectors) for pixels, vectors in DEPTHWISE),
        depthwise_units(),
    ]
    return "\n".join(parts)


@cache
def object_of(level: str) -> bytes:
    """The object file for a level. OptionError for a level that this processor has not."""
    return kept_object("convolutions", text_of(shape_of(level)), level)
