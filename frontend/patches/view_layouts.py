"""Layouts of views, traced by eager mode's rule."""

from __future__ import annotations

from typing import Any

from torch._subclasses import fake_impls

from symshape.frontend.patches.patch import Changes


def views_by_strides(changes: Changes) -> None:
    """Sizes and strides of a view are traced like those of a tensor with data-dependent sizes: by the strides alone, as
    eager mode does it (``_view_unbacked_meta``).

    The usual rule (``_reshape_view_helper``) splits and joins dims from left to right, and guards on every test that it
    makes on the way: ``y.reshape(x.shape)`` is then compiled again as soon as another size divides another.
    """
    changes.attribute(fake_impls, "_view_has_unbacked_input", _always)


def _always(*_args: Any) -> bool:
    return True
