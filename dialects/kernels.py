"""Ops of kernels: ``symshape.view``, ``symshape.store``, ``symshape.scatter``, ``symshape.space``,
``symshape.check_index``."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

from symshape.dialects.symshape import Op, bad, set_constraints

PARALLEL, REDUCTION = "parallel", "reduction"
INDEX_ERRORS = {"": 1, "offsets": 3}  # what ``symshape.check_index`` finds: what it writes to the error slot
SCATTERS = ("set", "add", "mul", "max", "min")


class ViewOp(Op, name="view", traits=[ext.Pure], optional=("domain",)):
    """Pure index remapping: ``result[d...] = source[map(d...)[symbols...]]``.

    Operands: the source, the result's sizes (one per result dim), the map's symbols. ``domain`` (an integer set over
    the same dims and symbols): the points at which reading is defined; elsewhere the value is unspecified, nothing is
    read, and the consumer selects it away (cat, pad).

    ```mlir
    %v = "symshape.view"(%x, %n, %m, %s0) {map = affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)>}
         : (tensor<?xf32>, index, index, index) -> tensor<?x?xf32>
    ```
    """

    map: ir.AffineMapAttr
    source: ext.Operand[ir.RankedTensorType]
    indices: Sequence[ext.Operand[ir.IndexType]]
    result: ext.Result[ir.RankedTensorType]

    @property
    def sizes(self) -> Sequence[ir.Value]:
        return self.indices[: ir.RankedTensorType(self.result.type).rank]

    @property
    def symbols(self) -> Sequence[ir.Value]:
        return self.indices[ir.RankedTensorType(self.result.type).rank :]

    def verify_invariants(self) -> bool:
        source, result = ir.RankedTensorType(self.source.type), ir.RankedTensorType(self.result.type)
        map_, indices = self.map.value, self.indices
        if len(indices) < result.rank:
            return bad(self, f"has {len(indices)} index operands, but its result has {result.rank} sizes")
        arities = (
            ("dims", map_.n_dims, "its result has rank", result.rank),
            ("results", len(map_.results), "its source has rank", source.rank),
            ("symbols", map_.n_symbols, "its operands after the sizes are", len(indices) - result.rank),
        )
        if not _same_arities(self, arities):
            return False
        if source.element_type != result.element_type:
            return bad(self, f"turns {source.element_type} into {result.element_type}: a view keeps the element type")
        return self.domain is None or _verify_domain(self, map_)


class StoreOp(Op, name="store", traits=[ext.Pure]):
    """Kernel boundary, only inside kernels: writes a value (over the kernel's space, or its parallel dims) into
    ``dest`` at ``map``. Operands: value, dest, the map's symbols. The result is the written destination.

    ```mlir
    %o = "symshape.store"(%value, %dest, %s0) {map = affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)>}
         : (tensor<?x256xf32>, tensor<?xf32>, index) -> tensor<?xf32>
    ```
    """

    map: ir.AffineMapAttr
    value: ext.Operand[ir.RankedTensorType]
    dest: ext.Operand[ir.RankedTensorType]
    symbols: Sequence[ext.Operand[ir.IndexType]]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        value, dest = ir.RankedTensorType(self.value.type), ir.RankedTensorType(self.dest.type)
        map_ = self.map.value
        arities = (
            ("dims", map_.n_dims, "its value has rank", value.rank),
            ("results", len(map_.results), "its destination has rank", dest.rank),
            ("symbols", map_.n_symbols, "its operands after the destination are", len(self.symbols)),
        )
        if not _same_arities(self, arities):
            return False
        if value.element_type != dest.element_type:
            return bad(self, f"stores {value.element_type} into {dest.element_type}")
        return self.result.type == dest or bad(self, f"result is {self.result.type}, but its destination {dest}")


class ScatterOp(Op, name="scatter", traits=[ext.Pure]):
    """Kernel boundary, only inside kernels: ``dest`` is ``source``, with one element combined with ``value`` at each
    point of the space, in the order of its reduced dims. Operands: value, source, dest, an i64 tensor over the space
    for each -1 in ``dims``.

    ``dims`` says for each dim of ``dest`` which dim of the space is the index along it, or -1: the next of the index
    operands. Points that differ in a parallel dim write to different elements. ``combiner``: "set", "add", "mul",
    "max", "min".

    ```mlir
    %o = "symshape.scatter"(%value, %x, %dest, %i) {dims = [-1, 1], combiner = "add"}
         : (tensor<?x256xf32>, tensor<?x256xf32>, tensor<?x256xf32>, tensor<?x256xi64>) -> tensor<?x256xf32>
    ```
    """

    dims: ir.ArrayAttr
    combiner: ir.StringAttr
    value: ext.Operand[ir.RankedTensorType]
    source: ext.Operand[ir.RankedTensorType]
    dest: ext.Operand[ir.RankedTensorType]
    indices: Sequence[ext.Operand[ir.RankedTensorType]]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        if not all(isinstance(dim, ir.IntegerAttr) for dim in self.dims):
            return bad(self, f"dims {self.dims} are not all integers")
        dest, dims = ir.RankedTensorType(self.dest.type), [ir.IntegerAttr(dim).value for dim in self.dims]
        space = ir.RankedTensorType(self.value.type).rank
        if not all(-1 <= dim < space for dim in dims):
            return bad(self, f"dims {dims} are not all -1 or a dim of the value, which has rank {space}")
        if self.combiner.value not in SCATTERS:
            return bad(self, f"combiner '{self.combiner.value}' is none of {', '.join(SCATTERS)}")
        if len(dims) != dest.rank or dims.count(-1) != len(self.indices):
            return bad(self, f"dims {dims} do not fit rank {dest.rank} and {len(self.indices)} indices")
        for what in (self.value, self.source):
            if ir.RankedTensorType(what.type).element_type != dest.element_type:
                return bad(self, f"scatters {what.type} into {dest.element_type}")
        return self.result.type == dest or bad(self, f"result is {self.result.type}, but its destination {dest}")


class SpaceOp(Op, name="space"):
    """The iteration space of the kernel it is in: one size and one iterator ("parallel" or "reduction") per dim.

    ```mlir
    "symshape.space"(%s0, %c256) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
    ```
    """

    iterators: ir.ArrayAttr
    sizes: Sequence[ext.Operand[ir.IndexType]]

    def verify_invariants(self) -> bool:
        iterators, sizes = list(self.iterators), len(self.sizes)
        for iterator in iterators:
            if not isinstance(iterator, ir.StringAttr) or iterator.value not in (PARALLEL, REDUCTION):
                return bad(self, f"iterator {iterator} is neither '{PARALLEL}' nor '{REDUCTION}'")
        return len(iterators) == sizes or bad(self, f"has {len(iterators)} iterators, but {sizes} sizes")


class CheckIndexOp(Op, name="check_index", traits=[ext.Pure], optional=("error",)):
    """In the body of a ``linalg.generic``: an index that must be in [0, size). Outside it is eager mode's IndexError at
    run time, and the value used is clamped. ``error = "offsets"``: a RuntimeError for invalid offsets of rows.

    ```mlir
    %j = "symshape.check_index"(%i, %size) {message = "index out of range in self"} : (index, index) -> index
    ```
    """

    message: ir.StringAttr
    index: ext.Operand[ir.IndexType]
    size: ext.Operand[ir.IndexType]
    result: ext.Result[ir.IndexType] = ext.result(default_factory=lambda: ir.IndexType.get())

    def verify_invariants(self) -> bool:
        error = self.error
        if error is not None and not (isinstance(error, ir.StringAttr) and error.value in INDEX_ERRORS):
            return bad(self, f"error {self.error} is none of {', '.join(filter(None, INDEX_ERRORS))}")
        return bool(self.message.value) or bad(self, "has an empty message")


def _same_arities(op: ir.OpView, rows: Sequence[tuple[str, int, str, int]]) -> bool:
    for what, count, whose, expected in rows:
        if count != expected:
            return bad(op, f"map has {count} {what}, but {whose} {expected}")
    return True


def _verify_domain(op: ViewOp, map_: ir.AffineMap) -> bool:
    domain: Any = op.domain
    if not isinstance(domain, ir.IntegerSetAttr):
        return bad(op, f"domain {domain} is no integer set")
    points, _ = set_constraints(domain)
    mine, theirs = (points.n_dims, points.n_symbols), (map_.n_dims, map_.n_symbols)
    if mine != theirs:
        return bad(op, f"domain has (dims, symbols) {mine}, but the map has {theirs}")
    return True
