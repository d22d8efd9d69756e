"""Element types as MLIR text ("f32", "bf16", "i1", "ui8", "complex<f32>"): torch names, kinds, sizes, ranges."""

from __future__ import annotations

from typing import Final

# All types that IR can have, by torch name. Tensors of a type that is not in ``NATIVE`` are read by library calls only.
DTYPES: Final[dict[str, str]] = {
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
TORCH_NAMES: Final = {text: name for name, text in DTYPES.items()}
HALF: Final = frozenset({"f16", "bf16"})
FLOATS: Final = HALF | {"f32", "f64"}
NATIVE: Final = FLOATS | {"i8", "i16", "i32", "i64", "ui8", "i1"}  # in kernels
# Bytes of an element in memory.
ITEM_SIZE: Final = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "ui8": 1, "i1": 1}
# The largest finite number.
LARGEST: Final = {
    "f16": 65504.0,
    "bf16": 3.3895313892515355e38,
    "f32": 3.4028234663852886e38,
    "f64": 1.7976931348623157e308,
}
