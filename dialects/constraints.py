"""Ops for constraints on sizes: ``symshape.assume``, ``symshape.expect_true``, ``symshape.guard``.

None of them has effect traits, so no cleanup removes them. The op's location is the user's line.
"""

from torch_mlir import ir
from torch_mlir.dialects import ext

from symshape.dialects.symshape import Op, bad


class AssumeOp(Op, name="assume"):
    """A fact, trusted. No code is generated for it; the prover and the kernels use it.

    ```mlir
    "symshape.assume"(%cond) : (i1) -> ()
    ```
    """

    condition: ext.Operand[ir.IntegerType[1]]


class ExpectTrueOp(Op, name="expect_true"):
    """Must hold. Proven: it vanishes. Not proven: checked once at run time, as early as its operands exist; failing
    is an error with ``message``, the user's line, the symbols and their values.

    ```mlir
    "symshape.expect_true"(%cond) {message = "sizes of cat must match"} : (i1) -> ()
    ```
    """

    condition: ext.Operand[ir.IntegerType[1]]
    message: ir.StringAttr

    def verify_invariants(self) -> bool:
        return bool(self.message.value) or bad(self, "has an empty message: whoever sees it fail needs one")


class GuardOp(Op, name="guard"):
    """Holds for this compiled entry. Not holding is no error: another entry is chosen or compiled.

    ```mlir
    "symshape.guard"(%cond) {reason = "the tile divides s0"} : (i1) -> ()
    ```
    """

    condition: ext.Operand[ir.IntegerType[1]]
    reason: ir.StringAttr

    def verify_invariants(self) -> bool:
        return bool(self.reason.value) or bad(self, "has an empty reason: reports quote it")
