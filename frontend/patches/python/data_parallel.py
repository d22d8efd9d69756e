"""Lets Dynamo trace the module inside of ``torch.compile(DistributedDataParallel(module))``, or one sharded by FSDP2's
``fully_shard``, if its class is from ``torch.nn``.

Dynamo cannot trace DistributedDataParallel's own forward method (the module is called inside of a context manager), nor
FSDP2's hooks around a module's; the module's forward method is compiled instead. But Dynamo skips forward methods that
are defined in ``torch.nn``: of an ``nn.Sequential`` nothing would be compiled, or each of its parts separately.
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

_SHARDING = "torch.distributed.fsdp"  # not imported here: it takes a while, and without it nothing is sharded


def module_of_data_parallel_is_traced(changes: Changes) -> None:
    """Keeps Dynamo from skipping the module's forward method."""
    changes.wrap(trace_rules, "check", _unless_wrapped)


def _unless_wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def check(obj: Any, is_inlined_call: bool = False, **more: Any) -> Any:
        """Whether Dynamo skips a function. Since 2.13 the frame is passed in; ours is known in all versions."""
        skipped = original(obj, is_inlined_call, **more)
        frame = current_frame().running
        of_frame = frame is not None and obj is frame.f_code and not is_inlined_call
        return skipped and not (of_frame and _is_wrapped_module(frame))

    return check


def _is_wrapped_module(frame: Any) -> bool:
    """Whether a frame is the forward method of the module inside of the running DistributedDataParallel, or of a
    sharded module."""
    if frame.f_code.co_name != "forward":
        return False
    module, wrapper = frame.f_locals.get("self"), _active_wrapper()
    return (wrapper is not None and module is wrapper.module) or _is_sharded(module)


def _active_wrapper() -> Any:
    """The DistributedDataParallel that is being called, or None."""
    wrapper: Any = DistributedDataParallel
    return wrapper._get_active_ddp_module()


def _is_sharded(module: Any) -> bool:
    sharding = sys.modules.get(_SHARDING)
    return sharding is not None and isinstance(module, sharding.FSDPModule)
