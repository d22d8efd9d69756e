"""Ops of the main function: library calls, kernel launches, and calls of branches, loop bodies and layers.

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
    attention_attributes,
    branches_of,
    call_arguments,
    call_target,
    callee_of,
    carried_count,
    collective_number,
    is_kernel,
    is_layer,
    is_subgraph,
    is_wait,
    lists_count,
    loop_attributes,
    result_indices,
    sliced_count,
    stacks_steps,
    subgraphs_of,
    written_results,
)
from symshape.dialects.symshape import attribute, bad
from symshape.dialects.template import operand_indices


class Host(ir.Dialect):
    """The ops of the host program."""

    DIALECT_NAMESPACE = "host"


_OWN_MODULES = "python.symshape."
_COLLECTIVES = "_c10d_functional."


@_cext.register_operation(Host)
class CallOp(ir.OpView):
    """A library call to an ATen or custom op, on real tensors and numbers.

    ``arguments`` is the Python text of the call, ``$i`` its i-th operand. An op that returns a tuple has the indices of
    its results in ``result_indices``. ``fresh``: it changes no operand, and its results are new memory without aliases.
    ``draws``: it changes the state of the random number generator: such calls, and calls of subgraphs with such calls,
    keep their order. ``checked``: sizes and types of the results are compared with the promised ones at run time
    (custom operators). ``collective``: the number of this collective in the function, from 0 on: all ranks must make
    these calls in one order. A call of a subgraph with collectives has a number too. Until its wait (``wait_tensor``) a
    collective reads its operands and writes its results. ``reason``: why an operator with subgraphs is a call, and not
    ``host.cond``, ``host.attention`` or a loop.

    The target ``symshape.storage`` (for ``as_strided``) is no call: its result is a one-dimensional alias of the
    operand's storage from its first element on.

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
        if self.target.startswith(_COLLECTIVES) and collective_number(self) is None and not is_wait(self):
            return bad(self, "is a collective, and needs its number among those of the function ('collective')")
        if indices is not None and len(indices) != len(self.operation.results):
            return bad(self, f"has {len(self.operation.results)} results, but {len(indices)} result_indices")
        return True


@_cext.register_operation(Host)
class LaunchOp(ir.OpView):
    """A kernel launch: inputs, destinations, sizes, in the callee's order; one result per destination. A tensor type
    may have a constant where the callee's has a dynamic size: a kernel that serves several constants takes them as
    arguments.

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
        if function is None or not is_kernel(function):
            return bad(self, f"callee @{self.callee} is no function of this module with an attribute 'symshape.kernel'")
        inputs, results = function.type.inputs, function.type.results
        return _fit(self, "operand", [v.type for v in self.operation.operands], inputs, self.callee) and _fit(
            self, "result", [v.type for v in self.operation.results], results, self.callee
        )


@_cext.register_operation(Host)
class CondOp(ir.OpView):
    """Calls one of two functions, selected by the predicate: a boolean on the host, or a tensor with one element, for
    which the host waits. The operands after the predicate are the arguments of both.

    The functions are subgraphs (``symshape.subgraph``): their assumptions and checks hold in them alone. Where they
    return different sizes, the result has a dynamic one.

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
            function = _find_subgraph(self, name)
            if function is None:
                return False
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
class WhileOp(ir.OpView):
    """Calls ``body`` as long as ``cond`` returns true. Both are subgraphs, and take all operands.

    The first ``carried`` operands (tensors and integers) are the initial values; the results of ``body`` replace them
    in the next step. The results are the last carried values; with ``stacked``, those of every step, stacked along a
    new first dim, or the operands themselves, as one step, if there is none.

    ```mlir
    %i, %r = "host.while"(%zero, %x, %s0) {cond = @below, body = @step, carried = 2 : i64}
           : (index, tensor<?xf32>, index) -> (index, tensor<?xf32>)
    ```
    """

    OPERATION_NAME = "host.while"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        cond: str,
        body: str,
        carried: int,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        stacked: bool = False,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        functions = {"cond": ir.FlatSymbolRefAttr.get(cond), "body": ir.FlatSymbolRefAttr.get(body)}
        _create(self, args, results, functions | loop_attributes(carried, stacked=stacked), loc, ip)

    def verify_invariants(self) -> bool:
        if not _has(self, cond=ir.FlatSymbolRefAttr, body=ir.FlatSymbolRefAttr, carried=ir.IntegerAttr):
            return False
        given, results = [v.type for v in self.operation.operands], [v.type for v in self.operation.results]
        carried = carried_count(self)
        if not 0 < carried <= len(given):
            return bad(self, f"carries {carried} of {len(given)} operands")
        for name in subgraphs_of(self):
            function = _find_subgraph(self, name)
            if function is None or not _fit(self, "argument", given, function.type.inputs, name):
                return False
        cond, body = (_find_function(self, name) for name in subgraphs_of(self))
        if len(cond.type.results) != 1 or not _is_predicate(cond.type.results[0]):
            return bad(self, f"@{subgraphs_of(self)[0]} has to return an i1, or a tensor with one element")
        if not _fit(self, "carried value", given[:carried], body.type.results, subgraphs_of(self)[1]):
            return False
        returned = [_stacked(type_) for type_ in body.type.results] if stacks_steps(self) else body.type.results
        return _fit(self, "result", results, returned, subgraphs_of(self)[1])


@_cext.register_operation(Host)
class ScanOp(ir.OpView):
    """Calls ``body``, a subgraph, for every position along the first dim of the sliced operands.

    The operands are ``carried`` ones, as in ``host.while``; ``sliced`` ones, at least one, of which each step gets the
    slice at its position, without that dim; and others. ``body`` returns the carried values of the next step, and
    tensors that are stacked along a new first dim. The results are the last carried values and the stacks. Without
    carried values it is a map. ``written`` (set by ``write-slices``): indices of results whose slice each step writes
    itself: those slices are the last arguments of ``body``.

    ```mlir
    %c, %ys = "host.scan"(%zero, %xs, %w) {body = @combine, carried = 1 : i64, sliced = 1 : i64}
            : (tensor<?xf32>, tensor<?x?xf32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x?xf32>)
    ```
    """

    OPERATION_NAME = "host.scan"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        body: str,
        carried: int,
        sliced: int,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        attributes = {"body": ir.FlatSymbolRefAttr.get(body)} | loop_attributes(carried, sliced)
        _create(self, args, results, attributes, loc, ip)

    def verify_invariants(self) -> bool:
        if not _has(self, body=ir.FlatSymbolRefAttr, carried=ir.IntegerAttr, sliced=ir.IntegerAttr):
            return False
        (name,), carried, sliced = subgraphs_of(self), carried_count(self), sliced_count(self)
        given, results = [v.type for v in self.operation.operands], [v.type for v in self.operation.results]
        if carried < 0 or sliced < 1 or carried + sliced > len(given):
            return bad(self, f"carries {carried} and slices {sliced} of {len(given)} operands")
        xs = given[carried : carried + sliced]
        if not all(isinstance(type_, ir.RankedTensorType) and type_.rank for type_ in xs):
            return bad(self, "slices what has no dims")
        function = _find_subgraph(self, name)
        if function is None:
            return False
        returned = [*function.type.results[:carried], *map(_stacked, function.type.results[carried:])]
        written = written_results(self)
        if not all(carried <= i < len(returned) for i in written):
            return bad(self, f"written results {written} are not all stacks")
        arguments = [*given[:carried], *map(_slice, xs), *given[carried + sliced :]]
        arguments += [function.type.results[i] for i in written]
        return (
            _fit(self, "argument", arguments, function.type.inputs, name)
            and _fit(self, "carried value", given[:carried], function.type.results[:carried], name)
            and _fit(self, "result", results, returned, name)
        )


@_cext.register_operation(Host)
class AssociativeScanOp(ir.OpView):
    """Combines the slices along the first dim of the sliced operands by ``combine``, a subgraph: the first slice of a
    result is that of the operand, each later one ``combine`` of the one before it and of the operand's slice.

    The function is associative: it may be called in any order of brackets. The operands are ``sliced`` ones, at least
    one, and others. ``combine`` gets slices of results, slices of operands and the others, and returns slices; there
    is a result for each sliced operand. ``carried`` is 0. ``written`` as in ``host.scan``. ``inline-scans`` makes a
    kernel of one whose function is pointwise.

    ```mlir
    %ys = "host.associative_scan"(%xs, %w) {combine = @combine, carried = 0 : i64, sliced = 1 : i64}
        : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
    ```
    """

    OPERATION_NAME = "host.associative_scan"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        combine: str,
        sliced: int,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        attributes = {"combine": ir.FlatSymbolRefAttr.get(combine)} | loop_attributes(0, sliced)
        _create(self, args, results, attributes, loc, ip)

    def verify_invariants(self) -> bool:
        if not _has(self, combine=ir.FlatSymbolRefAttr, carried=ir.IntegerAttr, sliced=ir.IntegerAttr):
            return False
        (name,), sliced = subgraphs_of(self), sliced_count(self)
        given, results = [v.type for v in self.operation.operands], [v.type for v in self.operation.results]
        if sliced < 1 or sliced > len(given) or carried_count(self):
            return bad(self, f"slices {sliced} of {len(given)} operands, and carries {carried_count(self)}")
        xs = given[:sliced]
        if not all(isinstance(type_, ir.RankedTensorType) and type_.rank for type_ in xs):
            return bad(self, "slices what has no dims")
        function = _find_subgraph(self, name)
        if function is None:
            return False
        written = written_results(self)
        if not all(0 <= i < sliced for i in written):
            return bad(self, f"written results {written} are not all results")
        slices = [_slice(type_) for type_ in xs]
        arguments = [*slices, *slices, *given[sliced:], *(function.type.results[i] for i in written)]
        return (
            _fit(self, "argument", arguments, function.type.inputs, name)
            and _fit(self, "slice", slices, function.type.results, name)
            and _fit(self, "result", results, [_stacked(type_) for type_ in function.type.results], name)
        )


@_cext.register_operation(Host)
class AttentionOp(ir.OpView):
    """Attention of ``query``, ``key`` and ``value`` (batch, heads, length, features), tile by tile of its scores.

    The operands are these three; ``lists`` tensors of a block mask (numbers of blocks and their positions, for each
    block of rows; the second pair, if there is one, is of blocks that are not masked); the numbers of rows and columns
    of a block; and further operands of ``scores``. Blocks that are in no list are masked, and not computed.

    The functions are subgraphs. ``scores`` gets a tile of the products of queries and keys, and the batch, head, row
    and column where it starts; it returns the operand of the softmax, and the maximum of each row. ``weights`` gets
    these; it returns exponentials, and the sum of each row. ``whole``, if present, is called instead of both if all is
    one small tile: with query, key and value, of equal batches, and the further operands of ``scores``; it returns the
    results. ``written`` (set by ``write-slices``): which functions write their first result to memory that is their
    last argument.

    The results are the output, or the output, the logarithms (to base 2) of the sums of exponentials of each row, and
    the maxima in the same unit.

    ```mlir
    %o = "host.attention"(%q, %k, %v, %counts, %blocks, %c128, %c128, %slopes)
         {scores = @scores, weights = @weights, whole = @whole, lists = 2 : i64}
         : (tensor<?x8x?x64xf32>, ...) -> tensor<?x8x?x64xf32>
    ```
    """

    OPERATION_NAME = "host.attention"
    _ODS_REGIONS = (0, True)

    def __init__(
        self,
        scores: str,
        weights: str,
        lists: int,
        args: Sequence[ir.Value],
        results: Sequence[ir.Type],
        *,
        whole: str | None = None,
        loc: Any = None,
        ip: Any = None,
    ) -> None:
        names = {"scores": scores, "weights": weights} | ({} if whole is None else {"whole": whole})
        functions = {key: ir.FlatSymbolRefAttr.get(name) for key, name in names.items()}
        _create(self, args, results, functions | attention_attributes(lists), loc, ip)

    def verify_invariants(self) -> bool:
        if not _has(self, scores=ir.FlatSymbolRefAttr, weights=ir.FlatSymbolRefAttr, lists=ir.IntegerAttr):
            return False
        given, count = [v.type for v in self.operation.operands], lists_count(self)
        if count not in (2, 4) or len(given) < 5 + count:
            return bad(self, f"has {count} lists, which are 2 or 4, and {len(given)} operands")
        if not all(isinstance(type_, ir.RankedTensorType) for type_ in given[: 3 + count]):
            return bad(self, "takes tensors, and lists of blocks that are tensors")
        if not all(str(type_) == "index" for type_ in given[3 + count : 5 + count]):
            return bad(self, "needs the number of rows and of columns of a block")
        if len(self.operation.results) not in (1, 3):
            return bad(self, f"has {len(self.operation.results)} results, which are 1 or 3")
        names = subgraphs_of(self)
        functions = [_find_subgraph(self, name) for name in names]
        if any(function is None for function in functions):
            return False
        types, written = [f.type for f in functions], written_results(self)
        memory = [type_.results[:1] if i in written else [] for i, type_ in enumerate(types)]
        scores, weights = types[:2]
        captured = given[5 + count :]
        if not _fit(
            self, "captured value", [*scores.inputs[:5], *captured, *memory[0]], scores.inputs, names[0]
        ) or not _fit(self, "score and maximum", [*scores.results, *memory[1]], weights.inputs, names[1]):
            return False
        results = [v.type for v in self.operation.results]
        return all(
            _fit(self, "operand", [*given[:3], *captured, *of_whole], whole.inputs, name)
            and _fit(self, "result", results, whole.results, name)
            for whole, name, of_whole in zip(types[2:], names[2:], memory[2:])
        )


def _slice(stack: ir.RankedTensorType) -> ir.Type:
    return _tensor(stack, stack.shape[1:])


def _stacked(slice_: ir.Type) -> ir.Type:
    """The type of a stack of any number of slices; for a slice that is no tensor, a type that matches nothing."""
    if not isinstance(slice_, ir.RankedTensorType):
        return ir.NoneType.get(slice_.context)
    return _tensor(slice_, [ir.ShapedType.get_dynamic_size(), *slice_.shape])


def _tensor(like: ir.RankedTensorType, sizes: Sequence[int]) -> ir.Type:
    return ir.RankedTensorType.get(sizes, like.element_type, loc=ir.Location.unknown(like.context))


@_cext.register_operation(Host)
class LayerOp(ir.OpView):
    """Calls a function that several layers share (``symshape.layer``): tensors are passed, symbols are main's.

    Its location has the locations of this layer's operations, one for each call in the function, in order; the function
    itself has those of the first layer. ``inline-layers`` inlines the function.

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


HostOp = CallOp | LaunchOp | CondOp | WhileOp | ScanOp | AssociativeScanOp | AttentionOp | LayerOp
_OPS: tuple[type[HostOp], ...] = (
    CallOp,
    LaunchOp,
    CondOp,
    WhileOp,
    ScanOp,
    AssociativeScanOp,
    AttentionOp,
    LayerOp,
)
HOST_OPS: dict[str, type[HostOp]] = {cls.OPERATION_NAME: cls for cls in _OPS}


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


def _find_subgraph(op: HostOp, name: str) -> Any:
    """The subgraph with this name; reports an error and returns None if there is none."""
    function = _find_function(op, name)
    if function is None:
        bad(op, f"subgraph @{name} is no function of this module")
    elif not is_subgraph(function):
        bad(op, f"@{name} is no subgraph: it has no attribute 'symshape.subgraph'")
        return None
    return function


def _fit(op: HostOp, what: str, given: Sequence[ir.Type], expected: Sequence[ir.Type], callee: str) -> bool:
    """Whether types are equal, except for sizes that are dynamic on one side."""
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
