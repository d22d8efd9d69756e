"""Ops for symbols and layouts: ``symshape.symbol``, ``symshape.unbacked_symbol``, ``symshape.bind``."""

import re
from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import ext

from symshape.dialects.symshape import Op, bad, enclosing_function

_BINDING = re.compile(
    r"\(?arg(?P<arg>\d+)(?:\.(?P<part>size|stride)\((?P<dim>\d+)\)|\.(?P<offset>offset))?"
    r"(?: - (?P<rest>-?\d+)\) // (?P<factor>-?\d+))?"
)
SYMBOLS = ("symshape.symbol", "symshape.unbacked_symbol")


class SymbolOp(Op, name="symbol", traits=[ext.Pure]):
    """A backed symbol with its range and divisor, which prover, kernels and guard stub use.

    ``binding`` is where the value is read: "arg3" (an index argument), "arg0.size(1)", "arg0.stride(0)", "arg0.offset",
    "(arg0.size(1) - 4) // 2" if only a size 2 * s0 + 4 contains it. ``source`` is the framework's name for it, for
    messages; ``hint`` its value at the first call, -1 for none.

    ```mlir
    %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64,
                               source = "L['x'].size()[0]", binding = "arg0.size(0)"} : () -> index
    ```
    """

    name: ir.StringAttr
    min: ir.IntegerAttr
    max: ir.IntegerAttr
    divisor: ir.IntegerAttr
    hint: ir.IntegerAttr
    source: ir.StringAttr
    binding: ir.StringAttr
    result: ext.Result[ir.IndexType] = ext.result(default_factory=lambda: ir.IndexType.get())

    @property
    def symbol_name(self) -> str:
        return ir.StringAttr(self.operation.attributes["name"]).value

    def verify_invariants(self) -> bool:
        low, high, divisor, hint = self.min.value, self.max.value, self.divisor.value, self.hint.value
        if divisor < 1:
            return bad(self, f"divisor {divisor} is less than 1")
        if hint != -1 and not low <= hint <= high:
            return _verify_name_and_range(self) and bad(self, f"hint {hint} is outside of [{low}, {high}]")
        if hint != -1 and hint % divisor:
            return bad(self, f"hint {hint} is not a multiple of divisor {divisor}")
        return _verify_name_and_range(self) and _verify_binding(self)


class UnbackedSymbolOp(Op, name="unbacked_symbol", traits=[ext.Pure], optional=("dim",)):
    """A data-dependent size, read from a value when it exists: a tensor's only element (kind "item"), a size or stride
    of a tensor (kind "size" or "stride", with ``dim``), or an integer that a library call computes (kind "number").

    ```mlir
    %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "item"}
          : (tensor<i64>) -> index
    %u1 = "symshape.unbacked_symbol"(%x) {name = "u1", min = 0 : i64, max = 4096 : i64, kind = "size", dim = 1 : i64}
          : (tensor<2x?xi64>) -> index
    ```
    """

    name: ir.StringAttr
    min: ir.IntegerAttr
    max: ir.IntegerAttr
    kind: ir.StringAttr
    source: ext.Operand[ir.RankedTensorType | ir.IndexType]
    result: ext.Result[ir.IndexType] = ext.result(default_factory=lambda: ir.IndexType.get())

    @property
    def symbol_name(self) -> str:
        return ir.StringAttr(self.operation.attributes["name"]).value

    def verify_invariants(self) -> bool:
        kind, dim, type_ = self.kind.value, self.dim, self.source.type
        if kind not in ("item", "size", "stride", "number"):
            return bad(self, f"kind '{kind}' is none of 'item', 'size', 'stride', 'number'")
        if isinstance(type_, ir.IndexType) != (kind == "number"):
            return bad(self, f"kind '{kind}' is not read from {type_}")
        if kind == "number":
            return _verify_name_and_range(self)
        type_ = ir.RankedTensorType(type_)
        if kind != "item" and (not isinstance(dim, ir.IntegerAttr) or not 0 <= dim.value < type_.rank):
            return bad(self, f"kind '{kind}' needs a dim of its tensor, which has rank {type_.rank}")
        if kind == "item" and any(type_.is_dynamic_dim(i) or type_.shape[i] != 1 for i in range(type_.rank)):
            return bad(self, f"kind 'item' needs a tensor of one element, not {type_}")
        return _verify_name_and_range(self)


class BindOp(Op, name="bind", optional=("device", "negated")):
    """Gives a tensor its layout: its sizes, its strides, its storage offset (all in elements).

    ``device``: the tensor's device, if it is another one than the graph's kernels run on ("cpu", "cuda:1", "meta").
    Kernels cannot read such a tensor, except for the number in a CPU tensor without dims. ``negated``: its elements are
    those in memory times -1 (PyTorch's negative bit): kernels cannot read such a tensor either.

    ```mlir
    "symshape.bind"(%x, %s0, %c256, %c256, %c1, %c0) : (tensor<?x256xf32>, index, index, index, index, index) -> ()
    "symshape.bind"(%scale, %c0) {device = "cpu"} : (tensor<f32>, index) -> ()
    ```
    """

    tensor: ext.Operand[ir.RankedTensorType]
    layout: Sequence[ext.Operand[ir.IndexType]]

    @property
    def rank(self) -> int:
        return ir.RankedTensorType(self.tensor.type).rank

    @property
    def sizes(self) -> Sequence[ir.Value]:
        return self.layout[: self.rank]

    @property
    def strides(self) -> Sequence[ir.Value]:
        return self.layout[self.rank : 2 * self.rank]

    @property
    def offset(self) -> ir.Value:
        return self.layout[-1]

    def verify_invariants(self) -> bool:
        operands = self.operation.operands
        given, rank = len(operands) - 1, ir.RankedTensorType(operands[0].type).rank
        if given != 2 * rank + 1:
            expected = f"{rank} sizes, {rank} strides and an offset"
            return bad(
                self, f"has {given} layout operands, but a tensor of rank {rank} needs {2 * rank + 1}: {expected}"
            )
        device = self.device
        if device is not None and not (isinstance(device, ir.StringAttr) and device.value):
            return bad(self, "device is no name of a device")
        return True


def parse_binding(text: str) -> tuple[int, str, int] | None:
    """ "arg0.size(1)" as (0, "size", 1); the part is "value" for "arg3" and "offset" for "arg0.offset". None: no
    binding. Of "(arg0.size(1) - 4) // 2" the same: ``parse_inverse`` gives the rest.
    """
    match = _BINDING.fullmatch(text)
    if match is None or text.startswith("(") != bool(match["factor"]):
        return None
    return int(match["arg"]), match["part"] or match["offset"] or "value", int(match["dim"] or 0)


def parse_inverse(text: str) -> tuple[int, int]:
    """(subtrahend, divisor) that are applied to the integer that is read; 0 and 1 for a plain binding."""
    match = _BINDING.fullmatch(text)
    return (int(match["rest"]), int(match["factor"])) if match and match["factor"] else (0, 1)


def _verify_name_and_range(op: SymbolOp | UnbackedSymbolOp) -> bool:
    name, low, high = op.symbol_name, op.min.value, op.max.value
    if not name:
        return bad(op, "has an empty name")
    if low > high:
        return bad(op, f"min {low} is greater than max {high}")
    return enclosing_function(op) is not None or bad(op, "must be inside a function")


def _verify_binding(op: SymbolOp) -> bool:
    text = op.binding.value
    binding, function = parse_binding(text), enclosing_function(op)
    if binding is None or function is None:
        forms = "'argN', 'argN.size(D)', 'argN.stride(D)' or 'argN.offset'"
        return bad(op, f"binding '{text}' is not one of {forms}")
    position, part, dim = binding
    arguments = function.operation.regions[0].blocks[0].arguments  # its type would make a list of all their types
    if position >= len(arguments):
        return bad(op, f"binding '{text}' names argument {position}, but the function has {len(arguments)}")
    type_ = arguments[position].type
    if part == "value":
        return isinstance(type_, ir.IndexType) or bad(op, f"binding '{text}' needs an index argument, not {type_}")
    if not isinstance(type_, ir.RankedTensorType):
        return bad(op, f"binding '{text}' needs a tensor argument, not {type_}")
    if part != "offset" and dim >= type_.rank:
        return bad(op, f"binding '{text}' names dim {dim} of a tensor of rank {type_.rank}")
    return True
