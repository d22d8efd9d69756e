"""Traces layouts of views by eager mode's rule."""

from __future__ import annotations

from typing import Any

from torch._subclasses import fake_impls

from symshape.frontend.patches.patch import Changes


def views_by_strides(changes: Changes) -> None:
    """Traces sizes and strides of all views as those of unbacked tensors are: from strides alone, as eager mode does
    (``_view_unbacked_meta``).

    PyTorch's rule for backed sizes (``_reshape_view_helper``) splits and joins dims from left to right, and guards each
    test on the way: ``y.reshape(x.shape)`` is recompiled whenever other sizes divide one another.
    """
    changes.attribute(fake_impls, "_view_has_unbacked_input", _always)


def _always(*_args: Any) -> bool:
    return True
