"""Calls of the C math library, one lane at a time: exact, but slow."""

from __future__ import annotations

from symshape.codegen.cpu.emit.state import State


def call_libm(state: State, function: str, names: list[str], element: str, uniform: bool) -> str:
    """function(names...) of libm; vectors go through a helper that loops over the lanes."""
    symbol = function + ("f" if element == "f32" else "")
    scalars = ", ".join([element] * len(names))
    state.shared[symbol] = f"llvm.func @{symbol}({scalars}) -> {element}"
    if uniform:
        return state.writer.pure(f"llvm.call @{symbol}({', '.join(names)}) : ({scalars}) -> {element}")
    vector = state.vector(element)
    vectors = ", ".join([vector] * len(names))
    helper = f"ss_{symbol}_{state.width}"
    state.shared[helper] = _per_lane(helper, symbol, len(names), element, state.width)
    return state.writer.pure(f"llvm.call @{helper}({', '.join(names)}) : ({vectors}) -> {vector}")


def _per_lane(helper: str, symbol: str, arity: int, element: str, width: int) -> str:
    vector, scalars = f"vector<{width}x{element}>", ", ".join([element] * arity)
    lines = [
        f"llvm.func internal @{helper}({', '.join(f'%x{i}: {vector}' for i in range(arity))}) -> {vector}"
        ' attributes {passthrough = ["noinline"]} {',
        "  %c0 = arith.constant 0 : i64",
        "  %c1 = arith.constant 1 : i64",
        f"  %n = arith.constant {width} : i64",
    ]
    for i in range(arity):
        lines.append(f"  %p{i} = llvm.alloca %n x {element} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")
        lines.append(f"  llvm.store %x{i}, %p{i} : {vector}, !llvm.ptr")
    lines.append("  scf.for %i = %c0 to %n step %c1 : i64 {")
    for i in range(arity):
        lines.append(f"    %a{i} = llvm.getelementptr %p{i}[%i] : (!llvm.ptr, i64) -> !llvm.ptr, {element}")
        lines.append(f"    %e{i} = llvm.load %a{i} : !llvm.ptr -> {element}")
    arguments = ", ".join(f"%e{i}" for i in range(arity))
    lines += [
        f"    %r = llvm.call @{symbol}({arguments}) : ({scalars}) -> {element}",
        f"    llvm.store %r, %a0 : {element}, !llvm.ptr",
        "  }",
        f"  %y = llvm.load %p0 : !llvm.ptr -> {vector}",
        f"  llvm.return %y : {vector}",
        "}",
    ]
    return "\n".join(lines)
