"""Interprets a module of the stages ``imported`` to ``linalg`` on real tensors, and checks what code generation relies
on: every read is in bounds, every tensor has the sizes of its bind, what is undefined is never used."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from interpreter_ops import TYPES, evaluate
from torch_mlir import ir

from symshape.dialects import parse_binding, parse_inverse, set_constraints
from symshape.dialects.template import TorchName, instantiate
from symshape.runtime.program import resolve_target

Env = dict[ir.Value, Any]
Grid = list[torch.Tensor]
POISON = {
    torch.float32: float("nan"),
    torch.float64: float("nan"),
    torch.float16: float("nan"),
    torch.bfloat16: float("nan"),
}


def run(module: ir.Module, inputs: Sequence[Any], constants: Sequence[Any] = (), name: str = "main") -> tuple[Any, ...]:
    """The outputs of a function; Nones and literals stand where the graph has them."""
    return Interpreter(module, inputs, constants).run(name)


class Interpreter:
    """One run. Index values are zero-dim int64 tensors, so that one table of operations serves sizes and bodies."""

    def __init__(self, module: ir.Module, inputs: Sequence[Any], constants: Sequence[Any] = ()) -> None:
        self.functions = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
        self.inputs, self.constants = list(inputs), constants
        self.grid: Grid = []

    def run(self, name: str) -> tuple[Any, ...]:
        block = self.functions[name].regions[0].blocks[0]
        env = {
            a: _index(v) if isinstance(v, int) and str(a.type) == "index" else v
            for a, v in zip(block.arguments, self.inputs)
        }
        results = self.block(block, env)
        returned = list(block.operations)[-1].operation
        if "symshape.outputs" not in returned.attributes:
            return tuple(results)
        args, _ = instantiate(
            ir.StringAttr(returned.attributes["symshape.outputs"]).value, _python_values(returned, results)
        )
        return args

    def block(self, block: ir.Block, env: Env) -> list[Any]:
        """Executes to the terminator, whose operands are the results."""
        for view in block.operations:
            op = view.operation
            operands = [env[v] for v in op.operands]
            if op.name in ("func.return", "linalg.yield"):
                return operands
            try:
                results = self.operation(op, operands, env)
            except AssertionError as error:
                raise AssertionError(f"{error}\nin {op}") from error
            env.update(zip(op.results, results))
        return []

    def operation(self, op: Any, operands: list[Any], env: Env) -> Sequence[Any]:
        if op.name == "linalg.generic":
            return self.generic(op, operands, env)
        handler = _HANDLERS.get(op.name)
        if handler is not None:
            return handler(self, op, operands)
        return [evaluate(op, *operands)]

    # --- loops -----------------------------------------------------------------------------------------------------

    def generic(self, op: Any, operands: list[torch.Tensor], env: Env) -> list[torch.Tensor]:
        """All parallel points at once, reduced points one after the other in row-major order."""
        kinds = [str(a) for a in op.attributes["iterator_types"]]
        maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
        num_ins = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[0]
        sizes = _loop_sizes(len(kinds), maps, operands)
        reduced = [i for i, kind in enumerate(kinds) if "reduction" in kind]
        outer = [1 if i in reduced else size for i, size in enumerate(sizes)]
        full = grid_of(outer)
        state = [v.clone() for v in operands[num_ins:]]
        for point in itertools.product(*(range(sizes[i]) for i in reduced)):
            at = dict(zip(reduced, point))
            self.grid = [torch.tensor(at[i]) if i in at else index for i, index in enumerate(full)]
            values = [_read(v, m, self.grid, outer) for v, m in zip([*operands[:num_ins], *state], maps)]
            block = op.regions[0].blocks[0]
            results = self.block(block, {**env, **dict(zip(block.arguments, values))})
            kept = [size for i, size in enumerate(sizes) if i not in reduced]
            state = [r.expand(outer).reshape(kept).clone() for r in results]
        return state

    # --- library calls -----------------------------------------------------------------------------------------------

    def call(self, op: Any, operands: list[Any]) -> Sequence[Any]:
        target = ir.StringAttr(op.attributes["target"]).value
        args, kwargs = instantiate(ir.StringAttr(op.attributes["arguments"]).value, _python_values(op, operands))
        if target == "symshape.constant":
            return [self.constants[args[0]]]
        if target == "symshape.storage":
            return [operands[0].as_strided((int(operands[1]),), (1,), 0)]
        outcome = resolve_target(target)(*self.resolve(args), **self.resolve(kwargs))
        if "result_indices" in op.attributes:
            return [outcome[i] for i in ir.DenseI64ArrayAttr(op.attributes["result_indices"])]
        return [_index(outcome) if isinstance(outcome, int) else outcome] if len(op.results) else []

    def resolve(self, value: Any) -> Any:
        """Names of a template as torch objects."""
        if isinstance(value, TorchName):
            return eval(value.name, {"device": torch.device, "constant": self.constants}, vars(torch))
        if isinstance(value, dict):
            return {k: self.resolve(v) for k, v in value.items()}
        return type(value)(self.resolve(v) for v in value) if isinstance(value, (list, tuple)) else value


def _index(value: int) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.int64)


def _python_values(op: Any, values: Sequence[Any]) -> list[Any]:
    """Operands as a caller sees them: sizes are Python ints."""
    return [int(v) if str(operand.type) == "index" else v for operand, v in zip(op.operands, values)]


def grid_of(sizes: Sequence[int]) -> Grid:
    """One index tensor per dim, shaped to broadcast."""
    rank = len(sizes)
    return [torch.arange(size).reshape([-1 if i == d else 1 for i in range(rank)]) for d, size in enumerate(sizes)]


def affine(e: Any, dims: Sequence[Any], symbols: Sequence[Any]) -> Any:
    """An affine expression at index values."""
    if isinstance(e, ir.AffineConstantExpr):
        return _index(e.value)
    if isinstance(e, ir.AffineDimExpr):
        return dims[e.position]
    if isinstance(e, ir.AffineSymbolExpr):
        return symbols[e.position]
    left, right = affine(e.lhs, dims, symbols), affine(e.rhs, dims, symbols)
    if isinstance(e, ir.AffineAddExpr):
        return left + right
    if isinstance(e, ir.AffineMulExpr):
        return left * right
    right = torch.where(right == 0, 1, right)  # where a size is 0 there is no point to read
    if isinstance(e, ir.AffineModExpr):
        return left % right
    return left // right if isinstance(e, ir.AffineFloorDivExpr) else -(-left // right)


def _loop_sizes(rank: int, maps: Sequence[ir.AffineMap], operands: Sequence[torch.Tensor]) -> list[int]:
    sizes: dict[int, int] = {}
    for map_, operand in zip(maps, operands):
        assert len(map_.results) == operand.dim()
        for e, size in zip(map_.results, operand.shape):
            if isinstance(e, ir.AffineDimExpr):
                assert sizes.setdefault(e.position, size) == size, "operands disagree on a loop's size"
    return [sizes[i] for i in range(rank)]


def _read(value: torch.Tensor, map_: ir.AffineMap, grid: Grid, sizes: Sequence[int]) -> torch.Tensor:
    indices = [affine(e, grid, []) for e in map_.results]
    return gather(value, indices, sizes)


def gather(
    source: torch.Tensor, indices: Sequence[torch.Tensor], sizes: Sequence[int], defined: Any = None
) -> torch.Tensor:
    """source[indices...] over ``sizes``; points that are not ``defined`` are poison, all others must be in bounds."""
    indices = [i.expand(sizes) for i in indices]
    mask = torch.ones(sizes, dtype=torch.bool) if defined is None else defined.expand(sizes)
    for index, size in zip(indices, source.shape):
        assert bool((((index >= 0) & (index < size)) | ~mask).all()), f"a read outside of {tuple(source.shape)}"
    poison = torch.full(sizes, POISON.get(source.dtype, 85), dtype=source.dtype)
    if not mask.any():
        return poison
    safe = tuple(torch.where(mask, i, 0) for i in indices)
    return torch.where(mask, source[safe] if safe else source.expand(sizes), poison)


def _view(self: Interpreter, op: Any, operands: list[Any]) -> list[torch.Tensor]:
    rank = ir.RankedTensorType(op.results[0].type).rank
    source, sizes, symbols = operands[0], [int(v) for v in operands[1 : 1 + rank]], operands[1 + rank :]
    _check_sizes(op.results[0].type, sizes)
    grid = grid_of(sizes)
    indices = [affine(e, grid, symbols) for e in ir.AffineMapAttr(op.attributes["map"]).value.results]
    defined = None
    if "domain" in op.attributes:
        points, equal = set_constraints(op.attributes["domain"])
        holds = [
            (v == 0 if same else v >= 0) for v, same in zip((affine(e, grid, symbols) for e in points.results), equal)
        ]
        defined = torch.stack([h.expand(sizes) for h in holds]).all(0)
    return [gather(source, indices, sizes, defined)]


def _check_sizes(type_: ir.Type, sizes: Sequence[int]) -> None:
    for static, size in zip(ir.RankedTensorType(type_).shape, sizes):
        assert static in (size, ir.ShapedType.get_dynamic_size()), f"{type_} has sizes {sizes}"


def _allocate(op: Any, sizes: Sequence[Any], value: Any) -> list[torch.Tensor]:
    type_ = ir.RankedTensorType(op.results[0].type)
    dynamic = iter(int(v) for v in sizes)
    shape = [next(dynamic) if type_.is_dynamic_dim(i) else s for i, s in enumerate(type_.shape)]
    dtype = TYPES[str(type_.element_type)]
    return [torch.full(shape, POISON.get(dtype, 85) if value is None else value, dtype=dtype)]


def _bind(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    value, rank = operands[0], operands[0].dim()
    sizes = [int(v) for v in operands[1 : 1 + rank]]
    assert list(value.shape) == sizes, f"a tensor of sizes {tuple(value.shape)} is bound to {sizes}"
    assert TYPES[str(ir.RankedTensorType(op.operands[0].type).element_type)] == value.dtype
    return []


def _symbol(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    binding = ir.StringAttr(op.attributes["binding"]).value
    place = parse_binding(binding)
    assert place is not None and parse_inverse(binding) == (0, 1)
    argument, part, dim = place
    value = self.inputs[argument]
    if part == "value":
        return [_index(value)]
    return [_index(value.storage_offset() if part == "offset" else getattr(value, part)(dim))]


def _unbacked(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    kind, dim = ir.StringAttr(op.attributes["kind"]).value, ir.IntegerAttr(op.attributes["dim"]).value
    tensor = operands[0]
    return [_index(tensor.item() if kind == "item" else getattr(tensor, kind)(dim))]


def _require(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    if not bool(operands[0]):
        raise RuntimeError(str(op))
    return []


def _check_index(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    index, size = operands
    if not bool(((index >= 0) & (index < size)).all()):
        raise IndexError(ir.StringAttr(op.attributes["message"]).value)
    return [index]


def _extract(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    source, *indices = operands
    sizes = torch.broadcast_shapes(*(i.shape for i in indices)) if indices else ()
    return [gather(source, indices, sizes)]


def _apply(self: Interpreter, op: Any, operands: list[Any]) -> list[Any]:
    map_ = ir.AffineMapAttr(op.attributes["map"]).value
    return [affine(map_.results[0], operands[: map_.n_dims], operands[map_.n_dims :])]


_HANDLERS: dict[str, Callable[[Interpreter, Any, list[Any]], Sequence[Any]]] = {
    "symshape.symbol": _symbol,
    "symshape.unbacked_symbol": _unbacked,
    "symshape.bind": _bind,
    "symshape.assume": _require,
    "symshape.guard": _require,
    "symshape.expect_true": _require,
    "host.call": Interpreter.call,
    "symshape.view": _view,
    "symshape.check_index": _check_index,
    "tensor.empty": lambda self, op, operands: _allocate(op, operands, None),
    "tensor.splat": lambda self, op, operands: _allocate(op, operands[1:], operands[0].item()),
    "tensor.extract": _extract,
    "affine.apply": _apply,
    "linalg.index": lambda self, op, operands: [self.grid[ir.IntegerAttr(op.attributes["dim"]).value]],
}
