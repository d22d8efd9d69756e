"""Fits formulas of result sizes to what an operator returned for several sizes of its operands.

A sample is an assignment of some variables (sizes of operands and integer arguments) and the observed value. The
formulas that are tried, the simplest first: a constant, one variable, a polynomial (sums, multiples, products, pairs
``n * (n - 1) // 2``), a floor division (a convolution, a pooling), the smaller or larger of two variables or of one and
a bound, and sums and products of these of one variable each. A formula must hold for every sample.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Sample = tuple[Mapping[str, int], int]
_LARGEST_DIVISOR = 12
_LARGEST_FACTOR = 4
_FEWEST_STEPS = 3
_MOST_TERMS = 40


@dataclass(frozen=True)
class Formula:
    """``text``: a Python expression over the variables' names, with the functions ``min`` and ``max``."""

    text: str
    variables: tuple[str, ...] = ()

    def value(self, values: Mapping[str, Any], functions: Mapping[str, Any] | None = None) -> Any:
        """``values`` may be symbolic; ``functions`` are then ``min`` and ``max`` of such sizes."""
        return eval(self.text, {"__builtins__": {}, "min": min, "max": max, **(functions or {})}, dict(values))

    def written(self, names: Mapping[str, str]) -> str:
        """The text with other names for the variables."""
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: names.get(word[0], word[0]), self.text)

    def holds(self, samples: Sequence[Sample]) -> bool:
        return all(self.value(values) == seen for values, seen in samples)


def fit(samples: Sequence[Sample]) -> Formula | None:
    """The simplest formula that holds for all samples; None if none was found."""
    seen = {value for _, value in samples}
    if len(seen) == 1:
        return Formula(str(seen.pop()))
    names = _that_matter(samples)
    for formula in itertools.chain.from_iterable(family(names, samples) for family in _FAMILIES):
        if formula.holds(samples):
            return formula
    return None


def _that_matter(samples: Sequence[Sample]) -> list[str]:
    """The variables whose change alone changed the value. Of variables that only changed together (operands of equal
    sizes) the first represents all."""
    names = list(samples[0][0])
    columns: dict[tuple[int, ...], str] = {}
    for name in names:
        columns.setdefault(tuple(values[name] for values, _ in samples), name)
    kept = [name for column, name in columns.items() if len(set(column)) > 1]
    found = []
    for name in kept:
        others: dict[tuple[int, ...], set[int]] = {}
        for values, seen in samples:
            others.setdefault(tuple(values[n] for n in kept if n != name), set()).add(seen)
        if any(len(different) > 1 for different in others.values()):
            found.append(name)
    return found or kept


# --- families --------------------------------------------------------------------------------------------------------


def _single(names: Sequence[str], samples: Sequence[Sample]) -> Iterator[Formula]:
    yield from (Formula(name, (name,)) for name in names)


def _polynomials(names: Sequence[str], samples: Sequence[Sample]) -> Iterator[Formula]:
    for terms in _bases(names):
        if len(terms) >= min(len(samples), _MOST_TERMS):
            continue
        rows = [[Fraction(math.prod(values[name] for name in term)) for term in terms] for values, _ in samples]
        coefficients = _solve(rows, [Fraction(seen) for _, seen in samples])
        if coefficients is not None:
            yield _polynomial(terms, coefficients)


def _bases(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Sets of terms, each the product of its names: sums, then products of different names, then squares and cubes."""
    yield [(), *((name,) for name in names)]
    if len(names) > 1:
        yield [subset for n in range(len(names) + 1) for subset in itertools.combinations(names, n)]
    for degree in (2, 3):
        yield [term for n in range(degree + 1) for term in itertools.combinations_with_replacement(names, n)]


def _polynomial(terms: Sequence[tuple[str, ...]], coefficients: Sequence[Fraction]) -> Formula:
    common = math.lcm(*(c.denominator for c in coefficients))
    parts = [(int(c * common), term) for c, term in zip(coefficients, terms) if c]
    parts.sort(key=lambda part: (-len(part[1]), part[1]))
    text = " + ".join("*".join([*([str(c)] if c != 1 or not term else []), *term]) for c, term in parts) or "0"
    text = text.replace("+ -1*", "- ").replace("+ -", "- ")
    names = tuple(dict.fromkeys(name for _, term in parts for name in term))
    return Formula(f"({text}) // {common}" if common > 1 else text, names)


def _solve(rows: list[list[Fraction]], seen: list[Fraction]) -> list[Fraction] | None:
    """The solution of linear equations by elimination; None unless there is exactly one."""
    width = len(rows[0])
    table = [[*row, value] for row, value in zip(rows, seen)]
    for column in range(width):
        pivot = next((i for i in range(column, len(table)) if table[i][column]), None)
        if pivot is None:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        head = table[column]
        table[column] = head = [value / head[column] for value in head]
        for i, row in enumerate(table):
            if i != column and row[column]:
                table[i] = [a - row[column] * b for a, b in zip(row, head)]
    if any(row[width] for row in table[width:]):
        return None
    return [table[i][width] for i in range(width)]


def _extremes(names: Sequence[str], samples: Sequence[Sample]) -> Iterator[Formula]:
    for function in ("min", "max"):
        for a, b in itertools.combinations(names, 2):
            yield Formula(f"{function}({a}, {b})", (a, b))
        for name in names:
            yield from _bounded(name, function, samples)


def _bounded(name: str, function: str, samples: Sequence[Sample]) -> Iterator[Formula]:
    """``min(a * n + c, bound)`` or ``max``: the bound is the largest or smallest value, the others are on one line."""
    bound = (max if function == "min" else min)(seen for _, seen in samples)
    inside = sorted({(values[name], seen) for values, seen in samples if seen != bound})
    outside = {values[name] for values, seen in samples if seen == bound}
    if len(outside) > 1 and len(inside) > 1 and inside[0][0] != inside[-1][0]:
        (a, first), (b, last) = inside[0], inside[-1]
        slope = (last - first) // (b - a)
        line = _polynomial([(name,), ()], [Fraction(slope), Fraction(first - slope * a)]).text
        yield Formula(f"{function}({line}, {bound})", (name,))


def _quotients(names: Sequence[str], samples: Sequence[Sample]) -> Iterator[Formula]:
    """A product of variables divided by another one, rounded down or up."""
    for below in names:
        others = [name for name in names if name != below]
        subsets = (subset for n in range(1, len(others) + 1) for subset in itertools.combinations(others, n))
        for above in map("*".join, subsets) if all(values[below] for values, _ in samples) else ():
            yield Formula(f"{above} // {below}", tuple(names))
            yield Formula(f"({above} + {below} - 1) // {below}", tuple(names))


def _divisions(names: Sequence[str], samples: Sequence[Sample]) -> Iterator[Formula]:
    """``(a * n + c) // d`` and multiples of it, of one variable or of a sum of all."""
    sums = [(name,) for name in names] + ([tuple(names)] if len(names) > 1 else [])
    for terms in sums:
        points = [(sum(values[name] for name in terms), seen) for values, seen in samples]
        total = " + ".join(terms)
        multiple = math.gcd(*(seen for _, seen in points))  # at least 1: the value is not always the same
        for division in _divided([(n, seen // multiple) for n, seen in points]):
            text = division(f"({total})" if len(terms) > 1 else total)
            yield Formula(text if multiple == 1 else f"{text} * {multiple}", terms)


def _divided(points: Sequence[tuple[int, int]]) -> Iterator[Callable[[str], str]]:
    """Floor divisions of one variable. A divisor is only found if the points are far enough apart to show several of
    its steps."""
    lengths = [n for n, _ in points]
    largest = min(_LARGEST_DIVISOR, (max(lengths) - min(lengths)) // _FEWEST_STEPS)
    for divisor in range(2, largest + 1):
        for factor in (a for a in range(1, _LARGEST_FACTOR + 1) if math.gcd(a, divisor) == 1):
            low = max(divisor * seen - factor * n for n, seen in points)
            high = min(divisor * seen - factor * n for n, seen in points) + divisor - 1
            if low <= high:
                rest = min(range(low, high + 1), key=abs)
                yield lambda name, a=factor, c=rest, d=divisor: _division(name, a, c, d)  # type: ignore[misc]


def _division(name: str, factor: int, rest: int, divisor: int) -> str:
    multiple = f"{factor}*{name}" if factor > 1 else name
    top = multiple if not rest else f"({multiple} {'-' if rest < 0 else '+'} {abs(rest)})"
    return f"{top} // {divisor}"


def _separated(names: Sequence[str], samples: Sequence[Sample]) -> Iterator[Formula]:
    """Sums and products of formulas of one variable each, as around the first sample: pooled images, flattened."""
    if len(names) < 2:
        return
    first, base = samples[0]

    def alone(name: str, values: Mapping[str, int]) -> bool:
        return all(values[n] == first[n] for n in names if n != name)

    along = {name: [sample for sample in samples if alone(name, sample[0])] for name in names}
    for join, parts in (
        (" + ", {n: [(v, seen - base) for v, seen in rows] for n, rows in along.items()}),
        (" * ", _factors(along)),
    ):
        found = [_of_one(name, parts.get(name, [])) for name in names]
        texts = [_in_parentheses(one.text) for one in found if one is not None]
        if len(texts) < len(names):
            continue
        if join == " + ":
            yield Formula(f"{join.join(texts)} + {base}", tuple(names))
            continue
        product = math.prod(one.value(first) for one in found if one is not None)
        if product:
            scale = Fraction(base, product)
            text = join.join([*([str(scale.numerator)] if scale.numerator != 1 else []), *texts])
            yield Formula(text if scale.denominator == 1 else f"{text} // {scale.denominator}", tuple(names))


def _in_parentheses(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


def _factors(along: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """The values along each variable without the factors that stayed as they were."""
    found = {}
    for name, rows in along.items():
        common = math.gcd(*(seen for _, seen in rows)) or 1
        found[name] = [(values, seen // common) for values, seen in rows]
    return found


def _of_one(name: str, samples: Sequence[Sample]) -> Formula | None:
    families = _FAMILIES[:4]
    tried = itertools.chain.from_iterable(family([name], samples) for family in families) if samples else ()
    return next((formula for formula in tried if formula.holds(samples)), None)


_FAMILIES = (_single, _polynomials, _divisions, _extremes, _quotients, _separated)
