"""Functions for reductions in generated Triton kernels: bounds, reductions [rows, elements] to [rows, 1], online sums.

As in runtime/triton/lib/math.py, everything also runs under TRITON_INTERPRET=1.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"
# (triton reads annotations as types of its own)

from __future__ import annotations

import triton
import triton.language as tl

from symshape.runtime.triton.lib.math import INTERPRETED, exp, maximum, minimum

# Sizes and bounds.


@triton.jit
def loop_end(n):
    """A size as a bound of ``range``. In the interpreter Triton 3.6 converts it in a way that NumPy 2.4 rejects."""
    if INTERPRETED:
        return n.handle.data.item()
    else:
        return n


@triton.jit
def multiple(n, aligned: tl.constexpr):
    """n. If it is known to be a multiple of 16, in a form from which the compiler sees that and vectorises accesses."""
    if aligned:
        return n // 16 * 16
    else:
        return n


@triton.jit
def rows(x, n, block: tl.constexpr):
    """The mask of a program's rows within bounds; constant true for a single row."""
    if block == 1:
        return tl.full(x.shape, True, tl.int1)
    else:
        return x < n


@triton.jit
def lanes(r, n: tl.constexpr, block: tl.constexpr):
    """The mask of a block's points below a constant n; constant true if the block size divides n, and n is not 0."""
    if n > 0 and n % block == 0:
        return tl.full(r.shape, True, tl.int1)
    else:
        return r < n


# Programs that share rows.


@triton.jit
def group(program, rows, block: tl.constexpr, shared: tl.constexpr):
    """The group of ``block`` rows of a program: its own, or one of those that it shares with others."""
    if shared:
        return program % tl.cdiv(rows, block)
    else:
        return program


@triton.jit
def is_last(counter, programs):
    """Whether all of the ``programs`` that call this for a counter have called it. It is zero before the first call and
    after the last one. What they have stored before can be loaded afterwards by the one that gets True: the barrier
    orders the stores of all threads before the atomic operation of one of them, which releases and acquires.
    """
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(counter, 0)
    return last


# Reductions.


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def row_sum(v):
    return tl.sum(v, 1)[:, None].to(v.dtype)


@triton.jit
def column_sum(v):
    """Sums [rows, elements] along rows, to [1, elements]."""
    return tl.sum(v, 0)[None, :].to(v.dtype)


@triton.jit
def row_product(v):
    return tl.reduce(v, 1, _multiply)[:, None]


@triton.jit
def row_max(v):
    if v.dtype.is_floating():
        if INTERPRETED:
            nan = tl.max((v != v).to(tl.int32), 1)
            return tl.where(nan != 0, float("nan"), tl.max(tl.where(v != v, float("-inf"), v), 1)).to(v.dtype)[:, None]
        else:
            return tl.reduce(v, 1, maximum)[:, None]
    else:
        return tl.max(v, 1)[:, None].to(v.dtype)


@triton.jit
def row_min(v):
    if v.dtype.is_floating():
        if INTERPRETED:
            nan = tl.max((v != v).to(tl.int32), 1)
            return tl.where(nan != 0, float("nan"), tl.min(tl.where(v != v, float("inf"), v), 1)).to(v.dtype)[:, None]
        else:
            return tl.reduce(v, 1, minimum)[:, None]
    else:
        return tl.min(v, 1)[:, None].to(v.dtype)


@triton.jit
def row_any(v):
    return (tl.max(v.to(tl.int32), 1) != 0)[:, None]


@triton.jit
def row_all(v):
    return (tl.min(v.to(tl.int32), 1) != 0)[:, None]


@triton.jit
def no_index(like):
    """The identity element of an arg-reduction's index: larger than any index."""
    if like.dtype == tl.int64:
        return tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
    else:
        return tl.full((), 0x7FFFFFFF, tl.int32)


@triton.jit
def no_indices(rows: tl.constexpr, columns: tl.constexpr, dtype: tl.constexpr):
    """A block filled with `no_index`."""
    zeros = tl.zeros([rows, columns], dtype)
    return zeros + no_index(zeros)


@triton.jit
def row_first(v, best, index):
    """The smallest index at which an element equals the row's ``best``, where NaN equals NaN."""
    hit = (v == best) | ((v != v) & (best != best))
    return tl.min(tl.where(hit, index, no_index(index)), 1)[:, None]


@triton.jit
def row_argmax(v, index):
    best = row_max(v)
    return best, row_first(v, best, index)


@triton.jit
def row_argmin(v, index):
    best = row_min(v)
    return best, row_first(v, best, index)


@triton.jit
def keep_max(best, at, v, index):
    """One step of a lane's running argmax. Among equal values the smallest index wins, also over `no_index`."""
    take = (v > best) | ((v != v) & (best == best)) | ((v == best) & (index < at))
    return tl.where(take, v, best), tl.where(take, index, at)


@triton.jit
def keep_min(best, at, v, index):
    take = (v < best) | ((v != v) & (best == best)) | ((v == best) & (index < at))
    return tl.where(take, v, best), tl.where(take, index, at)


# Online sums: a reduction and, in the same sweep, a sum that depends on it (codegen/triton/schedule.py).


@triton.jit
def exp_step(top, total, v, mask):
    """One step of a lane's running maximum and sum of exp(v - maximum), in which exp(inf - inf) counts as 1 for now.

    tl.exp(x) has a relative error of |x| * 2**-24. Where that is large, the term is small beside the maximum's, 1.
    """
    e = tl.where(v == top, 1.0, tl.exp(-tl.abs(v - top)))
    kept = tl.where(v > top, total * e + 1.0, total + e)
    return tl.where(mask, maximum(top, v), top), tl.where(mask, kept, total)


@triton.jit
def exp_merge(top, total, best):
    """The lanes' sums, rescaled to the largest of their maxima (``best``)."""
    return total * tl.where(top == best, 1.0, exp(top - best))


@triton.jit
def exp_terms(top, total, centre):
    """Each lane's contribution to the sum of exp(v - centre); 0 for a lane without elements."""
    return tl.where(total == 0.0, 0.0, total * exp(top - centre))


@triton.jit
def steps(chunk, begin, block):
    """Number of elements that a lane has seen including the current one, as float32."""
    return tl.full((), 1.0, tl.float32) + (chunk - begin) // block


@triton.jit
def square_step(total, squares, shift, drift, v, count, mask):
    """One step of a lane's running sum and sum of squared deviations from the running mean. The mean is kept as the sum
    of differences (``drift``) to the lane's first value (``shift``), which avoids cancellation far from 0."""
    shift = tl.where(count == 1.0, v, shift)
    d = v - shift
    n = count.to(v.dtype)
    after = drift + d
    off = d * n - after
    scale = tl.where(n > 1.0, 1.0 / (n * (n - 1.0)), 0.0)
    kept = tl.where(mask, squares + off * off * scale, squares)
    return tl.where(mask, total + v, total), kept, shift, tl.where(mask, after, drift)


@triton.jit
def square_terms(shift, drift, squares, count, centre):
    """Each lane's contribution to the sum of (v - centre)**2."""
    off = (shift - centre) + drift / tl.maximum(count, 1.0)
    return tl.where(count > 0.0, squares + count * off * off, 0.0)


@triton.jit
def square_parts(total, squares, count, centre):
    """Each part's contribution to the sum of (v - centre)**2, from its sum and its squares about its own mean."""
    off = total / tl.maximum(count, 1.0) - centre
    return tl.where(count > 0.0, squares + count * off * off, 0.0)


@triton.jit
def exp_held(v, top, mask):
    """The terms exp(v - top) of points held at once; ``top`` is their maximum, exp(inf - inf) as in `exp_step`."""
    return tl.where(mask, tl.where(v == top, 1.0, tl.exp(-tl.abs(v - top))), 0.0)


@triton.jit
def square_held(v, total, count, mask):
    """The squared deviations of points held at once from the mean of all ``count`` of them, whose sum is ``total``."""
    off = tl.where(mask, v - mean(total, count), 0.0)
    return off * off


@triton.jit
def mean(total, count):
    return total / tl.maximum(count, 1).to(total.dtype)


@triton.jit
def lane_counts(n, block: tl.constexpr):
    """Number of elements, of n, that each lane sees."""
    lane = tl.arange(0, block)[None, :]
    return ((n - lane + (block - 1)) // block).to(tl.float32)


@triton.jit
def part_counts(part, n, splits, block):
    """Number of elements, of n, in each part."""
    blocks = tl.cdiv(n, block)
    size = tl.cdiv(blocks, splits)
    begin = tl.minimum(part * size, blocks) * block
    end = tl.minimum((part + 1) * size, blocks) * block
    return tl.maximum(tl.minimum(end, n) - begin, 0).to(tl.float32)
