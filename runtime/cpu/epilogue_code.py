"""Machine code of epilogues: one function for each expression, which is applied to pixels that a convolution has just
written, while they are in the first-level cache."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Final

from symshape.machine import float_functions
from symshape.runtime.cpu.convolution_words import Shape, Words, shape_of
from symshape.runtime.cpu.kept_objects import kept_object
from symshape.runtime.cpu.llvm_floats import LlvmFloats
from symshape.runtime.cpu.llvm_text import Function
from symshape.runtime.cpu.llvm_vectors import Vectors
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.cpu.machine_code import WORD
from symshape.runtime.epilogues import COMPARISONS, VALUE, Epilogue

# Some pixels of the result, and some of its channels.
FOLLOW: Final = {"words": "ptr", "pixel": "i64", "pixels": "i64", "channel": "i64", "channels": "i64"}
_HEAD: Final = """
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare <L x float> @llvm.masked.load.vLf32.p0(ptr, i32, <L x i1>, <L x float>)
declare void @llvm.masked.store.vLf32.p0(<L x float>, ptr, i32, <L x i1>)
"""
_Apply = Callable[..., str]
_ARITHMETIC: Final[dict[str, _Apply]] = {
    "add": LlvmFloats.add,
    "sub": LlvmFloats.sub,
    "mul": LlvmFloats.mul,
    "div": LlvmFloats.div,
    "neg": lambda m, x: m.mul(x, -1.0),
    "abs": LlvmFloats.abs,
    "sqrt": lambda m, x: m.op("math.sqrt", x),
    "rsqrt": lambda m, x: m.div(1.0, m.op("math.sqrt", x)),
    "exp": float_functions.exp,
    "expm1": float_functions.expm1,
    "log": float_functions.log,
    "log1p": float_functions.log1p,
    "tanh": float_functions.tanh,
    "erf": float_functions.erf,
    "sigmoid": lambda m, x: m.div(1.0, m.add(float_functions.exp(m, m.mul(x, -1.0)), 1.0)),
    **dict.fromkeys(("minimum", "high"), lambda m, x, y: m.op("arith.minimumf", x, y)),
    **dict.fromkeys(("maximum", "low"), lambda m, x, y: m.op("arith.maximumf", x, y)),
    "where": LlvmFloats.select,
}
_PREDICATES: Final = {"gt": "ogt", "ge": "oge", "lt": "olt", "le": "ole"}
assert _PREDICATES.keys() == COMPARISONS


def text_of(epilogue: Epilogue, shape: Shape) -> str:
    """The module: ``follow``, of parameters ``FOLLOW``."""
    f = Function("follow", FOLLOW, linkage="")
    w, m, vectors = Words(f), LlvmFloats(f, shape.lanes), Vectors(f, shape.lanes)
    full = f.sub("%channels", str(shape.lanes - 1))
    with f.loop("0", "%pixels") as number:
        pixel = f.add("%pixel", number)
        image = f.div(pixel, w.image_pixels)
        inner = f.sub(pixel, f.mul(image, w.image_pixels))
        out = f.floats(w.out, f.add(f.mul(pixel, w.out_channels), "%channel"))
        operands = []
        for i in range(epilogue.tensors):
            before = f.add(f.mul(image, w[f"image_step_{i}"]), f.mul(inner, w[f"pixel_step_{i}"]))
            operands.append(f.floats(w[f"operand_{i}"], f.add(before, "%channel")))

        def vector(at: str, mask: str | None) -> None:
            values = {VALUE: vectors.load(f.floats(out, at), mask)}
            for i, address in enumerate(operands):
                values[f"a{i}"] = vectors.load(f.floats(address, at), mask)
            vectors.store(_value(m, epilogue, values), f.floats(out, at), mask)

        at = f.variable("i64", "0")
        with f.repeat(at, full):
            vector(f.get(at, "i64"), None)
            f.set(at, "i64", f.add(f.get(at, "i64"), str(shape.lanes)))
        with f.repeat(at, "%channels"):
            here = f.get(at, "i64")
            vector(here, vectors.below(f.sub("%channels", here)))
            f.set(at, "i64", f.add(here, str(shape.lanes)))
    head = _HEAD.replace("vL", f"v{shape.lanes}").replace("<L", f"<{shape.lanes}")
    return "\n".join((head, WORD, *sorted(m.declarations), f.text()))


def _value(m: LlvmFloats, epilogue: Epilogue, values: dict[str, str]) -> str:
    """Computes the steps on vectors."""
    made = values[VALUE]
    for number, step in enumerate(epilogue.steps):
        given = [values[one] if isinstance(one, str) else m.name(one) for one in step.operands]
        if step.operation in COMPARISONS:
            made = m.compare(_PREDICATES[step.operation], *given)
        else:
            made = _ARITHMETIC[step.operation](m, *given)
        values[f"v{number}"] = made
    return made


_lock = threading.Lock()


def address_of(epilogue: Epilogue, level: str) -> int:
    """The address of the epilogue's function, which lives as long as the process."""
    with _lock:
        return _loaded(epilogue, level).address("follow")


@cache
def _loaded(epilogue: Epilogue, level: str) -> Library:
    return Library(kept_object("epilogue", text_of(epilogue, shape_of(level)), level))
