"""Runs an operator on sample operands of several sizes, and derives a rule for its results.

The operator runs on tensors made for the purpose: with sizes that keep equalities of the traced call, each varied alone
or with its equals, and with several kinds of data for the same sizes: a size that differs between them is
data-dependent. (The draft mode of torch.export runs operators on the data of the example, with a profile of each call,
see ``torch._library.fake_profile``. Here a rule is made that holds for other sizes too.)
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.bridge.operators import has_formula
from symshape.frontend.bridge.running_operators import observed_operators, without_modes
from symshape.frontend.opaque_calls.sample_tensors import KINDS, MOST_ELEMENTS, USUAL_SIZES, made_up
from symshape.frontend.opaque_calls.size_formulas import Formula, fit
from symshape.runtime.torch_c import differentiated

_STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 17, 24, 36)
_FEW_STEPS = (1, 2, 5, 12)
_LARGE = (64, 130, 300)  # for bounds that are far from small sizes, where results stay small
_MOST_RESULTS = 1 << 18
_MANY_VARIABLES = 12
_FEWEST_VALUES = 4  # of a variable in a formula
_TOGETHER = 12  # samples with all variables moved
_MOST_CHOICES = 60  # of sizes that are tried until the operator runs
_FACTORS = (1, 2, 1, 0.5, 1, 1.5, 1)  # of float arguments, for each kind of data
_SMALL = 12  # sizes up to this are used as they are
SMALLEST = 2  # of variables whose value is known at the call: others are constants, with guards
Values = dict[str, int]


class NoRuleFound(Exception):
    """No rule was found; the text is the reason."""


class Specialise(Exception):
    """A rule can be found once these variables are constants: the number of results depends on them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


@dataclass(frozen=True)
class Size:
    """A size or an integer argument: a sympy expression over variables."""

    expr: Any

    def value(self, values: Mapping[str, int]) -> int:
        if self.expr.is_Symbol:
            return values[self.expr.name]
        return int(self.expr.xreplace({s: sympy.Integer(values[s.name]) for s in self.expr.free_symbols}))


@dataclass(frozen=True)
class Real:
    """A float argument that is a symbol; ``hint``: its value at the traced call, or a similar one."""

    hint: float


@dataclass(frozen=True)
class Flag:
    """A bool argument that is a symbol."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclass(frozen=True)
class Variable:
    """``hint``: its value at the traced call, None if it is data-dependent. ``text``: how a rule refers to it."""

    name: str
    hint: int | None
    text: str
    is_size: bool


@dataclass(frozen=True)
class OperatorCall:
    """A call without its data: ``leaves`` of ``(args, kwargs)`` are Operands, Sizes and plain values. ``texts``: how a
    rule refers to each of them."""

    op: Any
    leaves: tuple[Any, ...]
    spec: Any
    variables: tuple[Variable, ...]
    texts: tuple[str, ...]

    @property
    def key(self) -> Any:
        """Equal for calls that have the same rule: not for 1 and True and 1.0, which are equal."""
        leaves = tuple((type(leaf), repr(leaf) if isinstance(leaf, float) else leaf) for leaf in self.leaves)
        return self.op, leaves, repr(self.spec), self.variables


@dataclass(frozen=True)
class TensorRule:
    """``sizes``: formulas, None for a data-dependent one. ``order``: the dims by descending stride."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Formula | None, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class ResultRule:
    """The results of an operator: for each leaf a TensorRule, the type of a number, or None."""

    leaves: tuple[Any, ...]
    spec: Any


@dataclass(frozen=True)
class _Tensor:
    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Sample:
    values: Mapping[str, int]
    leaves: tuple[Any, ...]  # _Tensor, the type of a number, or None
    spec: Any


def learn(call: OperatorCall) -> ResultRule:
    """The rule of a call. NoRuleFound if the operator fails on all samples, writes to or returns an operand, or if
    results have another rank or type for other sizes; Specialise."""
    return _Rules(call, _Experiment(call).samples()).rule()


def is_differentiated(call: OperatorCall, wanted: Sequence[int]) -> bool:
    """Whether autograd finds a gradient in the operator's kernel where the operands at these leaves require one. True
    if the operator fails on all samples."""
    experiment = _Experiment(call)
    for values, kind in itertools.product(experiment.choices(), KINDS):
        with without_modes(), _state_of_generators(), differentiated(), warnings.catch_warnings():
            leaves = experiment.leaves(values, kind)
            if leaves is None:
                continue
            for i in wanted:
                leaves[i].requires_grad_()
            args, kwargs = pytree.tree_unflatten(leaves, call.spec)
            try:
                warnings.simplefilter("ignore")
                results = pytree.tree_leaves(call.op(*args, **kwargs))
            except Exception:  # noqa: BLE001 - whatever it raises for inputs that it does not like
                continue
            return any(has_formula(result) for result in results if isinstance(result, torch.Tensor))
    return True


# --- samples ---------------------------------------------------------------------------------------------------------


@dataclass
class _Experiment:
    call: OperatorCall
    found: list[_Sample] = field(default_factory=list)
    error: Exception | None = None
    sizes_of_values: bool = False

    def samples(self) -> _Experiment:
        chosen = next(filter(self._runs, self.choices()), None)
        if chosen is None:
            reason = f"{type(self.error).__name__}: {self.error}" if self.error else "its operands would be too large"
            raise NoRuleFound(f"it failed on every input that was made up for it, the last time with {reason}")
        self.base, self.found = chosen, []
        self.kinds = [kind for kind in KINDS if self._run(chosen, kind)]
        self.groups = [group for group in map(self._movable, self._names) if group]
        self._move_pairs()
        for _ in range(_TOGETHER if self.groups else 0):
            self._run({**chosen, **self._all_moved()}, self._random.choice(self.kinds))
        return self

    @property
    def moved(self) -> set[str]:
        return {name for group in self.groups for name in group}

    def __post_init__(self) -> None:
        self._names = [variable.name for variable in self.call.variables]
        self._random = random.Random(0)
        self._unknown = {variable.name for variable in self.call.variables if variable.hint is None}

    def choices(self) -> Iterator[Values]:
        """Initial values of variables. Those equal at the traced call stay equal, and a larger one stays larger."""
        return itertools.islice(self._choices(), _MOST_CHOICES)

    def _choices(self) -> Iterator[Values]:
        hints = {v.name: v.hint for v in self.call.variables if v.hint is not None}
        small = {hint: hint for hint in set(hints.values()) if hint <= _SMALL}
        for i, hint in enumerate(sorted(hint for hint in set(hints.values()) if hint > _SMALL)):
            small[hint] = min(hint, 16 + 8 * i)
        unknown = sorted(self._unknown)
        shrunk = {name: small[hint] for name, hint in hints.items()}
        yield {**shrunk, **dict.fromkeys(unknown, 6)}
        yield {**hints, **dict.fromkeys(unknown, 6)}
        yield {**shrunk, **{name: 5 + 2 * i for i, name in enumerate(unknown)}}
        operands = [leaf for leaf in self.call.leaves if isinstance(leaf, Operand)]
        fixed = {size.value({}) for one in operands for size in one.sizes if not size.expr.free_symbols}
        numbers = list(dict.fromkeys([*sorted(n for n in fixed if 1 < n < 100), *USUAL_SIZES]))
        for number in numbers:
            yield {**shrunk, **dict.fromkeys(unknown, number)}
            yield dict.fromkeys(self._names, number)
        yield from (dict(zip(self._names, chosen)) for chosen in itertools.product(numbers, repeat=len(self._names)))

    def _runs(self, values: Values) -> bool:
        return any(self._run(values, kind) for kind in KINDS)

    def _movable(self, name: str) -> tuple[str, ...]:
        """The variable, or with it those of the same value, that could be moved; nothing where neither could."""
        equal = tuple(other for other in self._names if self.base[other] == self.base[name])
        for group in ((name,), equal) if len(equal) > 1 else ((name,),):
            if self._sweep(group):
                return group
        return ()

    def _sweep(self, group: Sequence[str]) -> bool:
        moved = False
        for i, other in enumerate(self._others(group)):
            for kind in (self.kinds[i % len(self.kinds)], self.kinds[(i + 1) % len(self.kinds)]):
                ran = self._run({**self.base, **dict.fromkeys(group, other)}, kind)
                moved |= ran and other > 1
        first = self.base[group[0]]
        for large in _LARGE if moved else ():
            if large > first and self._growth(group, large) < _MOST_RESULTS:
                self._run({**self.base, **dict.fromkeys(group, large)}, self.kinds[0])
        return moved

    def _others(self, group: Sequence[str]) -> list[int]:
        """Values for a group besides the first one: larger and smaller ones, and those around constants of the call."""
        steps = _STEPS if len(self._names) <= _MANY_VARIABLES else _FEW_STEPS
        first = self.base[group[0]]
        others = [first + step for step in steps] + [2 * first, 3 * first, 4 * first]
        others += [*range(first - 1, max(first - 8, 1), -1), first // 2]
        others += [variable.hint for variable in self.call.variables if variable.name == group[0] and variable.hint]
        constants = [leaf for leaf in self.call.leaves if type(leaf) is int and 1 < leaf < _LARGE[0]]
        others += [constant + step for constant in constants for step in (-1, 0, 1, 2)]
        others += [0, 1] if set(group) <= self._unknown else []
        lowest = 0 if set(group) <= self._unknown else SMALLEST
        return [other for other in dict.fromkeys(others) if other != first and other >= lowest]

    def _growth(self, group: Sequence[str], large: int) -> float:
        """The expected number of elements for a large value, extrapolated from smaller ones."""
        first = self.base[group[0]]
        along = [s for s in self.found if all(s.values[n] == v for n, v in self.base.items() if n not in group)]
        reached = max(along, key=lambda s: s.values[group[0]])
        start, end = (
            1 + sum(math.prod(leaf.shape) for leaf in s.leaves if isinstance(leaf, _Tensor))
            for s in (self.found[0], reached)
        )
        value = reached.values[group[0]]
        degree = max(math.log(end / start) / math.log(value / first), 0) if value > first else 8.0
        return float(end * (large / max(value, 1)) ** math.ceil(degree))

    def _move_pairs(self) -> None:
        """Variables that can only be moved with one that has another value: twice the one needs twice the other."""
        for name in self._names:
            for other in self._names:
                if name not in self.moved and name != other:
                    pair = {name: 2 * self.base[name], other: 2 * self.base[other]}
                    if self._run({**self.base, **pair}, self.kinds[0]):
                        self.groups.append((name,))

    def _all_moved(self) -> Values:
        return {
            name: self.base[group[0]] + step
            for group in self.groups
            for step in (self._random.choice(_STEPS[:8]),)
            for name in group
        }

    def leaves(self, values: Values, kind: Any) -> list[Any] | None:
        """The leaves of the arguments of a sample; None if they would be too large."""
        shapes = [leaf for leaf in self.call.leaves if isinstance(leaf, Operand)]
        counts = [[size.value(values) for size in one.sizes] for one in shapes]
        if any(n < 0 for sizes in counts for n in sizes) or sum(map(math.prod, counts)) > MOST_ELEMENTS:
            return None
        generator = torch.Generator().manual_seed(len(self.found))
        return [_argument(leaf, values, kind, generator) for leaf in self.call.leaves]

    def _run(self, values: Values, kind: Any) -> bool:
        """Runs the operator and remembers what came back; False if it fails."""
        with without_modes(), _state_of_generators(), torch.no_grad():
            leaves = self.leaves(values, kind)
            if leaves is None:
                return False
            operands = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            before = [operand.clone() for operand in operands]
            args, kwargs = pytree.tree_unflatten(leaves, self.call.spec)
            try:
                with observed_operators() as seen, warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about made-up inputs
                    result = self.call.op(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it raises for inputs that it does not like
                self.error = error
                return False
            if not all(map(torch.equal, before, operands)):
                raise NoRuleFound("it changes an operand, which it does not declare (mutates_args)")
            self.sizes_of_values |= seen.sizes_of_values
            self.found.append(_sample(values, result, operands))
        return True


def _argument(leaf: Any, values: Values, kind: Any, generator: torch.Generator) -> Any:
    """Floats and flags are part of the data: a size that depends on one is seen to be another for other data."""
    if isinstance(leaf, Operand):
        return made_up(leaf, values, kind, generator)
    if isinstance(leaf, Size):
        return leaf.value(values)
    if isinstance(leaf, Real):
        return leaf.hint * _FACTORS[KINDS.index(kind)]
    return KINDS.index(kind) % 2 == 0 if isinstance(leaf, Flag) else leaf


@contextlib.contextmanager
def _state_of_generators() -> Iterator[None]:
    """PyTorch's, NumPy's and Python's generators go on from where they were. (In ``symshape.jit``
    ``torch.get_rng_state`` is an error.)"""
    cpu, python = torch.default_generator.get_state(), random.getstate()
    numpy: Any = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy else None
    cuda_module: Any = torch.cuda
    cuda = cuda_module.get_rng_state_all() if cuda_module.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(python)
        if numpy:
            numpy.random.set_state(of_numpy)
        cuda_module.set_rng_state_all(cuda)
        torch.default_generator.set_state(cpu)


def _sample(values: Values, result: Any, operands: Sequence[torch.Tensor]) -> _Sample:
    leaves, spec = pytree.tree_flatten(result, is_leaf=lambda v: v is None)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    taken = [storage_of(tensor) for tensor in (*operands, *tensors) if tensor.numel()]
    if len(set(taken)) < len(taken):
        raise NoRuleFound("it returns an operand, or a view of one or of another result: it has to return a clone")
    return _Sample(values, tuple(map(_leaf, leaves)), spec)


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.is_quantized:
            raise NoRuleFound(f"it returns a tensor of type {type(value).__name__}, {value.layout}")
        return _Tensor(value.dtype, value.device, tuple(value.shape), value.stride())
    if value is None or type(value) in (int, float, bool):
        return None if value is None else type(value)
    raise NoRuleFound(f"it returns a {type(value).__name__}, which no graph holds")


# --- rules -----------------------------------------------------------------------------------------------------------


class _Rules:
    def __init__(self, call: OperatorCall, experiment: _Experiment) -> None:
        self.call = call
        self.samples = experiment.found
        self.fixed = [v.name for v in call.variables if v.name not in experiment.moved]
        self.numbers = [v.name for v in call.variables if not v.is_size and v.hint is not None]
        self.by_values = experiment.sizes_of_values and not self._seen_in_data()

    def rule(self) -> ResultRule:
        self._require_one_structure()
        leaves = tuple(self._leaf(i) for i in range(len(self.samples[0].leaves)))
        unknown = any(isinstance(leaf, TensorRule) and None in leaf.sizes for leaf in leaves)
        if self.numbers and unknown and not self._seen_in_data():
            raise Specialise(self.numbers)  # an integer argument that is no size: a dim, a mode
        return ResultRule(leaves, self.samples[0].spec)

    def _require_one_structure(self) -> None:
        kinds = {(s.spec.num_leaves, tuple(map(_kind, s.leaves))) for s in self.samples}
        if len(kinds) == 1:
            return
        if self.numbers:
            raise Specialise(self.numbers)
        counts = [(sample.values, len(sample.leaves)) for sample in self.samples]
        formula = fit(counts)
        if formula is not None and formula.variables:
            raise Specialise(formula.variables)
        what = "how many results it has" if formula is None else "the rank or the type of its results"
        raise NoRuleFound(f"{what} depends on sizes or on data")

    def _leaf(self, position: int) -> Any:
        seen = [sample.leaves[position] for sample in self.samples]
        if not isinstance(seen[0], _Tensor):
            return seen[0]
        sizes = tuple(self._size(position, dim) for dim in range(len(seen[0].shape)))
        return TensorRule(seen[0].dtype, seen[0].device, sizes, _order(seen))

    def _size(self, position: int, dim: int) -> Formula | None:
        samples = [(sample.values, sample.leaves[position].shape[dim]) for sample in self.samples]
        by_sizes: dict[tuple[int, ...], set[int]] = {}
        for values, seen in samples:
            by_sizes.setdefault(tuple(values.values()), set()).add(seen)
        if any(len(seen) > 1 for seen in by_sizes.values()):
            return None
        formula = fit(samples)
        if formula is None or (self.by_values and (formula.variables or formula.text == "0")):
            return None
        if any(len({values[name] for values, _ in samples}) < _FEWEST_VALUES for name in formula.variables):
            return None  # a dim with two observed values: a line fits any two points
        trusted = not self.fixed or (len(formula.variables) == 1 and formula.text == formula.variables[0])
        return formula if trusted else None

    def _seen_in_data(self) -> bool:
        """Whether a size was another one for other data."""
        by_sizes: dict[tuple[int, ...], set[Any]] = {}
        for sample in self.samples:
            shapes = tuple(leaf.shape for leaf in sample.leaves if isinstance(leaf, _Tensor))
            by_sizes.setdefault(tuple(sample.values.values()), set()).add(shapes)
        return any(len(shapes) > 1 for shapes in by_sizes.values())


def _kind(leaf: Any) -> Any:
    return (leaf.dtype, leaf.device, len(leaf.shape)) if isinstance(leaf, _Tensor) else leaf


def _order(seen: Sequence[_Tensor]) -> tuple[int, ...]:
    """The dims by stride, if dense tensors of that order explain every sample; else those of a contiguous tensor, which
    the result is copied into."""
    original = tuple(range(len(seen[0].shape)))
    clear = next((one for one in seen if all(size > 1 for size in one.shape)), seen[0])
    order = tuple(sorted(original, key=lambda d: -clear.strides[d]))
    return next((o for o in (original, order) if all(_is_dense(one, o) for one in seen)), original)


def _is_dense(one: _Tensor, order: Sequence[int]) -> bool:
    wanted = 1
    for dim in reversed(order):
        if one.shape[dim] > 1 and one.strides[dim] != wanted:
            return not math.prod(one.shape)
        wanted *= one.shape[dim]
    return True
