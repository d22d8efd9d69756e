"""The ``symshape`` dialect: one file per op family. ``load(ctx)`` is the only registration."""

from __future__ import annotations

from symshape.dialects.buffers import ReuseOp
from symshape.dialects.constraints import AssumeOp, ExpectTrueOp, GuardOp
from symshape.dialects.host import (
    HOST_OPS,
    AssociativeScanOp,
    AttentionOp,
    CallOp,
    CondOp,
    LaunchOp,
    LayerOp,
    ScanOp,
    WhileOp,
)
from symshape.dialects.kernels import CheckIndexOp, ScatterOp, SpaceOp, StoreOp, ViewOp
from symshape.dialects.plans import AddressOp, ProcessorsOp, VariantOp
from symshape.dialects.symbols import BindOp, SymbolOp, UnbackedSymbolOp, parse_binding, parse_inverse
from symshape.dialects.symshape import SymShape, context_of_compile, load, set_constraints
from symshape.dialects.verify import verify

# Every op of the files above by its name: one of ``symshape`` registers itself where its class is made.
OPS = {cls.OPERATION_NAME: cls for cls in (*SymShape.operations, *HOST_OPS.values())}

__all__ = [
    "AddressOp",
    "AssumeOp",
    "AttentionOp",
    "BindOp",
    "CallOp",
    "CheckIndexOp",
    "CondOp",
    "ExpectTrueOp",
    "GuardOp",
    "HOST_OPS",
    "LaunchOp",
    "LayerOp",
    "OPS",
    "ProcessorsOp",
    "ReuseOp",
    "AssociativeScanOp",
    "ScanOp",
    "ScatterOp",
    "SpaceOp",
    "StoreOp",
    "SymShape",
    "SymbolOp",
    "UnbackedSymbolOp",
    "VariantOp",
    "ViewOp",
    "WhileOp",
    "context_of_compile",
    "load",
    "parse_binding",
    "parse_inverse",
    "set_constraints",
    "verify",
]
