"""How the code that Dynamo writes for a frame reads the sizes that a graph takes as arguments.

Dynamo's own functions leave Dynamo and enter it again for each size, so that what a tensor subclass does when it is
asked for its size is not compiled: 2 us for each. A plain tensor runs no Python code then, and is asked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import utils
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.eval_frame import skip_code

from symshape.frontend.patches.patch import Changes

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def call_size(x: Any, i: int) -> int:
    """``x.size(i)``"""
    return x.size(i) if type(x) in _PLAIN else utils.call_size(x, i)


def call_stride(x: Any, i: int) -> int:
    """``x.stride(i)``"""
    return x.stride(i) if type(x) in _PLAIN else utils.call_stride(x, i)


def call_storage_offset(x: Any) -> int:
    """``x.storage_offset()``"""
    return x.storage_offset() if type(x) in _PLAIN else utils.call_storage_offset(x)


def record_pregraph_bytecode_enter() -> Any:
    """Begins what a profiler shows of the reads."""
    return utils.record_pregraph_bytecode_enter() if torch.autograd.profiler._is_profiler_enabled else None


def record_pregraph_bytecode_exit(shown: Any) -> None:
    """Ends it."""
    if shown is not None:
        utils.record_pregraph_bytecode_exit(shown)


_OURS = {
    function.__name__: function
    for function in (
        call_size,
        call_stride,
        call_storage_offset,
        record_pregraph_bytecode_enter,
        record_pregraph_bytecode_exit,
    )
}
for _function in _OURS.values():
    skip_code(_function.__code__)  # Dynamo does not look at frames of it


def read_sizes_at_once(changes: Changes) -> None:
    """Frames that are compiled read sizes by the functions above."""
    changes.wrap(PyCodegen, "load_import_from", _from_here)


def _from_here(usual: Callable[..., None]) -> Callable[..., None]:
    def load_import_from(codegen: Any, module: str, name: str) -> None:
        ours = module == utils.__name__ and name in _OURS
        usual(codegen, __name__ if ours else module, name)

    return load_import_from
