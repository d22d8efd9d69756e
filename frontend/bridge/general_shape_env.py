"""``GeneralShapeEnv``: a shape environment without 0/1 specialisation.

PyTorch gives each dim that is 0 or 1 at the first call a constant, and takes every symbol for at least 2: broadcasting,
contiguity and empty tensors are then known while it traces, and each such size has a graph of its own. Here the dim
of an input is a symbol from 0 on, whatever it is at the first call.

Questions are answered by the sizes at hand. PyTorch's tracing rules ask many as ``guard_or_false(size == 1)``: there
one of the answers is right for every size, for that is what an unbacked size gets. It is taken, without a guard, where
the sizes at hand give it too, or would give it if those that are 0 or 1 were others (``imagined``). Other questions,
and those of the user's code, make a guard, as in PyTorch. So what is special about 0 and 1 is only what a program or an
operator itself tells apart.

A rule may end in an error by an answer that is right for other sizes (of two sizes of which one is 1 at hand, that they
must be equal). The call is then traced again, with each answer that of the sizes at hand (``traced_again``).
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import sympy
import torch
from torch import _meta_registrations, _prims_common
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._sympy.functions import FloatTrueDiv, FloorDiv, IntTrueDiv

from symshape.activity import note
from symshape.frontend.bridge.question_origins import Origin, origin_of
from symshape.frontend.bridge.refused_questions import refuse, refused_line
from symshape.frontend.bridge.shape_env import source_name, symbol_range, symbol_sources
from symshape.frontend.bridge.shortcuts import is_shortcut
from symshape.frontend.bridge.size_cache import ATTRIBUTE, start_caching
from symshape.frontend.bridge.tracing_errors import is_data_dependent_error

# Modules that stand between who asks and the environment.
_ASKING = (
    __name__,
    "symshape.frontend.patches.speed.symbolic_arithmetic",
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.sym_node",
    "torch.fx.experimental.recording",
    "torch",
)
# What sizes that are 0 or 1 might have been, in two orders: not equal, no divisors, and small beside usual limits.
_PRIMES = tuple(sympy.primerange(11, 128))


# Where environments are noted that are made while a frame is compiled.
_MADE: ContextVar[list[GeneralShapeEnv] | None] = ContextVar("symshape_environments", default=None)


@contextlib.contextmanager
def environments_made() -> Iterator[list[GeneralShapeEnv]]:
    """The environments that are made while it is entered: one for each time that a frame is analysed."""
    made: list[GeneralShapeEnv] = []
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)


class _Nonnegative:
    """For ``positive=`` of ``create_symbol``: the symbol may be 0. PyTorch asks whether it is given, and passes it on
    to ``make_symbol``."""


NONNEGATIVE = _Nonnegative()


class GeneralShapeEnv(ShapeEnv):
    """Makes a symbol from 0 on for each dim of an input that is not static."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # symbol -> another size, for those that are 0 or 1 at the first call: twice, so that no order is of chance
        self.imagined: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self.only_at_hand = False  # no other sizes are imagined
        self.passing_answers = 0  # how many were given that are right only for who asks
        self.decided: dict[Any, bool] = {}  # conditions that have a guard, as they were asked
        self.elsewhere: set[Any] = set()  # sizes of dims of stride 1, which is another one at the first call
        self._asked: dict[Any, tuple[Any, Origin]] = {}  # line, the user's as text -> location of a guard, who asked
        self.narrowed: list[tuple[Any, int | None, int | None, Origin]] = []  # symbol, new lower and upper bound
        self.replaced: list[tuple[Any, Any, Origin]] = []  # symbol, what it is from now on
        start_caching(self)
        if (made := _MADE.get()) is not None:
            made.append(self)

    def create_symbol(
        self, val: Any, source: Any, dynamic_dim: Any = DimDynamic.DUCK, *args: Any, **kwargs: Any
    ) -> Any:
        if type(val) is not int or not is_size_of_input(source):
            return super().create_symbol(val, source, dynamic_dim, *args, **kwargs)
        if dynamic_dim in (DimDynamic.DUCK, DimDynamic.DYNAMIC):
            kwargs |= {"do_not_specialize_zero_one": True, "positive": NONNEGATIVE}
        made = super().create_symbol(val, source, dynamic_dim, *args, **kwargs)
        if kwargs.get("positive") is NONNEGATIVE and made.is_positive and isinstance(made, sympy.Symbol):
            raise AssertionError(f"{made} of {source_name(source)} cannot be 0: make_symbol is not ours")
        if val in (0, 1) and isinstance(made, sympy.Symbol) and made not in self.imagined[0]:
            rounds, number = divmod(len(self.imagined[0]), len(_PRIMES))
            for values, prime in zip(self.imagined, (_PRIMES[number], _PRIMES[-1 - number])):
                values[made] = sympy.Integer(prime + 128 * rounds)
        return made

    def replace(self, expr: Any) -> Any:  # type: ignore[override]
        """As usual. Of floats, C++ divides by 0 too: such a quotient stays one when a guard gives its divisor."""
        try:
            return super().replace(expr)
        except ZeroDivisionError:
            return _with_quotients(expr, {symbol: self._find(symbol) for symbol in expr.free_symbols})

    def evaluate_expr(
        self,
        orig_expr: Any,
        hint: Any = None,
        fx_node: Any = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        note()  # tracing has no steps, and asks all the time
        if (size_oblivious or fallback_value is not None) and not self.only_at_hand:
            general = self._general_answer(orig_expr, fallback_value)
            if general is not None:
                return sympy.true if general else sympy.false
        if fallback_value is None and not self.only_at_hand and is_shortcut(_asking()):
            general = self._if_much_larger(orig_expr)
            if general is not None:
                self.passing_answers += 1
                return sympy.true if general else sympy.false
        line = refused_line()
        if line is not None and self.is_backed(orig_expr) and self._maybe_evaluate_static(orig_expr) is None:
            refuse(line)
        found = super().evaluate_expr(orig_expr, hint, fx_node, size_oblivious, fallback_value, **kwargs)
        has_guard = fallback_value is None and not size_oblivious and not self._suppress_guards_tls()
        if has_guard and isinstance(orig_expr, sympy.core.relational.Relational):
            self.decided |= {orig_expr: bool(found), sympy.Not(orig_expr): not found}
        return found

    def _compute_symbolic_stride(
        self, source: Any, size: Any, ex_size: Sequence[Any], ex_stride: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """By strides as they would be if no size were 0 or 1: such a dim may have any stride, and is in no other's."""
        if all(type(one) is int for one in (*ex_size, *ex_stride)):
            like = [int(self.imagined[0].get(expr, one)) for expr, one in zip(size, ex_size)]
            others = strides_of_larger_sizes(like, ex_size, ex_stride)
            self.elsewhere |= {size[d] for d, s in enumerate(others) if s == 1 != ex_stride[d]}
            ex_size, ex_stride = like, others
        return super()._compute_symbolic_stride(source, size, ex_size, ex_stride, *args, **kwargs)

    def create_symintnode(self, sym: Any, *, hint: Any, source: Any = None) -> Any:
        """With the value of the expression: a stride that is not looked at may be another one."""
        if isinstance(sym, sympy.Expr) and not sym.is_number and self.is_backed(sym):
            value = sym.xreplace(self.backed_var_to_val)
            hint = int(value) if isinstance(value, sympy.Integer) else hint
        return super().create_symintnode(sym, hint=hint, source=source)

    def _get_stack_summary(self, *args: Any, **kwargs: Any) -> Any:
        """The location of a guard, with who asked."""
        found = super()._get_stack_summary(*args, **kwargs)
        sloc = found[0]
        frame = sloc.framework_loc
        key = getattr(frame, "filename", frame), getattr(frame, "lineno", None), sloc.maybe_user_loc
        if key not in self._asked:
            self._asked[key] = sloc, origin_of(sloc)
        return found

    def origins(self) -> dict[str, Origin]:
        """The origins of guards, by the location in a guard's text."""
        return {str(sloc): origin for sloc, origin in self._asked.values()}

    def _update_var_to_range(self, symbol: Any, *args: Any, **kwargs: Any) -> None:
        before = self.var_to_range.get(symbol)
        super()._update_var_to_range(symbol, *args, **kwargs)
        after = self.var_to_range[symbol]
        if before is not None and after != before:
            bounds = [int(b) if a != b and b.is_Integer else None for a, b in zip(_ends(before), _ends(after))]
            self.narrowed.append((symbol, *bounds, origin_of(self._get_sloc())))

    def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
        known = a in self.replacements
        super()._set_replacement(a, tgt, msg)
        if not known and a in self.replacements:
            self.replaced.append((a, tgt, origin_of(self._get_sloc())))

    def pinned_by(self) -> dict[str, Origin]:
        """Who asked for the value of each size of an input that has only one, by the framework's name of the size."""
        names = symbol_sources(self)
        found: dict[str, Origin] = {}
        for symbol, _, _ in self.replaced:
            if self.replace(symbol).is_number:
                found |= dict.fromkeys(names.get(symbol, ()), _pinned_by(symbol, self.replaced))
        return found

    def bounded_by(self) -> dict[tuple[str, bool], Origin]:
        """Who asked first for a bound (the upper one: True) of each size of an input, or of one that it is equal to."""
        found: dict[tuple[str, bool], Origin] = {}
        for symbol, sources in symbol_sources(self).items():
            alike = [row for row in self.narrowed if self.replace(row[0]) == self.replace(symbol)]
            low, high = symbol_range(self, symbol)
            for is_upper, bound in ((False, low), (True, high)):
                first = next((row[3] for row in alike if bound is not None and row[1 + is_upper] == bound), None)
                if first is not None:
                    found |= {(source, is_upper): first for source in sources}
        return found

    def _elsewhere(self, condition: Any) -> Iterator[bool | None]:
        """The value of a condition if sizes that are 0 or 1 were larger."""
        values = {symbol: self.backed_var_to_val[symbol] for symbol in condition.free_symbols}
        for imagined in self.imagined:
            yield _at(condition, values | {s: value for s, value in imagined.items() if s in values})
        if _is_about_few(condition):  # a size that is made of others: s0 // 16 is 1 where s0 is 16
            yield _at(condition, _much_larger(values))

    def _if_much_larger(self, condition: Any) -> bool | None:
        """The value of a shortcut's condition for larger sizes; None if it does not compare with 0 or 1."""
        if not self.is_backed(condition):
            return None
        if (larger := if_larger(condition)) is not None or not _is_about_few(condition):
            return larger
        values = {symbol: self.backed_var_to_val[symbol] for symbol in condition.free_symbols}
        return _at(condition, _much_larger(values))

    def produce_guards_verbose(self, placeholders: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """The stride of a dim is compared only where it matters, and those of a contiguous tensor at once; no size is
        asked whether it is negative. Sizes of nested tensors have a source: they are not
        those of any tensor inside of them, and a guard on one alone (``x.size(0) != 1``) needs it."""
        contexts: Any = kwargs.get("input_contexts") or ()
        outer = list(_sizes_of_nested(placeholders, sources, contexts))
        if outer:
            kwargs["input_contexts"] = [*contexts, *[None] * len(outer)]
        tracked = [*placeholders, *(size for size, _ in outer)]
        named = [*sources, *(source for _, source in outer)]
        written: Any = super().produce_guards_verbose(tracked, named, *args, **kwargs)
        constants = [guard for fake, source in zip(placeholders, sources) for guard in _constant_strides(fake, source)]
        whole = [source_name(source) for fake, source in zip(placeholders, sources) if _is_contiguous(fake)]
        for one in written:
            guards = [guard for guard in (*one.exprs, *constants) if not _OF_SIZES.match(guard)]
            one.exprs[:] = map(_where_stride_matters, _with_contiguous(guards, frozenset(whole)))
        return written

    def is_backed(self, expr: Any) -> bool:
        """Whether an expression is over sizes of inputs alone."""
        return bool(expr.free_symbols <= self.backed_var_to_val.keys())

    def _general_answer(self, condition: Any, default: bool | None) -> bool | None:
        """The answer that is right for every size; None where there is no such answer, or it needs no guard anyway."""
        if not self.is_backed(condition):
            return None
        here = _at(condition, self.backed_var_to_val)
        if here is None or here is default and not self._is_of_few_and_layout(condition):
            return default
        if condition in self.decided:
            return self.decided[condition]
        if self._maybe_evaluate_static(condition) is not None:  # later, for it takes ten times as long
            return None
        if _is_asked_for_layout():
            larger = if_larger(condition)
            if larger is None:  # of a remainder, which is taken for a larger size as well
                larger = _if_not_one(condition)
            if larger is not None:
                self.passing_answers += 1
                return larger
        for elsewhere in self._elsewhere(condition):
            if elsewhere is default or default is None and elsewhere is not here:
                return elsewhere
        return default if here is default else None

    def _is_of_few_and_layout(self, condition: Any) -> bool:
        """Whether the default, which the sizes at hand give too, would be the layout of nothing: images of an empty
        batch are laid out as others are."""
        return not self.imagined[0].keys().isdisjoint(condition.free_symbols) and _is_asked_for_layout()


def traced_again(env: Any, run: Callable[[], Any]) -> Any:
    """``run()``, which traces a call. Where it raises and a size at hand is 0 or 1, once more without imagining others;
    its first error is that of the call."""
    try:
        return run()
    except Exception as error:
        if (
            not isinstance(env, GeneralShapeEnv)
            or not env.imagined[0]
            or env.only_at_hand
            or is_data_dependent_error(error)
        ):
            raise
        cache = getattr(env, ATTRIBUTE, None)
        if cache is not None:
            cache.decisions.clear()
            cache.general.clear()
            cache.layouts.clear()
        env.only_at_hand = True
        try:
            return run()
        except Exception:
            raise error from error.__cause__
        finally:
            env.only_at_hand = False


def _with_quotients(expr: Any, values: Mapping[Any, Any]) -> Any:
    """``expr.xreplace(values)`` where a division of floats by 0 is not carried out."""
    if not expr.args:
        return values.get(expr, expr)
    args = [_with_quotients(arg, values) for arg in expr.args]
    return expr.func(*args, evaluate=False) if _divides_floats_by_0(expr.func, args) else expr.func(*args)


def _divides_floats_by_0(function: Any, args: Sequence[Any]) -> bool:
    return function in (FloatTrueDiv, IntTrueDiv) and bool(args[1].is_zero)


def _at(condition: Any, values: Mapping[Any, Any]) -> bool | None:
    """None where it divides by 0."""
    try:
        return _truth(condition.xreplace(values))
    except ZeroDivisionError:
        return None


def _is_about_few(condition: Any) -> bool:
    """Whether it is a comparison with 0 or 1: ``n < 2`` is one too."""
    special = (0, 1) if isinstance(condition, (sympy.Eq, sympy.Ne)) else (0, 1, 2)
    return isinstance(condition, sympy.core.relational.Relational) and any(one in special for one in condition.args)


def _much_larger(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {symbol: (value + 1) * prime for (symbol, value), prime in zip(values.items(), _PRIMES)}


def _pinned_by(symbol: Any, replaced: list[tuple[Any, Any, Origin]]) -> Origin:
    """Who asked for the value: where a symbol was another one first, of that one."""
    rows = [row for row in replaced if row[0] == symbol]
    rest = [row for row in replaced if row[0] != symbol]
    for _, value, origin in rows[:1]:
        other = next((one for one in value.free_symbols if any(row[0] == one for row in rest)), None)
        return origin if other is None else _pinned_by(other, rest)
    return Origin()


def _ends(values: Any) -> tuple[Any, Any]:
    return values.lower, values.upper


def _truth(value: Any) -> bool | None:
    return bool(value) if value in (sympy.true, sympy.false) else None


def is_size_of_input(source: Any) -> bool:
    from torch._dynamo.source import TensorProperty, TensorPropertySource

    return isinstance(source, TensorPropertySource) and source.prop is TensorProperty.SIZE


# Functions of torch._prims_common that ask how a tensor is laid out. Where a dim is 0 or 1, any answer serves.
LAYOUT_FUNCTIONS = (
    "__lt__",
    "_is_non_overlapping_and_dense_or_false",
    "are_strides_like_channels_last_or_false",
    "check_contiguous_sizes_strides",
    "ge",
    "is_channels_last_contiguous_2d",
    "is_channels_last_contiguous_3d",
    "is_contiguous",
    "should_swap",
)


def _asking() -> Any:
    """The innermost frame of Python that asks."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "") in _ASKING:
        frame = frame.f_back
    return frame


def _is_asked_for_layout() -> bool:
    """Whether it is asked for the order of strides, or for whether what ``copy_`` writes to overlaps itself: of a dim
    of size 1 no stride does."""
    frame = _asking()
    if frame is None:
        return False
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    overlaps = name == "meta_copy_" and file == _meta_registrations.__file__
    return overlaps or name in LAYOUT_FUNCTIONS and file == _prims_common.__file__


@functools.lru_cache(maxsize=1 << 12)
def if_larger(condition: Any) -> bool | None:
    """What a condition on sizes is if each of them, and each quotient, is at least 2; None if that depends on more."""
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    parts = {*condition.atoms(FloorDiv), *condition.free_symbols}
    larger = {part: sympy.Dummy(nonnegative=True, integer=True) + 2 for part in parts}
    left, right = (side.xreplace(larger) for side in condition.args)  # of nested quotients the outermost
    difference = sympy.expand(left - right)
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        equal = True if difference.is_zero else False if difference.is_nonzero else None
        return equal if equal is None or isinstance(condition, sympy.Eq) else not equal
    return _truth(condition.func(difference, 0))


def _if_not_one(condition: Any) -> bool | None:
    """What the condition that a size is, or is not, 0 or 1 is for a larger one; None for other conditions."""
    is_asked = isinstance(condition, (sympy.Eq, sympy.Ne)) and condition.rhs in (0, 1)
    return isinstance(condition, sympy.Ne) if is_asked else None


def is_general(size: Any) -> bool:
    """Whether a size is traced in an environment of ours."""
    return isinstance(size, torch.SymInt) and isinstance(size.node.shape_env, GeneralShapeEnv)


def strides_of_larger_sizes(like: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides of a tensor if its sizes were those of ``like``, which differ where ``sizes`` are 0 or 1.

    Those of a contiguous tensor, or of one that is dense in another order of its dims; else as they are.
    """
    rows = list(range(len(sizes)))
    by_stride = sorted(rows, key=lambda d: (-strides[d], sizes[d] <= 1))  # one channel lies inside of a column
    orders = (rows, by_stride)
    for exact in (True, False):  # a dim of size 1 most often has the stride that says where it is
        for order in orders:
            if _is_dense(order, sizes, strides, exact):
                found, step = list(strides), 1
                for d in reversed(order):
                    found[d], step = step, step * like[d]
                return found
    return list(strides)


def _is_dense(order: Sequence[int], sizes: Sequence[int], strides: Sequence[int], exact: bool) -> bool:
    """Whether the dims in this order, the last one innermost, fill their memory. A dim of size 1 may be anywhere,
    unless it is to be ``exact``; of a tensor without elements the strides say at most what the order is."""
    if 0 in sizes and not exact:
        return True
    step = 1
    for d in reversed(order):
        if (exact or sizes[d] != 1) and strides[d] != step:
            return False
        step *= max(sizes[d], 1)
    return True


def free_strides(sizes: Sequence[Any], strides: Sequence[Any]) -> dict[int, int]:
    """The dims of an input whose stride is known to be a constant, but may be another one where the size is 1. Where
    the constant is 1 that is rare: only if it is so at the first call."""
    env = next((size.node.shape_env for size in sizes if is_general(size)), None)
    elsewhere = set() if env is None else {env.replace(size) for size in env.elsewhere}
    rows = enumerate((_constant(size), _constant(stride)) for size, stride in zip(sizes, strides))
    free = {d: stride for d, (size, stride) in rows if size is None and stride is not None}
    return {d: stride for d, stride in free.items() if stride > 1 or sizes[d].node.expr in elsewhere}


def _constant(number: Any) -> int | None:
    found: int | None = number.node.maybe_as_int() if isinstance(number, torch.SymInt) else number
    return found


def _sizes_of_nested(placeholders: Any, sources: Any, contexts: Any) -> Iterator[tuple[torch.SymInt, Any]]:
    """(size, source) of the sizes of wrappers of which PyTorch only tracks what is inside, where a size is a symbol
    that no tensor has."""
    from torch._dynamo.source import TensorProperty, TensorPropertySource

    plain = [t for t in placeholders if isinstance(t, torch.Tensor) and not is_traceable_wrapper_subclass(t)]
    sizes: list[Any] = [size for t in plain for size in t.shape]
    known = {size.node.expr for size in sizes if isinstance(size, torch.SymInt)}
    for t, source, context in zip(placeholders, sources, contexts):
        if not isinstance(t, torch.Tensor) or getattr(context, "track_outer_size_stride", True):
            continue
        for dim, size in enumerate(t.shape):
            if isinstance(size, torch.SymInt) and _is_new_symbol(size, known):
                known.add(size.node.expr)
                yield size, TensorPropertySource(source, TensorProperty.SIZE, dim)


def _is_new_symbol(size: torch.SymInt, known: set[Any]) -> bool:
    """Whether a size is a symbol for a number; a ragged size is one for offsets."""
    expr = size.node.expr
    return bool(expr.is_Symbol) and expr not in known and not isinstance(size.node.hint, torch.SymInt)


def _constant_strides(fake: Any, source: Any) -> list[str]:
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return []
    name = source_name(source)
    return [f"{name}.stride()[{d}] == {stride}" for d, stride in free_strides(fake.shape, fake.stride()).items()]


_STRIDE = re.compile(r"(?P<guard>(?P<tensor>.+)\.stride\(\)\[(?P<dim>\d+)\] == [^#]*?)(?P<comment>\s*#.*)?", re.DOTALL)
_JOINED = re.compile(r" (or|and) |\bnot ")


def _guard_of_stride(guard: str) -> re.Match[str] | None:
    """A comparison of one stride, not one inside of what joins several."""
    found = _STRIDE.fullmatch(guard)
    return None if found is None or _JOINED.search(found["guard"]) else found


def _where_stride_matters(guard: str) -> str:
    """Not of a dim of size 1, nor of a tensor without elements."""
    found = _guard_of_stride(guard)
    if found is None:
        return guard
    tensor, dim = found["tensor"], found["dim"]
    either = f"({found['guard']} or {tensor}.size()[{dim}] == 1 or {tensor}.numel() == 0)"
    return either + (found["comment"] or "")


_OF_SIZES = re.compile(r"0 <= [LG]\[[^-+*/\s]+\.size\(\)\[\d+\]\s*(#|$)")  # what holds for each size


def _is_contiguous(fake: Any) -> bool:
    """Whether the tracer knows a plain tensor for a contiguous one, at all sizes."""
    if type(fake) is not FakeTensor or fake.layout is not torch.strided:
        return False
    step = sympy.Integer(1)
    for size, stride in zip(reversed(fake.shape), reversed(fake.stride())):
        if sympy.expand(_expr(stride) - step) != 0:
            return False
        step = step * _expr(size)
    return True


def _expr(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _with_contiguous(guards: Iterable[str], tensors: frozenset[str]) -> Iterator[str]:
    """The guards of the strides of each of ``tensors`` as one, which asks whether it is contiguous: that too is not
    about dims of size 1, nor about tensors without elements, and one call in the place of several."""
    seen = set()
    for guard in guards:
        found = _guard_of_stride(guard)
        if found is None or found["tensor"] not in tensors:
            yield guard
        elif found["tensor"] not in seen:
            seen.add(found["tensor"])
            yield f"{found['tensor']}.is_contiguous(){found['comment'] or ''}"


def strides_are_guarded_as_text() -> str:
    """What is wrong if PyTorch writes the guard of a stride in another way than ``_where_stride_matters`` reads."""
    from torch._dynamo.source import LocalSource

    try:
        env = ShapeEnv()
        sizes, strides, _ = env.create_symbolic_sizes_strides_storage_offset(torch.empty(3, 5), LocalSource("x"))
        fake: Any = torch.empty_strided(sizes, strides, device="meta")
        written = [text for one in env.produce_guards_verbose([fake], [LocalSource("x")]) for text in one.exprs]
    except Exception as error:  # noqa: BLE001 - whatever another one raises
        return f"guards are written in another way: {type(error).__name__}: {error}"
    found = [text for text in written if ".stride()" in text]
    if not found or any(_where_stride_matters(text) == text for text in found):
        return f"guards are written as {written}"
    return ""
