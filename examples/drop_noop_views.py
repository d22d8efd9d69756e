# RUN: symshape-opt %S/Inputs/views.mlir --load-pass=%s --drop-noop-views | filecheck %s
# CHECK:      func.func @noop(%[[X:.*]]: tensor<?xf32>, %{{.*}}
# CHECK:      %[[SLICE:.*]] = "symshape.view"(%[[X]]
# CHECK-NEXT: return %[[X]], %[[SLICE]]
"""A new pass in 25 lines of code, outside of the package: removes views that change nothing.

symshape-opt examples/Inputs/views.mlir --load-pass=examples/drop_noop_views.py --drop-noop-views
torch.compile(fn, backend="symshape", options={"pass_files": ["drop_noop_views.py"], "passes": ["drop-noop-views"]})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from symshape.dialects import BindOp, ViewOp
from symshape.passes.framework.base import Pass, PassContext


@dataclass(frozen=True)
class DropNoopViews(Pass):
    """Removes views that change nothing: an identity map over all of a tensor.

    Before::

        %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
        return %v : tensor<?xf32>

    After::

        return %x : tensor<?xf32>

    ``limit``  stops after so many (-1: never)
    """

    name: ClassVar[str] = "drop-noop-views"
    statistics: ClassVar[dict[str, str]] = {"dropped": "views that changed nothing"}
    limit: int = -1

    def run(self, module: ir.Module, context: PassContext) -> None:
        ops = [op for function in module.body.operations for block in function.regions[0] for op in block.operations]
        sizes = {op.tensor: op.sizes for op in ops if isinstance(op, BindOp)}
        noops = [op for op in ops if isinstance(op, ViewOp) and changes_nothing(op, sizes)]
        chosen = noops if self.limit < 0 else noops[: self.limit]
        for view in chosen:
            view.result.replace_all_uses_with(view.source)
            view.operation.erase()
        self.count(context, dropped=len(chosen))


def changes_nothing(view: ViewOp, sizes: dict[ir.Value, list[ir.Value]]) -> bool:
    identity = ir.AffineMap.get_identity(view.map.value.n_dims)
    return view.domain is None and view.map.value == identity and sizes.get(view.source) == view.sizes
