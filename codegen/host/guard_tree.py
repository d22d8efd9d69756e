"""Generates the guard tree: Python source that finds the entry for given inputs.

Each entry is a conjunction of conditions over sizes. Conditions that all entries share are tested once; then the
expression whose ranges distinguish most entries is chosen, with a binary search over its ranges, and so on: the cost
grows with the depth, not with the number of entries. Entries with overlapping conditions are tried one after the other.
If a condition of one entry divides by 0, that entry does not match, and another may.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from symshape.codegen.host.entry_guards import Leaf
from symshape.codegen.host.guard_stub import joint_texts
from symshape.prover.numbers.condition import Condition, all_of, any_of, at_least, differs, equals
from symshape.prover.numbers.expr import Expr, Function, Symbol

# Inclusive ranges in order, with gaps between them; infinite ends are floats.
Ranges = tuple[tuple[float, float], ...]
_ALL: Ranges = ((-math.inf, math.inf),)
# Python's own limit is 100 levels of indentation. Below this depth entries are tried one by one.
_DEEPEST = 60


@dataclass(frozen=True)
class Case:
    """An entry: the name of its value in the generated code, the ranges of expressions, and its other conditions."""

    name: str
    ranges: Mapping[Expr, Ranges]
    others: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, name: str, conditions: Iterable[Condition]) -> Case:
        ranges: dict[Expr, Ranges] = {}
        others: dict[Condition, None] = {}
        for condition in conditions:
            for part in condition.operands if condition.kind == "and" else (condition,):
                if part.kind in ("eq", "ne", "ge"):
                    base, own = _range_of(part)
                    ranges[base] = _both(ranges.get(base, _ALL), own)
                elif part.kind != "true":
                    others[part] = None
        return cls(name, ranges, tuple(others))

    def constant(self, expr: Expr) -> int | None:
        """The only value that an expression may have; None if it may have several."""
        ((low, high), *more) = self.ranges.get(expr, _ALL) or _ALL
        return int(low) if low == high and not more else None

    def without(self, bases: Iterable[Expr], others: Iterable[Condition] = ()) -> Case:
        """The entry without conditions that have been tested."""
        gone, tested = set(bases), set(others)
        kept = {base: ranges for base, ranges in self.ranges.items() if base not in gone}
        return Case(self.name, kept, tuple(c for c in self.others if c not in tested))

    def conditions(self) -> list[Condition]:
        return [*(_condition(base, ranges) for base, ranges in self.ranges.items()), *self.others]


def _range_of(condition: Condition) -> tuple[Expr, Ranges]:
    """A comparison as ranges of an expression without a constant part, whose first term is positive."""
    constant = sum(coefficient for coefficient, atoms in condition.expr.terms if not atoms)
    base = condition.expr - constant
    positive = base.terms[0][0] > 0
    point = -constant if positive else constant
    if condition.kind == "eq":
        ranges: Ranges = ((point, point),)
    elif condition.kind == "ne":
        ranges = ((-math.inf, point - 1), (point + 1, math.inf))
    else:
        ranges = ((point, math.inf),) if positive else ((-math.inf, point),)
    return (base if positive else -base), ranges


def _both(left: Ranges, right: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return tuple(sorted((low, high) for low, high in pairs if low <= high))


def _condition(base: Expr, ranges: Ranges) -> Condition:
    """Ranges as a condition: bounds and missing points where that is all, else any of the ranges."""
    if not ranges:
        return any_of()
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return equals(base, int(ranges[0][0]))
    gaps = [(int(high) + 1, int(low) - 1) for (_, high), (low, _) in zip(ranges, ranges[1:])]
    if all(first == last for first, last in gaps):
        ends = _between(base, ranges[0][0], ranges[-1][1])
        return all_of(ends, *(differs(base, point) for point, _ in gaps))
    return any_of(*(_between(base, low, high) for low, high in ranges))


def _between(base: Expr, low: float, high: float) -> Condition:
    parts = [at_least(base, int(low))] if low > -math.inf else []
    return all_of(*parts, *([at_least(int(high), base)] if high < math.inf else []))


@dataclass(frozen=True)
class MatchText:
    """``sizes`` and ``strides``: for each tensor leaf what all entries need it to be, None where they differ or depend
    on other sizes. ``lines``: read the rest off names ``a<position>``, and return the name of an entry, or None."""

    sizes: tuple[tuple[int | None, ...], ...]
    strides: tuple[tuple[int | None, ...], ...]
    lines: tuple[str, ...]


def emit_match(leaves: Sequence[Leaf], cases: Sequence[Case]) -> MatchText:
    """The lookup among entries for inputs of one class (dtypes, ranks, ...)."""

    def agreed(values: Iterable[int | None]) -> int | None:
        distinct = set(values)
        return distinct.pop() if len(distinct) == 1 else None

    tensors = [(leaf, leaf.rank) for leaf in leaves if leaf.rank is not None]
    sizes = tuple(tuple(agreed(case.constant(expr) for case in cases) for expr in leaf.sizes) for leaf, _ in tensors)
    strides = tuple(
        tuple(agreed(_stride(case, leaf, dim) for case in cases) for dim in range(rank)) for leaf, rank in tensors
    )
    settled = [
        expr
        for (leaf, _), size, stride in zip(tensors, sizes, strides)
        for expr, value in zip((*leaf.sizes, *leaf.strides), (*size, *stride))
        if value is not None
    ]
    open_cases = [case.without(settled) for case in cases]
    used = frozenset().union(*(c.symbols for case in open_cases for c in case.conditions()))
    lines = [line for leaf in leaves for line in _readings(leaf, used)]
    return MatchText(sizes, strides, (*lines, *emit_tree(open_cases)))


def _stride(case: Case, leaf: Leaf, dim: int) -> int | None:
    """The only value of a stride; of a contiguous tensor it may follow from sizes. The stride of a dim of size 1 does
    not, nor that of any dim of a tensor without elements."""
    value = case.constant(leaf.strides[dim])
    if value is not None or not leaf.contiguous:
        return value
    sizes = [case.constant(size) for size in leaf.sizes]
    known = [size for size in sizes if size]
    return math.prod(known[dim + 1 :]) if len(known) == len(sizes) and sizes[dim] != 1 else None


def _readings(leaf: Leaf, used: frozenset[str]) -> list[str]:
    source = f"a{leaf.position}"
    if leaf.rank is None:
        return [f"{leaf.value} = {source}"] if str(leaf.value) in used else []
    found = []
    for names, text in ((leaf.sizes, f"{source}.shape"), (leaf.strides, f"{source}.stride()")):
        if any(str(name) in used for name in names):
            found.append(f"{', '.join(map(str, names))}{',' if len(names) == 1 else ''} = {text}")
    if str(leaf.storage_offset) in used:
        found.append(f"{leaf.storage_offset} = {source}.storage_offset()")
    return found


def emit_tree(cases: Sequence[Case], depth: int = 0) -> list[str]:
    """Lines that return the name of the first case that holds, or None."""
    if not cases:
        return ["return None"]
    first = cases[0]
    shared = [base for base in first.ranges if all(case.ranges.get(base) == first.ranges[base] for case in cases)]
    others = [condition for condition in first.others if all(condition in case.others for case in cases)]
    tests = [*(_condition(base, first.ranges[base]) for base in shared), *others]
    lines = _reject(tests)
    left = [case.without(shared, others) for case in cases]
    if len(left) == 1:
        return [*lines, f"return {first.name}"]
    base = _best_base(left) if depth < _DEEPEST else None
    if base is not None:
        return [*lines, *_search(left, base, depth)]
    for case in left:
        conditions = case.conditions()
        if not conditions:
            return [*lines, f"return {case.name}"]
        conditions = [*(differs(divisor, 0) for divisor in _divisors(conditions)), *conditions]
        lines.append(f"if {' and '.join(joint_texts(conditions))}: return {case.name}")
    return [*lines, "return None"]


def _divisors(conditions: Iterable[Condition]) -> list[Expr]:
    """The divisors in conditions, other than constants, in the order in which they must be tested for 0."""
    found: dict[Expr, None] = {}
    for condition in conditions:
        found |= dict.fromkeys(_divisors(condition.operands))
        for _, atoms in condition.expr.terms:
            for atom in atoms:
                found |= dict.fromkeys(_divisors_of(atom))
    return [*found]


def _divisors_of(atom: Symbol | Function) -> Iterator[Expr]:
    if isinstance(atom, Symbol):
        return
    for argument in atom.args:
        yield from (found for _, atoms in argument.terms for inner in atoms for found in _divisors_of(inner))
    if atom.kind in ("floordiv", "mod") and atom.args[1].as_int() is None:
        yield atom.args[1]


def _reject(conditions: Sequence[Condition]) -> list[str]:
    texts = joint_texts(conditions)
    return [f"if not ({' and '.join(texts)}): return None"] if texts else []


def _segments(cases: Sequence[Case], base: Expr) -> tuple[list[int], list[tuple[Case, ...]]]:
    """The values at which the possible cases change, and the cases before the first, between them, after the last."""
    known = [case.ranges.get(base, _ALL) for case in cases]
    ends = sorted(
        {int(end) for ranges in known for low, high in ranges for end in (low, high + 1) if math.isfinite(end)}
    )
    values = [-math.inf, *ends]
    parts: list[tuple[Case, ...]] = []
    starts: list[int] = []
    for value in values:
        probe = value if math.isfinite(value) else (ends[0] - 1 if ends else 0)
        possible = tuple(c for c, ranges in zip(cases, known) if any(low <= probe <= high for low, high in ranges))
        if parts and [c.name for c in parts[-1]] == [c.name for c in possible]:
            continue
        if parts:
            starts.append(int(value))
        parts.append(possible)
    return starts, parts


def _best_base(cases: Sequence[Case]) -> Expr | None:
    """The expression whose ranges leave the fewest cases; None where none leaves fewer than all. One that divides by a
    size must be in all of them: it may have no value where another case holds."""
    best: tuple[tuple[int, int, int, str], Expr] | None = None
    for base in dict.fromkeys(base for case in cases for base in case.ranges):
        if _divisors([equals(base, 0)]) and not all(base in case.ranges for case in cases):
            continue
        _, parts = _segments(cases, base)
        most, total = max(map(len, parts)), sum(map(len, parts))
        if most == len(cases) or total > 3 * len(cases):  # cases in many segments would be repeated in each
            continue
        rank = (most, total, len(base.python()), base.python())
        if best is None or rank < best[0]:
            best = rank, base
    return best[1] if best else None


def _search(cases: Sequence[Case], base: Expr, depth: int) -> list[str]:
    starts, parts = _segments(cases, base)
    text = base.python()
    if len(base.terms) == 1 and isinstance(base.terms[0][1][0], Symbol) and text.isidentifier():
        return _halves(text, starts, parts, base, depth)
    name = f"b{depth}"
    return [f"{name} = {text}", *_halves(name, starts, parts, base, depth)]


def _halves(name: str, starts: Sequence[int], parts: Sequence[Sequence[Case]], base: Expr, depth: int) -> list[str]:
    if len(parts) == 1:
        return emit_tree([case.without([base]) for case in parts[0]], depth + 1)
    middle = len(parts) // 2
    lower = _halves(name, starts[: middle - 1], parts[:middle], base, depth + 1)
    upper = _halves(name, starts[middle:], parts[middle:], base, depth + 1)
    # One blank a level: Python counts levels, and long lines cost time to compile.
    return [f"if {name} < {starts[middle - 1]}:", *(f" {line}" for line in lower), *upper]
