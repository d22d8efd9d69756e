"""mask-to-where: values under a boolean mask, computed without selecting them.

Runs on a traced graph; in training on the joint one, before forward and backward are split: after that the selected
elements and their number are already saved for backward. See docs/masks.md.
"""

from __future__ import annotations

from symshape.frontend.graph_rewrites.masks.mask_to_where import NAME, MaskReport, rewrite_masks

__all__ = ["NAME", "MaskReport", "rewrite_masks"]
