"""Small programs, each compiled once and run at many sizes: values, dtypes, strides, aliases, gradients equal eager's.

Floats must be as near to a float64 evaluation of the program as eager is, within a factor of two, or within the default
tolerance of their dtype. In-place programs are also compared in what they leave in their inputs.
"""

from __future__ import annotations

import pytest
from aliases import ALIASES
from arithmetic import NUMBERS
from compare import check
from halves import HALVES
from pointwise import POINTWISE
from reductions import REDUCTIONS
from views import VIEWS
from world import WORLD

import symshape

TABLES = {"views": VIEWS, "reductions": REDUCTIONS, "pointwise": POINTWISE, "halves": HALVES, "numbers": NUMBERS,
          "aliases": ALIASES, "world": WORLD}  # fmt: skip
PROGRAMS = {f"{family}: {p.name}": p for family, table in TABLES.items() for p in table}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    program = PROGRAMS[name]
    compiled = symshape.compile(program.function)
    for n in program.sizes:
        check(program, compiled, n)
