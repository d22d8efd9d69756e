"""Avoids imports and listings of PyTorch at a first compile whose outcome is already known."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.variables.higher_order_ops import LocalMapWrappedHigherOrderVariable
from torch._export import utils as export_utils

from symshape.frontend.patches.patch import Changes

_LOCAL_MAP = "torch.distributed.tensor.experimental._func_map"
_listed: list[tuple[str, ...]] = []  # the registrations at the last listing


def local_maps_are_imported_by_their_users(changes: Changes) -> None:
    """Checks for ``local_map`` only if its module is imported. Dynamo imports the module for that check, and with it
    much of ``torch.distributed``; but no value can be ``local_map`` before."""
    original = vars(LocalMapWrappedHigherOrderVariable)["should_wrap_in_hop"].__func__
    changes.attribute(LocalMapWrappedHigherOrderVariable, "should_wrap_in_hop", classmethod(_if_imported(original)))


@functools.cache
def _if_imported(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def should_wrap_in_hop(cls: Any, value: Any) -> bool:
        return _LOCAL_MAP in sys.modules and original(cls, value)

    return should_wrap_in_hop


def operators_are_listed_once(changes: Changes) -> None:
    """Lists composite operators only if there are new registrations. For a table of decompositions PyTorch creates
    Python objects of all of them, once for each namespace; they persist."""
    changes.wrap(export_utils, "_materialize_cpp_cia_ops", _where_new)


@functools.cache
def _where_new(original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def _materialize_cpp_cia_ops() -> None:
        found = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if found not in _listed:
            original()
            _listed[:] = [found]

    return _materialize_cpp_cia_ops
