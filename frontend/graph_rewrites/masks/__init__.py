"""The rewrite mask-to-where: computes values under a boolean mask without selecting them.

Runs on a traced graph; in training on the joint graph, since after it is partitioned the selected elements and their
number are already saved for backward. See docs/masks.md.
"""

from __future__ import annotations

from symshape.frontend.graph_rewrites.masks.mask_to_where import NAME, MaskReport, rewrite_masks

__all__ = ["NAME", "MaskReport", "rewrite_masks"]
