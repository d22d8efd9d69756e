"""fold-layers: equal layers in the middle of a model are left out while operations are lowered and fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import main_functions
from symshape.dialects.folded_layers import folded_layers, set_folded_layers
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.layers.repetition import LEADING, Repetition, find_repetition


@dataclass(frozen=True)
class FoldLayers(Pass):
    """Of equal layers, the first four and the last are kept; ``unfold-layers`` puts the others back as the fourth.

    Before::

        %1 = f(%0, %w0)   %2 = f(%1, %w1)   ...   %7 = f(%6, %w6)   // f: the operations of a layer

    After::

        func.func @main(...) attributes {symshape.folded_layers = [{arguments = [...], nodes = [...], returns = [...]}]}
        %1 = f(%0, %w0)   %2 = f(%1, %w1)   %3 = f(%2, %w2)   %4 = f(%3, %w3)   %7 = f(%4, %w6)

    Lowering, fusion and outlining then take the time of five layers, however many there are. What the layers left out
    return is returned by the fourth in their place. ``passes/layers/repetition.py`` says which layers are equal.
    """

    name: ClassVar[str] = "fold-layers"
    statistics: ClassVar[dict[str, str]] = {"layers": "layers that are left out"}

    def run(self, module: ir.Module, context: PassContext) -> bool:
        folded, changed = 0, False
        for main in main_functions(module):
            tables = folded_layers(main)
            block = main.regions[0].blocks[0]
            while True:
                found, moved = find_repetition(block)
                changed = changed or moved or found is not None
                if found is None:
                    break
                _leave_out(found)
                tables.append(found.table)
                folded += found.count - LEADING - 1
            set_folded_layers(main, tables)
        self.count(context, layers=folded)
        return changed


def _leave_out(found: Repetition) -> None:
    """Erases the layers from the fifth on, but for the last, which follows the fourth then."""
    kept, before_last = (found.layer(n) for n in (LEADING - 1, found.count - 2))
    instead = {
        old: new
        for ours, theirs in zip(kept, before_last, strict=True)
        for new, old in zip(ours.results, theirs.results, strict=True)
    }
    for op in found.layer(found.count - 1):
        for number, operand in enumerate(op.operands):
            if operand in instead:
                op.operands[number] = instead[operand]
    returned = found.operations[-1]
    for row in found.table.returns[LEADING : found.count - 1]:
        for position, same in zip(row, found.table.returns[LEADING - 1], strict=True):
            returned.operands[position] = returned.operands[same]
    for layer in range(found.count - 2, LEADING - 1, -1):
        for op in reversed(found.layer(layer)):
            op.erase()
