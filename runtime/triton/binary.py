"""Machine code of one launch: what Triton is told of its arguments, for this machine's GPU or for any other."""

from __future__ import annotations

from typing import Any, Final

from symshape.artifact.triton_kernels import TritonKernel, TritonStage, TritonVariant

# What Triton assumes of an argument that divides by 16; without it no access is wider than an element.
_ALIGNED: Final = [["tt.divisibility", 16]]
_ALLOCATED: Final = "workspace"  # allocations of PyTorch's are aligned


def compile_stage(
    kernel: TritonKernel, variant: TritonVariant, stage: TritonStage, function: Any, target: Any = None
) -> Any:
    """Triton's compiled kernel, for a GPUTarget or for the current GPU; kept in Triton's cache on disk."""
    import triton
    from triton.compiler import ASTSource

    source = ASTSource(fn=function, **signature(kernel, variant, stage))
    options: dict[str, Any] = {"num_warps": stage.num_warps, "enable_fp_fusion": True}
    if stage.registers:
        options["maxnreg"] = stage.registers
    return triton.compile(source, target=target, options=options)


def signature(kernel: TritonKernel, variant: TritonVariant, stage: TritonStage) -> dict[str, Any]:
    """Types of the arguments, values of the constexprs, and which arguments divide by 16."""
    import triton.language as tl

    arguments = kernel.arguments(stage.function)
    types = {name: f"i{variant.index_bits}" if type_ == "int" else type_ for name, type_ in arguments}
    constants: dict[str, object] = {"INDEX": getattr(tl, variant.index_dtype), **dict(stage.constants)}
    attrs = {(i,): _ALIGNED for i, name in enumerate(types) if _divides(name, variant)}
    types.update((name, "constexpr") for name in constants)
    return {"signature": types, "constexprs": constants, "attrs": attrs}


def _divides(name: str, variant: TritonVariant) -> bool:
    return name in variant.aligned or name.startswith(_ALLOCATED)
