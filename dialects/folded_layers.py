"""What differs between the layers of a function, as an attribute of it while layers are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch_mlir import ir

_FOLDED: Final = "symshape.folded_layers"


@dataclass(frozen=True)
class LayerTable:
    """For each layer one row; the entries of a column are what one position of a layer is in each of them.

    ``nodes``: names of graph nodes. ``arguments``: numbers of arguments of the function. ``returns``: positions in its
    return of what the layer computes; empty for the first and the last layer.
    """

    nodes: list[list[str]]
    arguments: list[list[int]]
    returns: list[list[int]]

    def attribute(self) -> ir.Attribute:
        """As MLIR's attribute."""
        names = ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(name) for name in row]) for row in self.nodes])
        numbers = [
            ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(row) for row in rows]) for rows in (self.arguments, self.returns)
        ]
        return ir.DictAttr.get({"nodes": names, "arguments": numbers[0], "returns": numbers[1]})


def folded_layers(function: Any) -> list[LayerTable]:
    """The tables of a function; none where no layers are left out."""
    attributes = function.operation.attributes
    if _FOLDED not in attributes:
        return []
    found = []
    for one in ir.ArrayAttr(attributes[_FOLDED]):
        table = ir.DictAttr(one)
        names = [[ir.StringAttr(name).value for name in ir.ArrayAttr(row)] for row in ir.ArrayAttr(table["nodes"])]
        arguments, returns = (
            [list(ir.DenseI64ArrayAttr(row)) for row in ir.ArrayAttr(table[key])] for key in ("arguments", "returns")
        )
        found.append(LayerTable(names, arguments, returns))
    return found


def set_folded_layers(function: Any, tables: Sequence[LayerTable]) -> None:
    """See ``folded_layers``."""
    if tables:
        function.operation.attributes[_FOLDED] = ir.ArrayAttr.get([table.attribute() for table in tables])
    elif _FOLDED in function.operation.attributes:
        del function.operation.attributes[_FOLDED]
