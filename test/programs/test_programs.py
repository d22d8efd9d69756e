"""Small programs, each compiled once and run at many sizes: values, dtypes, strides, aliases, gradients equal eager's.

Floats must be as near to a float64 evaluation of the program as eager is, within a factor of two, or within the default
tolerance of their dtype. In-place programs are also compared in what they leave in their inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from aliases import ALIASES
from arithmetic import NUMBERS
from compare import check, check_or_raise, tensors_of, together
from halves import HALVES
from pointwise import POINTWISE
from program import Beside, Program
from reductions import REDUCTIONS
from views import VIEWS
from world import WORLD

import symshape
from symshape import knobs

TABLES = {
    "views": VIEWS,
    "reductions": REDUCTIONS,
    "pointwise": POINTWISE,
    "halves": HALVES,
    "numbers": NUMBERS,
    "aliases": ALIASES,
    "world": WORLD,
}
# Programs of one table are compiled together, which is twice as fast: SYMSHAPE_PROGRAMS=1 tells which of them fails.
TOGETHER = knobs.PROGRAMS.read()
ALONE = ("aliases", "world")  # what these see of each other would be part of their results


def groups() -> dict[str, list[Program]]:
    """Programs that are compiled as one, by a name."""
    found: dict[str, list[Program]] = {}
    for family, table in TABLES.items():
        alike: dict[tuple[tuple[int, ...], bool, bool], list[Program]] = {}
        for program in table:
            alike.setdefault((program.sizes, program.gradient, program.alone), []).append(program)
        for (_, _, alone), programs in alike.items():
            step = 1 if alone or family in ALONE else TOGETHER
            for first in range(0, len(programs), step):
                group = programs[first : first + step]
                more = f" and {len(group) - 1} more" if len(group) > 1 else ""
                found[f"{family}: {group[0].name}{more}"] = group
    return found


GROUPS = groups()


def check_all(group: list[Program], sizes: Sequence[int]) -> None:
    compiled = symshape.compile(together(group))
    for n in sizes:
        check(group, compiled, n)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", GROUPS)
def test_equals_eager(name: str) -> None:
    """Sizes 0 and 1 take turns."""
    left_out = list(GROUPS).index(name) % 2
    sizes = GROUPS[name][0].sizes
    check_all(GROUPS[name], [n for n in sizes if n != left_out or len(sizes) < 5])


@pytest.mark.long
@pytest.mark.parametrize("name", GROUPS)
def test_equals_eager_at_every_size(name: str) -> None:
    check_all(GROUPS[name], GROUPS[name][0].sizes)


# --- whichever size comes first --------------------------------------------------------------------------------------

ALL = {f"{family}: {program.name}": program for family, table in TABLES.items() for program in table}
ORDERS = ((5, 1, 0), (1, 5, 0), (0, 5, 1))


def orders(program: Program) -> Iterator[list[int]]:
    """Sizes to call a program with, one after the other: of its dims of size n, and of those of size n + k."""
    for order in ORDERS:
        yield [n for n in order if has_inputs(program, n)]
    shapes = [x.shape for x in tensors_of(list(program.inputs(Beside(41))))]
    if any(41 in shape for shape in shapes):
        for order in ORDERS:
            yield [n for n in map(Beside, order) if has_inputs(program, n)]


def has_inputs(program: Program, n: int) -> bool:
    try:
        program.inputs(n)
    except (RuntimeError, IndexError, ValueError):
        return False
    return True


def check_orders(program: Program) -> None:
    for order in orders(program):
        torch._dynamo.reset()
        compiled = symshape.compile(together([program]))
        for n in order:
            check_or_raise(program, compiled, n)


@pytest.mark.parametrize("name", [*ALL][::149])
def test_any_size_first(name: str) -> None:
    """Entries made at 5, at 1 and at 0 serve the others, where eager mode allows them; in each dim."""
    check_orders(ALL[name])


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_any_size_first_of_all(name: str) -> None:
    check_orders(ALL[name])
