"""Selects the sizes that a kernel takes as arguments: only those it uses, so that equal loops share one kernel.

A symbol of main that a kernel uses becomes one of its ``index`` arguments here; the launch passes the value. A size
that needs more than 64 bits to compute is an argument too (``passes/fusion/exact_numbers.py``).

Two further rules let loops that are otherwise equal share a kernel. A size such as (s1 + 3)//4, the height of a feature
map after two strides, is computed by another expression in the kernel of another resolution: it is an argument itself
if the kernel uses s1 in no other expression. And a constant, such as a number of channels, is part of the kernel's
text: if kernels differ in it alone, it is an argument of one kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from torch_mlir import ir

from symshape.dialects.affine_maps import is_dim
from symshape.dialects.sizes import Layout
from symshape.dialects.types import dtype_of
from symshape.passes.fusion.compute_graph import Graph, outer_sizes
from symshape.passes.fusion.exact_numbers import inexact_numbers
from symshape.passes.fusion.kernel_plan import KernelPlan, Load, Step
from symshape.prover.numbers.condition import Condition, at_least, equals
from symshape.prover.numbers.expr import Expr, Function, Term
from symshape.prover.numbers.facts import Facts
from symshape.prover.numbers.magnitudes import Magnitudes

LEAST: Final = 17  # a dim of fewer elements may be unrolled, for which its size has to be a number


@dataclass(frozen=True)
class KernelSizes:
    """``arguments``: the values that a launch passes for the index arguments, in order. ``numbers``: constants among
    them, with the names by which the kernel knows them; ``reals``: real numbers, which are passed as their bits."""

    arguments: tuple[Expr, ...]
    numbers: Mapping[int, Expr] = field(default_factory=dict)
    reals: Mapping[ir.Value, Expr] = field(default_factory=dict)

    def inside(self, expr: Expr) -> Expr:
        """A size as an expression of the kernel: constants that are arguments are replaced, also as factors."""
        terms = expr.terms if self.numbers else ()
        if all(abs(coefficient) < LEAST for coefficient, _ in terms) or any(map(_is_remainder, terms)):
            return expr
        total = Expr.const(0)
        for coefficient, atoms in terms:
            number = next((n for n in self.numbers if coefficient % n == 0), None)
            term = Expr({atoms: coefficient if number is None else coefficient // number})
            total = total + (term if number is None else term * self.numbers[number])
        return total

    def layout(self, layout: Layout) -> Layout:
        """``inside`` for all sizes and strides of a layout."""
        sizes, strides = (tuple(map(self.inside, exprs)) for exprs in (layout.sizes, layout.strides))
        return Layout(sizes, strides, layout.offset)

    def known(self, argument: Expr, facts: Facts) -> list[Condition]:
        """Facts about an argument that the kernel may assume: bounds and a divisor. None for a real number, and for a
        size that is no symbol or function: facts are written about arguments, and its symbols need not be arguments."""
        number = argument.as_int()
        if number is None:
            is_atom = len(argument.atoms) == 1 and argument == Expr({(*argument.atoms,): 1})
            return known_of(facts, argument) if is_atom and argument not in self.reals.values() else []
        name = self.numbers[number]
        divisor = next((d for d in (16, 8, 4, 2) if number % d == 0), 1)
        return [at_least(name, LEAST), *([equals(name % divisor, 0)] if divisor > 1 else [])]


def kernel_sizes(plan: KernelPlan, graph: Graph, magnitudes: Magnitudes, numbers: Iterable[int] = ()) -> KernelSizes:
    """The arguments of a kernel, in order of first mention. ``numbers``: sizes that are arguments all the same."""
    inexact, reals = _inexact(plan, graph, magnitudes)
    mentioned = [e for e in dict.fromkeys(_mentioned(plan, graph, reals)) if e not in inexact]
    bare, functions = _occurrences(mentioned)
    arguments: dict[Expr, None] = {}
    for expr in mentioned:
        for name in sorted(expr.symbols):
            if not is_dim(name):
                found = functions.get(name, [])
                alone = name not in bare and len(found) == 1 and found[0].symbols == {name}
                arguments.setdefault(found[0] if alone else Expr.symbol(name))
    names = {number: Expr.symbol(f"size_{number}") for number in sorted(numbers, reverse=True)}
    return KernelSizes((*arguments, *map(Expr.const, names), *inexact, *reals.values()), names, reals)


def _inexact(plan: KernelPlan, graph: Graph, magnitudes: Magnitudes) -> tuple[dict[Expr, None], dict[ir.Value, Expr]]:
    """The numbers that the host program computes: sizes, and a name for each real number."""
    sizes: dict[Expr, None] = {}
    reals: dict[ir.Value, Expr] = {}
    for item in plan.items:
        if isinstance(item, Step):
            own, found = inexact_numbers(item.node.op, graph, magnitudes)
            sizes.update(dict.fromkeys(own))
            for value in found:
                reals.setdefault(value, Expr.symbol(f"real_{len(reals)}"))
    return sizes, reals


def numbers_of(plan: KernelPlan, graph: Graph) -> tuple[int, ...]:
    """The constant sizes that could be arguments: of parallel dims outside of the innermost loop, if no dim of that
    size is contiguous in memory, where vectorisation gains from a constant."""
    pairs = zip(plan.space[:-1], plan.reduced, strict=False)
    found = {number for size, reduced in pairs if not reduced and (number := size.as_int() or 0) >= LEAST}
    if not found:
        return ()
    found -= {size.as_int() for size, reduced in zip(plan.space, plan.reduced, strict=True) if reduced}
    found.discard(plan.space[-1].as_int())
    for value in _tensors(plan):
        layout = graph.layout(value)
        if len(layout.sizes) > 1:
            found -= {size.as_int() for size, stride in zip(layout.sizes, layout.strides) if stride.as_int() == 1}
    return tuple(sorted(found))


def likeness(plan: KernelPlan) -> tuple[object, ...]:
    """A key that is equal for kernels that differ only in constants, and rarely for others."""
    items = tuple(item.node.op.name if isinstance(item, Step) else len(item.conditions) for item in plan.items)
    return items, plan.reduced, tuple(map(dtype_of, _tensors(plan))), tuple(len(item.map) for item in plan.items)


def known_of(facts: Facts, size: Expr) -> list[Condition]:
    """The facts about a size: its bounds and a divisor."""
    low, high = facts.bounds(size)
    divisor = 1
    while divisor < 16 and facts.divides(2 * divisor, size):
        divisor *= 2
    known = [at_least(size, low)] if low is not None else []
    known += [at_least(high, size)] if high is not None else []
    return known + ([equals(size % divisor, 0)] if divisor > 1 else [])


def _is_remainder(term: Term) -> bool:
    return any(isinstance(atom, Function) and atom.kind == "mod" for atom in term[1])


def _tensors(plan: KernelPlan) -> list[ir.Value]:
    return [*plan.inputs, *(store.value for store in plan.stores)]


def _mentioned(plan: KernelPlan, graph: Graph, without: Collection[ir.Value]) -> Iterator[Expr]:
    """Every expression that the kernel's text has, some with dims. ``without``: real numbers that are arguments."""
    yield from plan.space
    for value in _tensors(plan):
        layout = graph.layout(value)
        yield from (*layout.sizes, *layout.strides)
    for item in plan.items:
        yield from item.map
        yield from item.conditions if isinstance(item, Load) else outer_sizes(item.node.op, graph, without)
    for store in plan.stores:
        yield from store.map


def _occurrences(exprs: Iterable[Expr]) -> tuple[set[str], dict[str, list[Expr]]]:
    """The symbols that occur outside of functions, and for each symbol the outermost functions that contain it."""
    bare: set[str] = set()
    functions: dict[str, list[Expr]] = {}
    for atom in {atom for expr in exprs for atom in expr.atoms}:
        if not isinstance(atom, Function):
            bare.add(atom.name)
            continue
        whole = Expr({(atom,): 1})
        for name in whole.symbols:
            functions.setdefault(name, []).append(whole)
    return bare, functions
