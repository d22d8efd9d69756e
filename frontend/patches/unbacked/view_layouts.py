"""Traces layouts of views by eager mode's rule."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import extract_shape_from_varargs
from torch._subclasses import fake_impls

from symshape.frontend.patches.patch import Changes


def views_by_strides(changes: Changes) -> None:
    """Traces sizes and strides of all views as those of unbacked tensors are: from strides alone, as eager mode does
    (``_view_unbacked_meta``).

    PyTorch's rule for backed sizes (``_reshape_view_helper``) splits and joins dims from left to right, and guards each
    test on the way: ``y.reshape(x.shape)`` is recompiled whenever other sizes divide one another.
    """
    changes.attribute(fake_impls, "_view_has_unbacked_input", _always)
    changes.wrap(fake_impls, "_view_unbacked_meta", _of_one_element)


def _always(*_args: Any) -> bool:
    return True


@functools.cache
def _of_one_element(original: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for ``x.reshape(())`` asserts that the first size is 1, and then squeezes the last dim, whose size is
    not known to be 1 by then: all are asserted first."""

    @functools.wraps(original)
    def _view_unbacked_meta(a: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
        if not extract_shape_from_varargs(shape, validate=False):
            for size in a.shape:
                torch._check(size == 1)
        return original(a, shape, *args, **kwargs)

    return _view_unbacked_meta
