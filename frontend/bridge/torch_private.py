"""Names that patches import from here, until they take them from their own modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.frontend.bridge.fake_tensors import is_fake as is_fake
from symshape.frontend.bridge.fake_tensors import storage_of as storage_of
from symshape.frontend.bridge.shape_env import symbol_hint as symbol_hint
from symshape.frontend.bridge.shape_env import symbol_source as symbol_source
from symshape.frontend.bridge.symbolic_sizes import is_unbacked as is_unbacked


def views_by_strides() -> Callable[[], None]:
    """Sizes and strides of a view are traced like those of a tensor with data-dependent sizes: by the strides alone, as
    eager mode does it (``_view_unbacked_meta``). Returns what puts the usual rule back.

    The usual rule (``_reshape_view_helper``) splits and joins dims from left to right, and guards on every test that it
    makes on the way: ``y.reshape(x.shape)`` is then compiled again as soon as another size divides another.
    """
    from torch._subclasses import fake_impls

    usual = fake_impls._view_has_unbacked_input
    fake_impls._view_has_unbacked_input = _always  # type: ignore[assignment]

    def revert() -> None:
        fake_impls._view_has_unbacked_input = usual

    return revert


def _always(*_args: Any) -> bool:
    return True
