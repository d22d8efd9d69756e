"""MLIR types of tensors from and to element types as text (``symshape/artifact/element_types.py`` has the tables)."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir


def element_type(text: str) -> ir.Type:
    return ir.Type.parse(text)


def tensor_type(sizes: Sequence[int | None], dtype: str) -> ir.Type:
    """A ranked tensor type; None is a dynamic dim."""
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([dynamic if s is None else s for s in sizes], element_type(dtype))


def dtype_of(value: ir.Value) -> str:
    """The element type of a tensor value as text."""
    return str(ir.RankedTensorType(value.type).element_type)
