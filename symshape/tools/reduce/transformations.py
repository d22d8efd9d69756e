"""The table of all transformations that a reduction tries, from coarse to fine.

A transformation lists the sites in a module where it applies, in an order that copies of the module preserve, and
changes some of them at once. Applying it removes sites, so that repeating it terminates. The reducer verifies the
result and checks that it still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch_mlir import ir

from symshape.tools.reduce import edits, simplification, structure

Sites = Sequence[Any]


@dataclass(frozen=True)
class Transformation:
    """One transformation. ``sites`` lists its sites in a module. ``apply`` changes a module in place at some of its
    sites, or returns a new module.

    ``coarse``: sites depend on one another, so that with many sites single ones are not tried.
    """

    name: str
    does: str  # for `symshape reduce`'s line on a terminal
    sites: Callable[[ir.Module], Sites]
    apply: Callable[[ir.Module, Sites], ir.Module | None]
    coarse: bool = False


TABLE: Final = (
    Transformation("unused", "erases what nothing reads", edits.unused_operations, structure.erase_unused, coarse=True),
    Transformation("interface", "erases arguments and functions", structure.interface, structure.erase_unused),
    Transformation("outputs", "returns less", structure.outputs, structure.drop_outputs),
    Transformation(
        "operations", "puts arguments in the place of results", structure.operations, structure.cut_operations
    ),
    Transformation("returned", "returns what comes before", structure.returned_early, structure.return_early),
    Transformation(
        "forwarded", "puts operands in the place of results", structure.forwardable, structure.forward_operands
    ),
    Transformation("operands", "reads earlier values of the same type", structure.operands, structure.reroute),
    Transformation("bodies", "yields an argument of a linalg body", structure.bodies, structure.reroute),
    Transformation("sizes", "makes sizes constant", simplification.sizes, simplification.fix_sizes),
    Transformation("symbols", "merges symbols", simplification.mergeable, simplification.merge_symbols),
    Transformation("unbacked", "makes symbols backed", simplification.unbacked, simplification.make_backed),
    Transformation("bindings", "reads symbols off integers", simplification.bound, simplification.bind_to_integers),
    Transformation("types", "makes floats f32", simplification.float_types, simplification.to_f32),
    Transformation("dims", "makes static sizes 2", simplification.static_sizes, simplification.shrink_sizes),
    Transformation("ranges", "forgets ranges and names", simplification.ranged, simplification.forget_ranges),
    Transformation("hints", "makes hints 2", simplification.hinted, simplification.simplify_hints),
    Transformation("ones", "makes numbers 1", simplification.not_one, simplification.make_one),
    Transformation("zeros", "makes numbers 0", simplification.not_zero, simplification.make_zero),
    Transformation("attributes", "forgets attributes", simplification.attributed, simplification.forget_attributes),
    Transformation("locations", "forgets locations", simplification.located, simplification.forget_locations),
)
