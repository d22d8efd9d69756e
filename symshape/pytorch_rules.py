"""Falls back to PyTorch's own tracing rules for a frame in which ours fail, so that a change of PyTorch costs
generality, not the call."""

from __future__ import annotations

from symshape.machine.mlir_library import load_mlir


def may_use_pytorch_rules(error: Exception, strict: bool) -> bool:
    """Whether a frame that our rules have failed for may be traced again without them."""
    return not strict and not _may_be_this_ranks_alone(error)


def _may_be_this_ranks_alone(error: BaseException) -> bool:
    load_mlir()
    from symshape.fallbacks import is_local, several_ranks

    return several_ranks() and is_local(error)


def warn_of_pytorch_rules(error: Exception) -> None:
    """Says once that a frame was traced again, and which error of our rules was the reason."""
    load_mlir()
    from symshape.fallbacks import warn_of_fallbacks
    from symshape.tools.report import Fallback

    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warn_of_fallbacks((Fallback("trace", reason, "a function was traced by PyTorch's own rules"),), "traced")
