"""The module inside ``torch.compile(DistributedDataParallel(module))``, or that ``fully_shard`` has made one of FSDP2,
where its class is one of ``torch.nn``.

Dynamo cannot trace the forward method of DistributedDataParallel itself (a context manager of its own is around the
call of the module), nor the hooks of FSDP2 around that of a module; what is compiled is the forward method of the
module. It skips those that are defined in ``torch.nn``: of an ``nn.Sequential`` nothing would be compiled, or each of
its parts by itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch._dynamo import trace_rules
from torch.nn.parallel import DistributedDataParallel

from symshape.frontend.opaque_calls.frame_decisions import current_frame
from symshape.frontend.patches.patch import Changes

_SHARDING = "torch.distributed.fsdp"  # nothing is sharded before it is imported, which takes a while


def module_of_data_parallel_is_traced(changes: Changes) -> None:
    """Dynamo does not skip it."""
    changes.wrap(trace_rules, "check", _unless_wrapped)


def _unless_wrapped(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def check(obj: Any, is_inlined_call: bool = False, **more: Any) -> Any:
        """Whether Dynamo is to skip it. From 2.13 on it says of which frame; we know it in every version."""
        skipped = usual(obj, is_inlined_call, **more)
        frame = current_frame().running
        of_frame = frame is not None and obj is frame.f_code and not is_inlined_call
        return skipped and not (of_frame and _is_wrapped_module(frame))

    return check


def _is_wrapped_module(frame: Any) -> bool:
    """Whether it is the forward method of the module whose DistributedDataParallel is being called, or of a sharded
    one."""
    if frame.f_code.co_name != "forward":
        return False
    module, wrapper = frame.f_locals.get("self"), _active_wrapper()
    return (wrapper is not None and module is wrapper.module) or _is_sharded(module)


def _active_wrapper() -> Any:
    """The DistributedDataParallel that is being called; None outside of one."""
    wrapper: Any = DistributedDataParallel
    return wrapper._get_active_ddp_module()


def _is_sharded(module: Any) -> bool:
    sharding = sys.modules.get(_SHARDING)
    return sharding is not None and isinstance(module, sharding.FSDPModule)
