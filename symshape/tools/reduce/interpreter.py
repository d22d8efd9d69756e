"""Interpreter for IR of the stages ``imported`` and ``shaped``: PyTorch runs each ``host.call``; sizes are Python ints.

Declared sizes, element types, ranges and constraints are checked along the way: a program that violates its own
declarations has no defined result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch_mlir import ir

from symshape.artifact.element_types import TORCH_NAMES
from symshape.dialects.accessors import (
    body_of,
    branches_of,
    call_arguments,
    call_target,
    callee_of,
    carried_count,
    function_name,
    lists_count,
    output_template,
    reading_of,
    result_indices,
    sliced_count,
    stacks_steps,
    subgraphs_of,
    symbol_binding,
    symbol_name,
    symbol_range,
    written_results,
)
from symshape.dialects.symbols import parse_binding, parse_inverse
from symshape.dialects.template import substitute
from symshape.dialects.types import dtype_of
from symshape.errors import CompileError
from symshape.ir_text import main_function
from symshape.runtime.cpu.attention import tiled_attention
from symshape.runtime.program import resolve_target
from symshape.runtime.promised_results import with_layout
from symshape.runtime.torch_c import memory_of
from symshape.tools.reduce.edits import binds_of, functions_of
from symshape.tools.reduce.scalars import evaluate

Values = dict[ir.Value, Any]
_CONDITIONS: Final = ("symshape.assume", "symshape.expect_true", "symshape.guard")
_NAMESPACE: Final = {"torch": torch, "inf": float("inf"), "nan": float("nan")}


def run(module: ir.Module, arguments: Sequence[Any], constants: Sequence[Any] = ()) -> Any:
    """Runs main and returns its result, nested as its output template says. ``constants``: values of
    ``symshape.constant`` calls, by position.

    CompileError for an operation that is neither a call nor arithmetic on sizes, and if an argument or result differs
    from its declaration. Errors of PyTorch's operators propagate.
    """
    functions = {function_name(function): function for function in functions_of(module)}
    return _Run(functions, constants).function(main_function(module, "the module").operation, arguments)


class _Run:
    def __init__(self, functions: dict[str, Any], constants: Sequence[Any]) -> None:
        self.functions, self.constants = functions, constants

    def function(self, function: Any, arguments: Sequence[Any]) -> Any:
        values: Values = dict(zip(function.regions[0].blocks[0].arguments, arguments, strict=True))
        for op in body_of(function):
            if op.name == "func.return":
                template = output_template(op)
                returned = [values[v] for v in op.operands]
                if template is None:
                    return tuple(returned)
                return _compiled(template, len(returned))(None, self.constants, *returned)
            self.operation(op, values, arguments)
        raise CompileError(f"@{function_name(function)} does not return", next_step="end it with func.return")

    def operation(self, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> None:
        special = _SPECIAL.get(op.name)
        if special is not None:
            results = special(self, op, values, arguments)
        else:
            one = evaluate(op, [values[v] for v in op.operands])
            if one is None:
                raise _wrong(op, "is no call and no arithmetic on sizes", "give IR of the stage imported or shaped")
            results = [one]
        values.update(zip(op.results, results, strict=True))


def _wrong(op: ir.Operation, what: str, next_step: str = "") -> CompileError:
    return CompileError(f"'{op.name}' op {what}", where=str(op.location), next_step=next_step)


@functools.lru_cache(maxsize=4096)
def _compiled(text: str, operands: int) -> Callable[..., Any]:
    names = [f"_{i}" for i in range(operands)]
    source = f"lambda {', '.join(['_call', 'constant', *names])}: {substitute(text, names)}"
    made: Callable[..., Any] = eval(source, dict(_NAMESPACE))
    return made


def _symbol(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    binding = parse_binding(symbol_binding(op))
    assert binding is not None  # the op is verified
    position, part, dim = binding
    rest, factor = parse_inverse(symbol_binding(op))
    given = arguments[position]
    read = {
        "value": lambda: given,
        "size": lambda: given.size(dim),
        "stride": lambda: given.stride(dim),
        "offset": lambda: given.storage_offset(),
    }[part]()
    return [_in_range(op, (read - rest) // factor)]


def _unbacked(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    (kind, dim), given = reading_of(op), values[op.operands[0]]
    read = {
        "item": lambda: int(given.item()),
        "number": lambda: int(given),
        "size": lambda: given.size(dim),
        "stride": lambda: given.stride(dim),
    }[kind]()
    return [_in_range(op, read)]


def _in_range(op: ir.Operation, value: int) -> int:
    low, high, divisor = symbol_range(op)
    if not low <= value <= high or value % divisor:
        raise _wrong(op, f"{symbol_name(op)} = {value} is not in [{low}, {high}], or no multiple of {divisor}")
    return value


def _condition(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    if not values[op.operands[0]]:
        raise _wrong(op, "does not hold")
    return []


def _bind(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    """Checks sizes and type, and gives the tensor the declared strides, as compiled code does."""
    tensor, *layout = (values[v] for v in op.operands)
    rank = len(layout) // 2
    sizes, strides = tuple(layout[:rank]), tuple(layout[rank : 2 * rank])
    wanted = TORCH_NAMES[str(ir.RankedTensorType(op.operands[0].type).element_type)]
    if tuple(tensor.shape) != sizes or tensor.dtype is not getattr(torch, wanted):
        found = f"{list(tensor.shape)} ({tensor.dtype})"
        raise _wrong(op, f"promises the sizes {list(sizes)} ({wanted}) of a tensor of {found}")
    values[op.operands[0]] = with_layout(tensor, sizes, strides)
    return []


def _call(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    target, operands = call_target(op), [values[v] for v in op.operands]
    if target == "symshape.constant":
        return [run.constants[int(call_arguments(op).strip("(),"))]]
    if target == "symshape.storage":
        (size,) = (values[bind.operands[1]] for bind in binds_of(op.results[0]))
        return [memory_of(operands[0], size, -operands[0].storage_offset())]
    result = _compiled(f"_call{call_arguments(op)}", len(operands))(resolve_target(target), run.constants, *operands)
    indices = result_indices(op)
    results = [result[i] for i in indices] if indices is not None else [result][: len(op.results)]
    for value, found in zip(op.results, results, strict=True):
        _check_type(op, value.type, found)
    return results


def _check_type(op: ir.Operation, type_: ir.Type, found: Any) -> None:
    """Checks a result against its MLIR type; results without a bind have no other declaration."""
    if not isinstance(type_, ir.RankedTensorType):
        return
    fits = isinstance(found, torch.Tensor) and found.dim() == type_.rank
    if not fits or not all(type_.is_dynamic_dim(d) or type_.shape[d] == found.size(d) for d in range(type_.rank)):
        raise _wrong(op, f"returns {list(getattr(found, 'shape', []))}, and not {type_}")


def _cond(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    predicate, *operands = (values[v] for v in op.operands)
    true, false = branches_of(op)
    return list(run.function(run.functions[true if predicate else false], operands))


def _while(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    cond, body = (run.functions[name] for name in subgraphs_of(op))
    count = carried_count(op)
    carried, rest = [values[v] for v in op.operands][:count], [values[v] for v in op.operands][count:]
    steps = []
    while run.function(cond, [*carried, *rest])[0]:
        carried = list(run.function(body, [*carried, *rest]))
        steps.append(carried)
    if stacks_steps(op):
        return [torch.stack(step) for step in zip(*(steps or [carried]))]
    return carried if steps else [_copied(one) for one in carried]


def _scan(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    (body,) = (run.functions[name] for name in subgraphs_of(op))
    count, slices = carried_count(op), sliced_count(op)
    operands = [values[v] for v in op.operands]
    carried, xs, rest = operands[:count], operands[count : count + slices], operands[count + slices :]
    stacks: list[list[Any]] = [[] for _ in list(op.results)[count:]]
    for i in range(len(xs[0])):
        carried, found = _parts(run.function(body, [*carried, *(x.select(0, i) for x in xs), *rest]), count)
        for stack, one in zip(stacks, found, strict=True):
            stack.append(one)
    if not len(xs[0]):
        raise _wrong(op, "has no steps: what it stacks is not known")
    return [*carried, *map(torch.stack, stacks)]


def _associative_scan(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    (combine,) = (run.functions[name] for name in subgraphs_of(op))
    operands = [values[v] for v in op.operands]
    xs, rest = operands[: sliced_count(op)], operands[sliced_count(op) :]
    steps: list[list[Any]] = [[x.select(0, i) for x in xs] for i in range(len(xs[0]))]
    for i in range(1, len(steps)):
        steps[i] = list(run.function(combine, [*steps[i - 1], *steps[i], *rest]))
    return [torch.stack(parts) for parts in zip(*steps)] or [_copied(x) for x in xs]


def _attention(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    scores, weights, *whole = (functools.partial(run.function, run.functions[name]) for name in subgraphs_of(op))
    operands, count, written = [values[v] for v in op.operands], lists_count(op), written_results(op)
    results = []
    for result in op.results:
        rank, bind = result.type.rank, binds_of(result)[0]
        layout = [values[v] for v in list(bind.operands)[1 : 1 + 2 * rank]]
        dtype = getattr(torch, TORCH_NAMES[dtype_of(result)])
        results.append(torch.empty_strided(layout[:rank], layout[rank:], dtype=dtype))
    lists, rows, columns, captured = (
        operands[3 : 3 + count],
        operands[3 + count],
        operands[4 + count],
        operands[5 + count :],
    )
    memory, block = (0 in written, 1 in written, 2 in written), (rows, columns)
    of_all = whole[0] if whole else None
    tiled_attention(scores, weights, of_all, operands[:3], lists, block, tuple(captured), results, memory)
    return results


def _parts(returned: Sequence[Any], count: int) -> tuple[list[Any], list[Any]]:
    return list(returned[:count]), list(returned[count:])


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _layer(run: _Run, op: ir.Operation, values: Values, arguments: Sequence[Any]) -> list[Any]:
    return list(run.function(run.functions[callee_of(op)], [values[v] for v in op.operands]))


_SPECIAL: Final[dict[str, Callable[[_Run, ir.Operation, Values, Sequence[Any]], list[Any]]]] = {
    "symshape.symbol": _symbol,
    "symshape.unbacked_symbol": _unbacked,
    "symshape.bind": _bind,
    "host.call": _call,
    "host.cond": _cond,
    "host.while": _while,
    "host.scan": _scan,
    "host.associative_scan": _associative_scan,
    "host.attention": _attention,
    "host.layer": _layer,
    **dict.fromkeys(_CONDITIONS, _condition),
}
