"""What generated Triton kernels call around reductions: bounds, [rows, elements] to [rows, 1], sums that go along.

As in runtime/triton/lib/math.py everything runs under TRITON_INTERPRET=1 as well.
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
    """A size as the end of a range. Triton 3.6 makes an int of it in a way that NumPy 2.4 refuses."""
    if INTERPRETED:
        return n.handle.data.item()
    else:
        return n


@triton.jit
def multiple(n, aligned: tl.constexpr):
    """n; where it is known to divide by 16, in a form that says so to the compiler, else no access is wide."""
    if aligned:
        return n // 16 * 16
    else:
        return n


@triton.jit
def rows(x, n, block: tl.constexpr):
    """Which of a program's rows there are: the only one always is."""
    if block == 1:
        return tl.full(x.shape, True, tl.int1)
    else:
        return x < n


@triton.jit
def lanes(r, n: tl.constexpr, block: tl.constexpr):
    """Which of a block's points are below a constant: all of them at compile time where the block divides it (and
    where the block begins), but for no points at all."""
    if n > 0 and n % block == 0:
        return tl.full(r.shape, True, tl.int1)
    else:
        return r < n


# Reductions.


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def row_sum(v):
    return tl.sum(v, 1)[:, None].to(v.dtype)


@triton.jit
def column_sum(v):
    """[rows, elements] to [1, elements]."""
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
    """The neutral index of an arg-reduction, beyond all others."""
    if like.dtype == tl.int64:
        return tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
    else:
        return tl.full((), 0x7FFFFFFF, tl.int32)


@triton.jit
def no_indices(rows: tl.constexpr, columns: tl.constexpr, dtype: tl.constexpr):
    """A block of neutral indices."""
    zeros = tl.zeros([rows, columns], dtype)
    return zeros + no_index(zeros)


@triton.jit
def row_first(v, best, index):
    """The least index of an element that equals the row's best one; NaN equals NaN here."""
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
    """One step of a running argmax per lane. Equal values: the first index wins, also over the neutral element's."""
    take = (v > best) | ((v != v) & (best == best)) | ((v == best) & (index < at))
    return tl.where(take, v, best), tl.where(take, index, at)


@triton.jit
def keep_min(best, at, v, index):
    take = (v < best) | ((v != v) & (best == best)) | ((v == best) & (index < at))
    return tl.where(take, v, best), tl.where(take, index, at)


# Reductions together with a sum that depends on them (codegen/triton/schedule.py).


@triton.jit
def exp_step(top, total, v, mask):
    """A running maximum per lane, and the sum of exp(v - maximum) with exp(inf - inf) taken as 1 for now.

    tl.exp(x) is off by |x| * 2**-24 of itself: where that is much, the term is little beside the maximum's, which is 1.
    """
    e = tl.where(v == top, 1.0, tl.exp(-tl.abs(v - top)))
    kept = tl.where(v > top, total * e + 1.0, total + e)
    return tl.where(mask, maximum(top, v), top), tl.where(mask, kept, total)


@triton.jit
def exp_merge(top, total, best):
    """The sums relative to the largest of the maxima."""
    return total * tl.where(top == best, 1.0, exp(top - best))


@triton.jit
def exp_terms(top, total, centre):
    """What each lane contributes to the sum of exp(v - centre): nothing where it saw no element."""
    return tl.where(total == 0.0, 0.0, total * exp(top - centre))


@triton.jit
def steps(chunk, begin, block):
    """How many elements a lane has seen that sees the one at hand, as a number to compute with."""
    return tl.full((), 1.0, tl.float32) + (chunk - begin) // block


@triton.jit
def square_step(total, squares, shift, drift, v, count, mask):
    """A running sum per lane, and the sum of squares relative to the running mean, which is kept as a ``drift`` from
    the lane's first value: far from zero a mean of all values would have lost the digits that count."""
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
    """What each lane contributes to the sum of (v - centre)**2."""
    off = (shift - centre) + drift / tl.maximum(count, 1.0)
    return tl.where(count > 0.0, squares + count * off * off, 0.0)


@triton.jit
def square_parts(total, squares, count, centre):
    """The same of parts, of which the sum is known."""
    off = total / tl.maximum(count, 1.0) - centre
    return tl.where(count > 0.0, squares + count * off * off, 0.0)


@triton.jit
def exp_held(v, top, mask):
    """Of points that are held at once: the terms of the sum relative to their maximum, as ``exp_step`` has them."""
    return tl.where(mask, tl.where(v == top, 1.0, tl.exp(-tl.abs(v - top))), 0.0)


@triton.jit
def square_held(v, total, count, mask):
    """The same of the sum of squares relative to the mean of ``count`` points, whose sum is known."""
    off = tl.where(mask, v - mean(total, count), 0.0)
    return off * off


@triton.jit
def mean(total, count):
    return total / tl.maximum(count, 1).to(total.dtype)


@triton.jit
def lane_counts(n, block: tl.constexpr):
    """How many of n elements each lane sees."""
    lane = tl.arange(0, block)[None, :]
    return ((n - lane + (block - 1)) // block).to(tl.float32)


@triton.jit
def part_counts(part, n, splits, block):
    """How many of n elements each part has."""
    blocks = tl.cdiv(n, block)
    size = tl.cdiv(blocks, splits)
    begin = tl.minimum(part * size, blocks) * block
    end = tl.minimum((part + 1) * size, blocks) * block
    return tl.maximum(tl.minimum(end, n) - begin, 0).to(tl.float32)
