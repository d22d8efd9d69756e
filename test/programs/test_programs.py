"""Small programs, each compiled once and run at many sizes: values, dtypes, strides, aliases, gradients equal eager's.

Floats must be as near to a float64 evaluation of the program as eager is, within a factor of two, or within the default
tolerance of their dtype. In-place programs are also compared in what they leave in their inputs.
"""

from __future__ import annotations

import os

import pytest
from aliases import ALIASES
from arithmetic import NUMBERS
from compare import check, together
from halves import HALVES
from pointwise import POINTWISE
from program import Program
from reductions import REDUCTIONS
from views import VIEWS
from world import WORLD

import symshape

TABLES = {"views": VIEWS, "reductions": REDUCTIONS, "pointwise": POINTWISE, "halves": HALVES, "numbers": NUMBERS,
          "aliases": ALIASES, "world": WORLD}  # fmt: skip
# Programs of one table are compiled together, which is twice as fast: SYMSHAPE_PROGRAMS=1 tells which of them fails.
TOGETHER = int(os.environ.get("SYMSHAPE_PROGRAMS", "8"))
ALONE = ("aliases", "world")  # what these see of each other would be part of their results


def groups() -> dict[str, list[Program]]:
    """Programs that are compiled as one, by a name."""
    found: dict[str, list[Program]] = {}
    for family, table in TABLES.items():
        alike: dict[tuple[tuple[int, ...], bool], list[Program]] = {}
        for program in table:
            alike.setdefault((program.sizes, program.gradient), []).append(program)
        step = 1 if family in ALONE else TOGETHER
        for programs in alike.values():
            for first in range(0, len(programs), step):
                group = programs[first : first + step]
                more = f" and {len(group) - 1} more" if len(group) > 1 else ""
                found[f"{family}: {group[0].name}{more}"] = group
    return found


GROUPS = groups()


@pytest.mark.parametrize("name", GROUPS)
def test_equals_eager(name: str) -> None:
    group = GROUPS[name]
    compiled = symshape.compile(together(group))
    for n in group[0].sizes:
        check(group, compiled, n)
