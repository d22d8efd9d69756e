"""Element types as text ("f32", "bf16", "i1", "ui8", "complex<f32>") and torch dtype names.

``DTYPES`` lists all types that IR can have; tensors of a type that is not in ``NATIVE`` are read by library calls only.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

DTYPES: dict[str, str] = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "bool": "i1",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    "complex32": "complex<f16>",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU",
}
TORCH_NAMES = {text: name for name, text in DTYPES.items()}
NATIVE = frozenset({"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "ui8", "i1"})
FLOATS = frozenset({"f32", "f64", "f16", "bf16"})
ITEM_SIZE = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "ui8": 1, "i1": 1}


def element_type(text: str) -> ir.Type:
    return ir.Type.parse(text)


def tensor_type(sizes: Sequence[int | None], dtype: str) -> ir.Type:
    """A ranked tensor type; None is a dynamic dim."""
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([dynamic if s is None else s for s in sizes], element_type(dtype))


def dtype_of(value: ir.Value) -> str:
    """The element type of a tensor value as text."""
    return str(ir.RankedTensorType(value.type).element_type)
