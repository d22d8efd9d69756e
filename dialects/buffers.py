"""``symshape.reuse``: a buffer that takes the memory of a dead tensor."""

from torch_mlir import ir
from torch_mlir.dialects import ext

from symshape.dialects.symshape import Op, bad


class ReuseOp(Op, name="reuse"):
    """The memory of a tensor, as the destination of a launch: a ``tensor.empty`` that allocates nothing.

    The source's data is lost once the launch writes its destination: no operation after the launch reads the source or
    a view of it, and the launch itself reads it only if the kernel may write in place (``symshape.in_place``). Both
    have the same number of bytes, which the pass that writes this op must prove.

    ```mlir
    %d = "symshape.reuse"(%dead) : (tensor<?x256xf32>) -> tensor<256x?xf32>
    ```
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        users = {use.owner.operation.name for use in self.result.uses}
        return users <= {"host.launch"} or bad(self, "is a destination of launches only")
