"""What the main function does: library calls, kernel launches, and calls of branches and layers.

They have a namespace of their own, which MLIR does not know: an op that is defined from Python takes variadic
operands of one type only (every constraint is bound once per op), and calls take tensors of all types. So these are
unregistered ops, ``load`` allows such, and ``symshape.dialects.verify`` checks them (and rejects any other
unregistered op). MLIR never removes, merges or moves an op that it does not know, which is what calls and launches
need.
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects._ods_common import _cext

from symshape.dialects.accessors import (
    branches_of,
    call_arguments,
    call_target,
    callee_of,
    is_branch,
    is_layer,
    result_indices,
)
from symshape.dialects.symshape import attribute, bad
from symshape.dialects.template import operand_indices


class Host(ir.Dialect):
    """The ops of the host program."""

    DIALECT_NAMESPACE = "host"


_OWN_MODULES = "python.symshape."


@_cext.register_operation(Host)
class CallOp(ir.OpView):
    """A library call to an ATen or custom op, on real tensors and numbers.

    ``arguments`` is the Python text of the call, ``$i`` its i-th operand. An op that returns a tuple names the
    positions of its results in ``result_indices``. ``fresh`` says that it changes no operand, and that its results are
    in memory of their own, which nothing else knows. ``draws`` says that it moves the generator of random numbers on:
    such calls, and ``host.cond`` of branches with such calls, keep their order. ``checked`` says that sizes and types
    of the results are compared with the promised ones at run time (custom operators).

    The target ``symshape.storage`` (of ``as_strided``) is no call: its result is an alias of the operand's memory from
    its first element on, of one dim.

    ```mlir
    %r = "host.call"(%a, %b) {target = "aten.add.Tensor", arguments = "($0, $1, alpha=2)"}
         : (tensor<?x256xf32>, tensor<256xf32>) -> tensor<?x256xf32>
    %v:2 = "host.call"(%a) {target = "aten.max.dim", arguments = "($0, 1)", result_indices = array<i64: 0, 1>}
         : (tensor<?x256xf32>) -> (tensor<?xf32>, tensor<?xi64>)
    ```
    """

    OPERATION_NAME = "host.call"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        target: str,
        arguments: str,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        result_indices: Sequence[int] | None = None,
        fresh: bool = False,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        attributes = {"target": attribute(target), "arguments": attribute(arguments)}
        if fresh:
            attributes["fresh"] = ir.UnitAttr.get()
        if result_indices is not None:
            attributes["result_indices"] = ir.DenseI64ArrayAttr.get(list(result_indices))
        _create(self, args, results, attributes, loc, ip)

    @property
    def target(self) -> str:
        return call_target(self)

    @property
    def arguments(self) -> str:
        return call_arguments(self)

    @property
    def result_indices(self) -> list[int] | None:
        return result_indices(self)

    def verify_invariants(self) -> bool:
        if not _has(self, target=ir.StringAttr, arguments=ir.StringAttr):
            return False
        if "result_indices" in self.operation.attributes and not _has(self, result_indices=ir.DenseI64ArrayAttr):
            return False
        text, given, indices = self.arguments, len(self.operation.operands), self.result_indices
        if not self.target:
            return bad(self, "has an empty target")
        if self.target.startswith(_OWN_MODULES):
            return bad(self, f"target '{self.target}' is a path of a module of ours: what is called is registered")
        if not (text.startswith("(") and text.endswith(")")):
            return bad(self, f"arguments '{text}' are not a parenthesised call")
        for i in operand_indices(text):
            if i >= given:
                return bad(self, f"arguments name ${i}, but the call has {given} operands")
        if indices is not None and len(indices) != len(self.operation.results):
            return bad(self, f"has {len(self.operation.results)} results, but {len(indices)} result_indices")
        return True


@_cext.register_operation(Host)
class LaunchOp(ir.OpView):
    """A kernel launch: inputs, destinations, index symbols, in the callee's order; one result per destination.

    ```mlir
    %r = "host.launch"(%x, %dest, %s0) {callee = @kernel_0}
         : (tensor<?x256xf32>, tensor<?x256xf32>, index) -> tensor<?x256xf32>
    ```
    """

    OPERATION_NAME = "host.launch"
    _ODS_REGIONS = (0, True)

    def __init__(
        self, callee: str, args: Sequence[ir.Value], results: Sequence[ir.Type], *, loc: Any = None, ip: Any = None
    ) -> None:
        _create(self, args, results, {"callee": ir.FlatSymbolRefAttr.get(callee)}, loc, ip)

    @property
    def callee(self) -> str:
        return callee_of(self)

    def verify_invariants(self) -> bool:
        if not _has(self, callee=ir.FlatSymbolRefAttr):
            return False
        function = _find_function(self, self.callee)
        if function is None:
            return bad(self, f"callee @{self.callee} is no function of this module")
        inputs, results = function.type.inputs, function.type.results
        return _same_types(self, "operand", [v.type for v in self.operation.operands], inputs) and _same_types(
            self, "result", [v.type for v in self.operation.results], results
        )


@_cext.register_operation(Host)
class CondOp(ir.OpView):
    """Calls one of two functions, as the predicate says: a boolean that the host knows, or a tensor with one element,
    for which it waits. The operands after the predicate are the arguments of both.

    The functions are branches (``symshape.branch``): what they assume, and what they check, holds in them alone.
    Where the sizes that they return differ, the result has a dynamic one.

    ```mlir
    %r = "host.cond"(%p, %x, %s0) {true = @double, false = @negate}
         : (tensor<i1>, tensor<?xf32>, index) -> tensor<?xf32>
    ```
    """

    OPERATION_NAME = "host.cond"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        predicate: ir.Value,
        true: str,
        false: str,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        branches = {"true": ir.FlatSymbolRefAttr.get(true), "false": ir.FlatSymbolRefAttr.get(false)}
        _create(self, [predicate, *args], results, branches, loc, ip)

    @property
    def branches(self) -> tuple[str, str]:
        """The names of the functions for true and for false."""
        return branches_of(self)

    def verify_invariants(self) -> bool:
        if not _has(self, true=ir.FlatSymbolRefAttr, false=ir.FlatSymbolRefAttr):
            return False
        operands = list(self.operation.operands)
        if not operands or not _is_predicate(operands[0].type):
            return bad(self, "needs a predicate: an i1, or a tensor with one element")
        given, results = [v.type for v in operands[1:]], [v.type for v in self.operation.results]
        for name in self.branches:
            function = _find_function(self, name)
            if function is None:
                return bad(self, f"branch @{name} is no function of this module")
            if not is_branch(function):
                return bad(self, f"@{name} is no branch: it has no attribute 'symshape.branch'")
            if not (
                _fit(self, "argument", given, function.type.inputs, name)
                and _fit(self, "result", results, function.type.results, name)
            ):
                return False
        return True


def _is_predicate(type_: ir.Type) -> bool:
    if isinstance(type_, ir.RankedTensorType):
        return all(not type_.is_dynamic_dim(i) and type_.get_dim_size(i) == 1 for i in range(type_.rank))
    return str(type_) == "i1"


@_cext.register_operation(Host)
class LayerOp(ir.OpView):
    """Calls a function that several layers share (``symshape.layer``): its tensors are given, its symbols are main's.

    Its location says where this layer's operations come from, one for each call in the function, in order, as that of
    the function does for the first layer. ``inline-layers`` puts the function in its place.

    ```mlir
    %r = "host.layer"(%x, %w, %s0) {callee = @layer_0}
         : (tensor<?x256xf32>, tensor<256x256xf32>, index) -> tensor<?x256xf32> loc(fused["mm_3", "relu_3"])
    ```
    """

    OPERATION_NAME = "host.layer"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        callee: str,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        _create(self, args, results, {"callee": ir.FlatSymbolRefAttr.get(callee)}, loc, ip)

    def verify_invariants(self) -> bool:
        if not _has(self, callee=ir.FlatSymbolRefAttr):
            return False
        name = callee_of(self)
        function = _find_function(self, name)
        if function is None or not is_layer(function):
            return bad(self, f"callee @{name} is no function of this module with an attribute 'symshape.layer'")
        given, results = [v.type for v in self.operation.operands], [v.type for v in self.operation.results]
        return _fit(self, "operand", given, function.type.inputs, name) and _fit(
            self, "result", results, function.type.results, name
        )


HostOp = CallOp | LaunchOp | CondOp | LayerOp
HOST_OPS: dict[str, type[HostOp]] = {cls.OPERATION_NAME: cls for cls in (CallOp, LaunchOp, CondOp, LayerOp)}


def _create(
    op: HostOp,
    args: Sequence[ir.Value],
    results: Sequence[ir.Type],
    attributes: dict[str, Any],
    loc: Any,
    ip: Any,
) -> None:
    ir.OpView.__init__(
        op,
        op.OPERATION_NAME,
        op._ODS_REGIONS,
        None,
        None,
        attributes=attributes,
        operands=list(args),
        results=list(results),
        loc=loc,
        ip=ip,
    )


def _has(op: HostOp, **kinds: type[ir.Attribute]) -> bool:
    attributes = op.operation.attributes
    for key, kind in kinds.items():
        if key not in attributes or not isinstance(attributes[key], kind):
            return bad(op, f"needs an attribute '{key}' of type {kind.__name__}")
    return True


def _find_function(op: HostOp, name: str) -> Any:
    module = op.operation.parent
    while module is not None and module.operation.name != "builtin.module":
        module = module.operation.parent
    if module is None:
        return None
    table = ir.SymbolTable(module.operation)
    found = table[name] if name in table else None
    return found if found is not None and found.operation.name == "func.func" else None


def _same_types(op: LaunchOp, what: str, given: Sequence[ir.Type], expected: Sequence[ir.Type]) -> bool:
    callee = f"@{op.callee}"
    if len(given) != len(expected):
        return bad(op, f"has {len(given)} {what}s, but {callee} has {len(expected)}")
    for i, (mine, theirs) in enumerate(zip(given, expected)):
        if mine != theirs:
            return bad(op, f"{what} {i} is {mine}, but {callee} says {theirs}")
    return True


def _fit(op: HostOp, what: str, given: Sequence[ir.Type], expected: Sequence[ir.Type], callee: str) -> bool:
    """Whether types are the same, but for sizes that only one side knows."""
    if len(given) != len(expected):
        return bad(op, f"has {len(given)} {what}s, but @{callee} has {len(expected)}")
    for i, (mine, theirs) in enumerate(zip(given, expected)):
        if mine != theirs and not _is_cast(mine, theirs):
            return bad(op, f"{what} {i} is {mine}, but @{callee} says {theirs}")
    return True


def _is_cast(a: ir.Type, b: ir.Type) -> bool:
    if not isinstance(a, ir.RankedTensorType) or not isinstance(b, ir.RankedTensorType):
        return False
    if a.rank != b.rank or a.element_type != b.element_type:
        return False
    return all(
        a.is_dynamic_dim(i) or b.is_dynamic_dim(i) or a.get_dim_size(i) == b.get_dim_size(i) for i in range(a.rank)
    )
