"""Ops of the table of variants: ``symshape.processors``, ``symshape.address``, ``symshape.variant``.

Together they are the decision table of a kernel, inside its function: conditions are index arithmetic over its index
arguments, the processors and the addresses, and the first variant whose condition holds is run.
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

from symshape.dialects.accessors import MIXED
from symshape.dialects.conditions import condition_of
from symshape.dialects.sizes import Sizes
from symshape.dialects.symshape import Op, bad
from symshape.machine.targets import GPU_MOST_WARPS
from symshape.prover.numbers.condition import Condition, equals
from symshape.prover.numbers.expr import Expr

SPLIT = ("split", "split_persistent")
MIXED_SPLIT, SEPARATE = "mixed_split", "separate"
REDUCTIONS = ("persistent", "headed", "looped", *SPLIT, MIXED, MIXED_SPLIT)
FORMS = ("pointwise", "tile", *REDUCTIONS, SEPARATE)
VARIANT_FIELDS = (
    *("name", "form", "xblock", "yblock", "rblock", "num_warps", "num_stages", "one_launch", "index_bits", "aligned"),
    "dims",
)
PROCESSORS = "processors"
ALIGNMENT = 16  # bytes of the widest access, and what Triton takes numbers to be multiples of
INDEX_BITS = (32, 64)


def _index() -> Any:
    return ext.result(default_factory=lambda: ir.IndexType.get())


class ProcessorsOp(Op, name="processors", traits=[ext.Pure]):
    """The number of multiprocessors (cores) of the device of a launch, read when it is launched.

    ```mlir
    %p = "symshape.processors"() : () -> index
    ```
    """

    result: ext.Result[ir.IndexType] = _index()


class AddressOp(Op, name="address", traits=[ext.Pure]):
    """The address of a tensor's first element in bytes, read when the kernel is launched.

    ```mlir
    %a = "symshape.address"(%x) : (tensor<?x256xf32>) -> index
    ```
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.IndexType] = _index()

    def verify_invariants(self) -> bool:
        return isinstance(self.source.owner, ir.Block) or bad(self, "takes an argument of the kernel only")


class VariantOp(Op, name="variant"):
    """One way to run the kernel that it is in, taken if ``condition`` holds and that of no variant before it did.

    ``form`` is one of

    - "pointwise": ``xblock`` of the points of all dims in a program;
    - "tile": ``yblock`` x ``xblock`` points of the two ``dims``, of which the second is the fast one of the stores;
    - "persistent": ``xblock`` rows in a program, with all their reduced points (no more than ``rblock``) at once;
    - "headed": the same in two blocks: ``rblock`` points that are all there, and up to ``yblock`` more;
    - "looped": ``xblock`` rows, their reduced points in steps of ``rblock``;
    - "split": like looped, but ``splits`` (the operand after the condition) programs share the reduced points, and a
      second launch combines what they found;
    - "split_persistent": the same, where each of these programs holds its ``rblock`` points at once. Of both the second
      launch takes ``yblock`` partial results of a row at a time;
    - "mixed", of a kernel that launches others: ``splits`` programs share the rows, ``xblock`` at a time with all their
      points at once, and reduce these along both dims; a second launch combines what they found of the columns;
    - "mixed_split", of such a kernel too: rows are reduced as in "split_persistent"; then programs have blocks of the
      columns, each as many points as a part, and go over all rows, ``xblock`` at a time;
    - "separate", of such a kernel too: its launches one after the other.

    ``num_stages``: in the form "mixed", groups of rows whose reads are under way together; else 1.
    ``one_launch``: in the forms "split" and "split_persistent", there is no second launch: of the programs that share
    rows, the one that ends last combines what all have found.
    ``aligned``: what divides by 16 when the condition holds (addresses in bytes, symbols and "xnumel", "rnumel", the
    numbers of parallel and of reduced points, in elements).

    ```mlir
    "symshape.variant"(%fits) {name = "persistent512", form = "persistent", xblock = 2 : i64, yblock = 0 : i64,
        rblock = 512 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64,
        aligned = ["in0", "s1"], dims = []} : (i1) -> ()
    "symshape.variant"(%few, %splits) {name = "split", form = "split", ...} : (i1, index) -> ()
    ```
    """

    name: ir.StringAttr
    form: ir.StringAttr
    xblock: ir.IntegerAttr
    yblock: ir.IntegerAttr
    rblock: ir.IntegerAttr
    num_warps: ir.IntegerAttr
    num_stages: ir.IntegerAttr
    one_launch: ir.IntegerAttr  # a BoolAttr
    index_bits: ir.IntegerAttr
    aligned: ir.ArrayAttr
    dims: ir.ArrayAttr
    condition: ext.Operand[ir.IntegerType]
    splits: Sequence[ext.Operand[ir.IndexType]]

    def verify_invariants(self) -> bool:
        form = self.form.value
        if form not in FORMS:
            return bad(self, f"form '{form}' is none of {', '.join(FORMS)}")
        if self.condition.type != ir.IntegerType.get_signless(1):
            return bad(self, f"condition is {self.condition.type}, not i1")
        if len(self.splits) != (form in ("split", MIXED)):
            return bad(self, f"form '{form}' has {len(self.splits)} split counts")
        if len(self.dims) != 2 * (form == "tile"):
            return bad(self, f"form '{form}' has {len(self.dims)} dims")
        if self.index_bits.value not in INDEX_BITS:
            return bad(self, f"index_bits {self.index_bits.value} is neither 32 nor 64")
        return self._verify_blocks(form)

    def _verify_blocks(self, form: str) -> bool:
        used = dict.fromkeys(("xblock", "num_warps"), form != SEPARATE)
        used |= {"yblock": form in ("tile", "headed", *SPLIT, MIXED, MIXED_SPLIT), "rblock": form in REDUCTIONS}
        for key, is_used in used.items():
            value = getattr(self, key).value
            if not is_used and value:
                return bad(self, f"form '{form}' has no {key}")
            if is_used and (value < 1 or value & (value - 1)):
                return bad(self, f"{key} {value} is no power of two")
        stages = self.num_stages.value
        if stages < 1 or stages > 1 and form != MIXED:
            return bad(self, f"form '{form}' cannot have num_stages {stages}")
        if self.one_launch.value and form not in SPLIT:
            return bad(self, f"form '{form}' has no launches to make one of")
        warps = self.num_warps.value
        return warps <= GPU_MOST_WARPS or bad(self, f"num_warps {warps} is more than {GPU_MOST_WARPS}")


def divides(expr: Expr) -> Condition:
    """Whether it is a multiple of ``ALIGNMENT``."""
    return equals(expr % ALIGNMENT, 0)


def multiple_of(condition: Condition) -> Expr | None:
    """e of a condition ``divides(e)``; None for another one."""
    if condition.kind != "eq" or len(condition.expr.terms) != 1:
        return None
    ((coefficient, atoms),) = condition.expr.terms
    atom: Any = atoms[0] if coefficient == 1 and len(atoms) == 1 else None
    return atom.args[0] if getattr(atom, "kind", "") == "mod" and atom.args[1] == ALIGNMENT else None


def address_name(position: int) -> str:
    """The symbol for the address of the kernel's tensor argument at a position."""
    return f"address{position}"


class PlanSizes(Sizes):
    """The sizes of a kernel function: its index arguments are "s0", "s1", ..., and what its table reads has names."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self.tensors: list[ir.Value] = []
        symbols = 0
        for value in block.arguments:
            if value.type == self.index_type:
                self.define(value, Expr.symbol(f"s{symbols}"))
                symbols += 1
            else:
                self.tensors.append(value)
        self._position = {value: i for i, value in enumerate(self.tensors)}

    def read(self, op: Any) -> bool:
        """Takes in one operation if it is about sizes, processors or addresses; False if it is not."""
        name = op.name
        if name == "symshape.processors":
            self.define(op.results[0], Expr.symbol(PROCESSORS))
            return True
        if name == "symshape.address":
            self.define(op.results[0], Expr.symbol(address_name(self._position[op.operands[0]])))
            return True
        return super().read(op)

    def condition(self, value: ir.Value) -> Condition:
        """The condition of an ``i1`` value. CompileError if it is not arithmetic on sizes."""
        return condition_of(self, value)

    def _atom(self, atom: Any) -> ir.Value:
        """Processors and addresses are read where they are first used."""
        name = getattr(atom, "name", "")
        if not hasattr(atom, "kind") and Expr.symbol(name) not in self:
            if name == PROCESSORS:
                value = ir.Operation.create("symshape.processors", [self.index_type]).result
            else:
                tensor = self.tensors[int(name.removeprefix("address"))]
                value = ir.Operation.create("symshape.address", [self.index_type], [tensor]).result
            self.define(value, Expr.symbol(name))
        return super()._atom(atom)
