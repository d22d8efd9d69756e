"""``GeneralShapeEnv``: a shape environment without 0/1 specialisation.

PyTorch makes each dim that is 0 or 1 at the first call a constant, and assumes every symbol to be at least 2: so
broadcasting, contiguity and emptiness are decided while it traces, and each such size has a graph of its own. Here the
dim of an input is a symbol with range [0, inf), whatever its hint (its value at the first call).

Conditions are evaluated at the hints. PyTorch's tracing rules evaluate many as ``guard_or_false(size == 1)``: of these
one answer is right for every size, namely the one that an unbacked size gets. That answer is returned, without a guard,
if the hints give it too, or would give it with larger hints in place of those that are 0 or 1 (``larger_hints``). Any
other condition, of a rule or of the user's code, makes a guard, as in PyTorch. So 0 and 1 are special only where a
program or an operator itself distinguishes them.

A rule may raise an error after an answer that is right for other sizes (that two sizes must be equal, where the hint of
one is 1). The call is then traced again, with all answers from the hints (``trace_with_retry``).
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from typing import Any

import sympy
import torch
from torch import _meta_registrations, _prims_common
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._sympy.functions import FloatTrueDiv, FloorDiv, IntTrueDiv, Max

from symshape.activity import note
from symshape.frontend.bridge.guards import symbols_of
from symshape.frontend.bridge.mixed_questions import settling_guards
from symshape.frontend.bridge.question_origins import Origin, origin_of
from symshape.frontend.bridge.refused_questions import refuse, refused_line
from symshape.frontend.bridge.shape_env import source_name, symbol_range, symbol_sources
from symshape.frontend.bridge.shortcuts import is_shortcut
from symshape.frontend.bridge.size_cache import ATTRIBUTE, start_caching
from symshape.frontend.bridge.tracing_errors import is_data_dependent_error
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts, Row
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, condition_from_sympy

# Modules between the code that evaluates a condition and the environment.
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
    """Collects the environments that are created inside: one for each time that a frame is analysed."""
    made: list[GeneralShapeEnv] = []
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)


class _Nonnegative:
    """A value for ``positive=`` of ``create_symbol``: the symbol may be 0. PyTorch only tests whether the argument is
    given, and passes it on to ``make_symbol``."""


NONNEGATIVE = _Nonnegative()


class GeneralShapeEnv(ShapeEnv):
    """A ShapeEnv that creates a symbol with range [0, inf) for each dim of an input that is not static."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Symbols with the hint 0 or 1 -> a larger hint. Two assignments, so that no answer depends on the order of two.
        self.larger_hints: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self.hints_only = False  # larger_hints are not used
        self.uncacheable_answers = 0  # the number of answers that are right for the asking code alone
        self.decided: dict[Any, bool] = {}  # conditions with a guard, as they were evaluated
        self.clamped: set[Any] = set()  # sizes max(size, 0) of slices, which are asked without a guard
        self.bases_are_read = False  # by the program, as ``x._base``
        self.unit_stride_sizes: set[Any] = set()  # of dims with stride 1 that had another one at the first call
        self._asked: dict[Any, tuple[Any, Origin]] = {}  # framework's and user's line -> a guard's location, origin
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
        if val in (0, 1) and isinstance(made, sympy.Symbol) and made not in self.larger_hints[0]:
            rounds, number = divmod(len(self.larger_hints[0]), len(_PRIMES))
            for values, prime in zip(self.larger_hints, (_PRIMES[number], _PRIMES[-1 - number])):
                values[made] = sympy.Integer(prime + 128 * rounds)
        return made

    def replace(self, expr: Any) -> Any:  # type: ignore[override]
        """As ShapeEnv, but a float division by 0, which C++ allows, stays an unevaluated quotient when a guard fixes
        its divisor."""
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
        note()  # tracing has no steps, but evaluates conditions often
        if (size_oblivious or fallback_value is not None) and not self.hints_only:
            general = self._general_answer(orig_expr, fallback_value)
            if general is not None:
                return sympy.true if general else sympy.false
        if fallback_value is None and not self.hints_only and is_shortcut(_caller()):
            general = self._if_much_larger(orig_expr)
            if general is not None:
                self.uncacheable_answers += 1
                return sympy.true if general else sympy.false
        line = refused_line()
        if line is not None and self.is_backed(orig_expr) and self._maybe_evaluate_static(orig_expr) is None:
            refuse(line)
        self._settle_clamped(orig_expr)
        try:
            found = super().evaluate_expr(orig_expr, hint, fx_node, size_oblivious, fallback_value, **kwargs)
        except GuardOnDataDependentSymNode:
            if (settled := self._settled_by_inputs(orig_expr)) is None:
                raise
            return sympy.true if settled else sympy.false
        has_guard = fallback_value is None and not size_oblivious and not self._suppress_guards_tls()
        if has_guard and isinstance(orig_expr, sympy.core.relational.Relational):
            self.decided |= {orig_expr: bool(found), sympy.Not(orig_expr): not found}
        return found

    def _settle_clamped(self, question: Any) -> None:
        """Guards the signs of sizes ``max(size, 0)`` in a question that will be answered with a guard: so a graph for
        sizes that are long enough knows the sizes of slices as differences."""
        if not self.clamped or not self.is_backed(question):
            return
        asked = self.clamped & question.atoms(Max)
        if asked and self._maybe_evaluate_static(question) is None:
            for clamp in asked:
                size = next(one for one in clamp.args if one != 0)
                super().evaluate_expr(sympy.Ge(size, 0))

    def _settled_by_inputs(self, question: Any) -> bool | None:
        """The answer to a question about unbacked sizes if the sizes of the inputs settle it, which is then a guard."""
        asked = self.replace(question)
        unbacked = asked.free_symbols - self.backed_var_to_val.keys()
        for guard, answer in settling_guards(asked, unbacked, lambda symbol: symbol_range(self, symbol)):
            if self.is_backed(guard) and _evaluated(guard, self.backed_var_to_val):
                super().evaluate_expr(guard)
                return answer
        return None

    def _compute_symbolic_stride(
        self, source: Any, size: Any, ex_size: Sequence[Any], ex_stride: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Symbolic strides from the strides that the tensor would have if no size were 0 or 1: a dim of such a size may
        have any stride, and does not contribute to other dims' strides."""
        if all(type(one) is int for one in (*ex_size, *ex_stride)):
            like = [int(self.larger_hints[0].get(expr, one)) for expr, one in zip(size, ex_size)]
            others = strides_of_larger_sizes(like, ex_size, ex_stride)
            self.unit_stride_sizes |= {size[d] for d, s in enumerate(others) if s == 1 != ex_stride[d]}
            ex_size, ex_stride = like, others
        return super()._compute_symbolic_stride(source, size, ex_size, ex_stride, *args, **kwargs)

    def create_symintnode(self, sym: Any, *, hint: Any, source: Any = None) -> Any:
        """With the expression's value as hint: the stride of a dim of size 0 or 1 may differ from its expression."""
        if isinstance(sym, sympy.Expr) and not sym.is_number and self.is_backed(sym):
            value = sym.xreplace(self.backed_var_to_val)
            hint = int(value) if isinstance(value, sympy.Integer) else hint
        return super().create_symintnode(sym, hint=hint, source=source)

    def _get_stack_summary(self, *args: Any, **kwargs: Any) -> Any:
        """The location of a guard. Records the guard's origin (user's line, framework's line) for it."""
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
        """The origin of the guard that specialised each input size, by the size's source name
        (``L['x'].size()[0]``)."""
        names = symbol_sources(self)
        found: dict[str, Origin] = {}
        for symbol, _, _ in self.replaced:
            if self.replace(symbol).is_number:
                found |= dict.fromkeys(names.get(symbol, ()), _pinned_by(symbol, self.replaced))
        return found

    def bounded_by(self) -> dict[tuple[str, bool], Origin]:
        """The origin of the guard that first set a bound of each input size, or of a size equal to it, by (source name,
        whether it is the upper bound)."""
        found: dict[tuple[str, bool], Origin] = {}
        for symbol, sources in symbol_sources(self).items():
            alike = [row for row in self.narrowed if self.replace(row[0]) == self.replace(symbol)]
            low, high = symbol_range(self, symbol)
            for is_upper, bound in ((False, low), (True, high)):
                first = next((row[3] for row in alike if bound is not None and row[1 + is_upper] == bound), None)
                if first is not None:
                    found |= {(source, is_upper): first for source in sources}
        return found

    def _at_larger_hints(self, condition: Any) -> Iterator[bool | None]:
        """The values of a condition with larger hints in place of those that are 0 or 1."""
        values = {symbol: self.backed_var_to_val[symbol] for symbol in condition.free_symbols}
        for larger in self.larger_hints:
            yield _evaluated(condition, values | {s: value for s, value in larger.items() if s in values})
        if _compares_to_zero_or_one(condition):  # a size that is made of others: s0 // 16 is 1 where s0 is 16
            yield _evaluated(condition, _much_larger(values))

    def _if_much_larger(self, condition: Any) -> bool | None:
        """The value of a shortcut's condition (``bridge/shortcuts.py``) for larger sizes; None if it does not compare
        with 0 or 1."""
        if not self.is_backed(condition):
            return None
        if (larger := if_larger(condition)) is not None or not _compares_to_zero_or_one(condition):
            return larger
        values = {symbol: self.backed_var_to_val[symbol] for symbol in condition.free_symbols}
        return _evaluated(condition, _much_larger(values))

    def produce_guards_verbose(self, placeholders: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """As ShapeEnv, with fewer and weaker guards: a stride is compared only where it matters (the size is not 1, the
        tensor not empty), the strides of a contiguous tensor are one guard, and no size is tested for being negative.
        Sizes of nested tensors get a source: no inner tensor has them, and a guard on such a size alone (``x.size(0) !=
        1``) needs one. The layout of a base that nothing was asked of is not compared: a call may have a view where
        another one has none."""
        contexts: Any = kwargs.get("input_contexts") or ()
        read = [i for i, base in enumerate(self._are_unread_bases(placeholders, sources)) if not base]
        placeholders, sources = [placeholders[i] for i in read], [sources[i] for i in read]
        if contexts:
            kwargs["input_contexts"] = contexts = [contexts[i] for i in read]
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

    def _are_unread_bases(self, placeholders: Sequence[Any], sources: Sequence[Any]) -> list[bool]:
        """Whether each input is the base of another one, and has no size that a guard reads and no other input has.
        Dynamo adds the base of each view to the inputs, for such sizes."""
        names = [source_name(source) for source in sources]
        of_views = {f"{name}._base" for name in names}
        bases = [name in of_views for name in names]
        if self.bases_are_read or not any(bases):
            return [False] * len(names)
        known = {symbol for fake, base in zip(placeholders, bases) if not base for symbol in symbols_of(fake)}
        guarded = {symbol for guard in self.guards for symbol in self.replace(guard.expr).free_symbols}
        return [base and guarded.isdisjoint(symbols_of(fake) - known) for fake, base in zip(placeholders, bases)]

    def is_backed(self, expr: Any) -> bool:
        """Whether all symbols of an expression are backed."""
        return bool(expr.free_symbols <= self.backed_var_to_val.keys())

    def _general_answer(self, condition: Any, default: bool | None) -> bool | None:
        """The answer to a condition that is right for every size; None if there is none, or the condition needs no
        guard. ``default``: the answer for unbacked sizes, if the rule gives one.

        In this order, where the first that gives an answer decides:

        - ``default``, where the hints agree with it. A layout is an exception: at a hint of 0 or 1 the default is the
          layout of an empty tensor, whereas an empty batch of images is laid out as others are; and where "ge" orders
          dims, it is that of sizes in this order.
        - What the trace has decided already.
        - Of a layout, the answer that holds for all larger sizes (``if_larger``), or unless a remainder is 1.
        - What the environment knows: None, no guard is needed.
        - The answers at larger hints (``_answer_at_larger_hints``).
        """
        if not self.is_backed(condition):
            return None
        here = _evaluated(condition, self.backed_var_to_val)
        if here is None:
            return default
        is_of_few = not self.larger_hints[0].keys().isdisjoint(condition.free_symbols)
        asked_by = _layout_function()
        if here is default and not (asked_by and (is_of_few or asked_by == "ge")):
            return default
        if condition in self.decided:
            return self.decided[condition]
        larger = if_larger(condition) if asked_by else None
        if larger is not None and larger is here:  # the environment can only know the same, which takes longer to find
            self.uncacheable_answers += 1
            return larger
        if self._maybe_evaluate_static(condition) is not None:  # later, for it takes ten times as long
            return None
        if asked_by and larger is None:
            larger = _if_not_one(condition)
        if larger is not None:
            self.uncacheable_answers += 1
            return larger
        return self._answer_at_larger_hints(condition, here, default, is_of_few)

    def _answer_at_larger_hints(self, condition: Any, here: bool, default: bool | None, is_of_few: bool) -> bool | None:
        """The answer that a condition has where sizes of 0 and 1 are larger. ``here``: the answer at the hints;
        ``is_of_few``: whether one of them is 0 or 1."""
        if here is default and not is_of_few:  # a guard where larger sizes of these proportions are in another order
            values = {symbol: (self.backed_var_to_val[symbol] + 1) * _PRIMES[0] for symbol in condition.free_symbols}
            return default if _evaluated(condition, values) is here else None
        others = list(self._at_larger_hints(condition))
        for larger in others:
            if larger is default or default is None and larger is not here:
                return larger
        if here is not default:
            return None
        if None in others:
            return default
        self.uncacheable_answers += 1  # strides of x.t()[::3], where x has one column: 3 and 1
        return not default


def trace_with_retry(env: Any, run: Callable[[], Any]) -> Any:
    """Runs ``run()``, which traces a call. If it raises and a hint is 0 or 1, runs it once more with all answers from
    the hints. If that raises too, the first error is raised."""
    try:
        return run()
    except Exception as error:
        if (
            not isinstance(env, GeneralShapeEnv)
            or not env.larger_hints[0]
            or env.hints_only
            or is_data_dependent_error(error)
        ):
            raise
        cache = getattr(env, ATTRIBUTE, None)
        if cache is not None:
            cache.decisions.clear()
            cache.general.clear()
            cache.layouts.clear()
        env.hints_only = True
        try:
            return run()
        except Exception:
            raise error from error.__cause__
        finally:
            env.hints_only = False


def _with_quotients(expr: Any, values: Mapping[Any, Any]) -> Any:
    """``expr.xreplace(values)`` without evaluating float divisions by 0."""
    if not expr.args:
        return values.get(expr, expr)
    args = [_with_quotients(arg, values) for arg in expr.args]
    return expr.func(*args, evaluate=False) if _divides_floats_by_0(expr.func, args) else expr.func(*args)


def _divides_floats_by_0(function: Any, args: Sequence[Any]) -> bool:
    return function in (FloatTrueDiv, IntTrueDiv) and bool(args[1].is_zero)


def _evaluated(condition: Any, values: Mapping[Any, Any]) -> bool | None:
    """The value of a condition with these values of symbols; None if it divides by 0 or is not decided."""
    try:
        return _truth(condition.xreplace(values))
    except ZeroDivisionError:
        return None


def _compares_to_zero_or_one(condition: Any) -> bool:
    """Whether a condition compares with 0 or 1. ``n < 2`` and ``2 <= n`` do too; ``2 < n`` compares with 2."""
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        return any(one in (0, 1) for one in condition.args)
    if not isinstance(condition, sympy.core.relational.Relational):
        return False
    is_strict = isinstance(condition, (sympy.StrictLessThan, sympy.StrictGreaterThan))
    least, most = (condition.gts, condition.lts) if is_strict else (condition.lts, condition.gts)
    return least in (0, 1, 2) or most in (0, 1)  # the other side is at least ``least``, or at most ``most``, or not


def _much_larger(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {symbol: (value + 1) * prime for (symbol, value), prime in zip(values.items(), _PRIMES)}


def _pinned_by(symbol: Any, replaced: list[tuple[Any, Any, Origin]]) -> Origin:
    """The origin of the guard that gave a symbol its value; if it was first replaced by another symbol, that symbol's
    origin."""
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


# Functions that ask how a tensor is laid out, and whether one that is written to overlaps itself: name -> file. Where a
# dim is 0 or 1, any answer serves.
_LAYOUT_FUNCTIONS = {
    **dict.fromkeys(
        (
            "__lt__",
            "_is_non_overlapping_and_dense_or_false",
            "are_strides_like_channels_last_or_false",
            "check_contiguous_sizes_strides",
            "ge",
            "is_channels_last_contiguous_2d",
            "is_channels_last_contiguous_3d",
            "is_contiguous",
            "should_swap",
        ),
        _prims_common.__file__,
    ),
    "meta_copy_": _meta_registrations.__file__,
    "run_and_return_new_tensor_of_input_device": fake_impls.__file__,
}


def _caller() -> Any:
    """The innermost Python frame outside of PyTorch's symbolic-shape modules: the code that evaluates a condition."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "") in _ASKING:
        frame = frame.f_back
    return frame


def _layout_function() -> str:
    """The function that evaluates the condition, if it is one for layouts (order of strides, contiguity) or the overlap
    check of what is written to: for a dim of size 1 every stride is right. "" for other functions."""
    frame = _caller()
    if frame is None:
        return ""
    if frame.f_globals.get("__name__", "") == "torch._ops":  # a copy into a part, slice_scatter: their C++
        frame = frame.f_back
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    return name if _LAYOUT_FUNCTIONS.get(name) == file else ""


@lru_cache(maxsize=1 << 13)
def if_larger(condition: Any, least_size: int = 2) -> bool | None:
    """The value of a condition if each size, and each quotient of sizes, is at least ``least_size``; None if that does
    not decide it."""
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    functions = condition.atoms(FloorDiv, Max)
    quotients = {one: sympy.Symbol(str(one), integer=True, nonnegative=True) for one in functions}
    try:
        asked = condition_from_sympy(condition.xreplace(quotients))
    except UnsupportedExpr:
        return None
    # n*n - n has a lower bound by the signs of its terms where n is 2 and a number that is not negative.
    beyond = asked.expr.substitute({name: Expr.symbol(name) + least_size for name in asked.symbols})
    low, high = Facts(dict.fromkeys(asked.symbols, Row(0, None))).bounds(beyond)
    least, most = -inf if low is None else low, inf if high is None else high
    match asked.kind:
        case "ge":
            return True if least >= 0 else False if most < 0 else None
        case "eq" | "ne" if least > 0 or most < 0:
            return asked.kind == "ne"
        case "eq" | "ne" if least == most == 0:
            return asked.kind == "eq"
    return asked.as_bool()


def _if_not_one(condition: Any) -> bool | None:
    """The value of ``size == 0``, ``size == 1`` or their negations for a larger size; None for other conditions."""
    is_asked = isinstance(condition, (sympy.Eq, sympy.Ne)) and condition.rhs in (0, 1)
    return isinstance(condition, sympy.Ne) if is_asked else None


def is_general(size: Any) -> bool:
    """Whether a size belongs to a GeneralShapeEnv."""
    return isinstance(size, torch.SymInt) and isinstance(size.node.shape_env, GeneralShapeEnv)


def strides_of_larger_sizes(like: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides of a tensor if its sizes were ``like``, which differs from ``sizes`` where these are 0 or 1.

    For a contiguous tensor, and one that is dense in another order of its dims; all others keep their strides.
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
    """Whether the dims in this order, innermost last, are dense in memory. ``exact``: dims of size 1 must have the
    matching stride too; else they may have any, and so may all dims of an empty tensor."""
    if 0 in sizes and not exact:
        return True
    step = 1
    for d in reversed(order):
        if (exact or sizes[d] != 1) and strides[d] != step:
            return False
        step *= max(sizes[d], 1)
    return True


def free_strides(sizes: Sequence[Any], strides: Sequence[Any]) -> dict[int, int]:
    """The dims of an input whose traced stride is a constant that must not be assumed where the size is 1. A traced
    stride of 1 counts only if it was another one at the first call. None may be assumed of a tensor that was empty
    then: NumPy gives all dims of such an array the stride 0."""
    env = next((size.node.shape_env for size in sizes if is_general(size)), None)
    relaxed = set() if env is None else {env.replace(size) for size in env.unit_stride_sizes}
    was_empty = env is not None and any(_expr(size).xreplace(env.backed_var_to_val) == 0 for size in sizes)
    rows = enumerate((_constant(size), _constant(stride)) for size, stride in zip(sizes, strides))
    free = {d: stride for d, (size, stride) in rows if stride is not None and (size is None or was_empty)}
    return {d: stride for d, stride in free.items() if stride > 1 or was_empty or _expr(sizes[d]) in relaxed}


def _constant(number: Any) -> int | None:
    found: int | None = number.node.maybe_as_int() if isinstance(number, torch.SymInt) else number
    return found


def _sizes_of_nested(placeholders: Any, sources: Any, contexts: Any) -> Iterator[tuple[torch.SymInt, Any]]:
    """(size, source) for sizes of tensor subclasses of which PyTorch tracks only the inner tensors, if a size is a
    symbol that no inner tensor has."""
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
    """Whether a size is a new plain symbol. A ragged size, whose hint is symbolic too, is not."""
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
    """The match of a guard that compares one stride; None for any other guard, and for a conjunction or disjunction."""
    found = _STRIDE.fullmatch(guard)
    return None if found is None or _JOINED.search(found["guard"]) else found


def _where_stride_matters(guard: str) -> str:
    """The guard, restricted to dims whose size is not 1, of tensors that are not empty. Other guards are unchanged."""
    found = _guard_of_stride(guard)
    if found is None:
        return guard
    tensor, dim = found["tensor"], found["dim"]
    either = f"({found['guard']} or {tensor}.size()[{dim}] == 1 or {tensor}.numel() == 0)"
    return either + (found["comment"] or "")


_OF_SIZES = re.compile(r"0 <= [LG]\[[^-+*/\s]+\.size\(\)\[\d+\]\s*(#|$)")  # what holds for each size


def _is_contiguous(fake: Any) -> bool:
    """Whether a plain tensor's traced strides are contiguous at all sizes."""
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
    """The guards, with all stride guards of each of ``tensors`` replaced by one ``is_contiguous()``, which ignores dims
    of size 1 and empty tensors too, and is one call instead of several."""
    seen = set()
    for guard in guards:
        found = _guard_of_stride(guard)
        if found is None or found["tensor"] not in tensors:
            yield guard
        elif found["tensor"] not in seen:
            seen.add(found["tensor"])
            yield f"{found['tensor']}.is_contiguous(){found['comment'] or ''}"


def strides_are_guarded_as_text() -> str:
    """A probe: what is wrong if PyTorch prints the guard of a stride differently than ``_where_stride_matters`` parses;
    else ""."""
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
