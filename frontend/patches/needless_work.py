"""What PyTorch imports and lists at a first compile, though it is known already."""

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
_listed: list[tuple[str, ...]] = []  # the registrations of the last time


def local_maps_are_imported_by_their_users(changes: Changes) -> None:
    """To see that a value is not ``local_map``, Dynamo imports the module that has it, and with it much of
    ``torch.distributed``. Nothing can be it before it is imported."""
    usual = vars(LocalMapWrappedHigherOrderVariable)["should_wrap_in_hop"].__func__
    changes.attribute(LocalMapWrappedHigherOrderVariable, "should_wrap_in_hop", classmethod(_if_imported(usual)))


@functools.cache
def _if_imported(usual: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(usual)
    def should_wrap_in_hop(cls: Any, value: Any) -> bool:
        return _LOCAL_MAP in sys.modules and usual(cls, value)

    return should_wrap_in_hop


def operators_are_listed_once(changes: Changes) -> None:
    """For a table of decompositions PyTorch makes Python objects of all composite operators, once for every namespace.
    They stay: without new registrations there is nothing to make."""
    changes.wrap(export_utils, "_materialize_cpp_cia_ops", _where_new)


@functools.cache
def _where_new(usual: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(usual)
    def _materialize_cpp_cia_ops() -> None:
        found = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if found not in _listed:
            usual()
            _listed[:] = [found]

    return _materialize_cpp_cia_ops
