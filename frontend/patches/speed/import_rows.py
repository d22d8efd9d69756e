"""Imports: what PyTorch need not do twice in modules that other rows import. In force before these."""

from __future__ import annotations

from symshape.frontend.patches.patch import Patch
from symshape.frontend.patches.probes import Exists, Says, Takes
from symshape.frontend.patches.speed import needless_work

ROWS: tuple[Patch, ...] = (
    Patch(
        "lists of composite operators",
        ("frame", "graph"),
        ("torch._export.utils._materialize_cpp_cia_ops",),
        needless_work.operators_are_listed_once,
        "the table of decompositions creates objects for all composite operators once for each namespace",
        (
            Takes("torch._export.utils._materialize_cpp_cia_ops", ""),
            Says("torch._export.utils._collect_all_valid_cia_ops_for_namespace", "_materialize_cpp_cia_ops"),
            Exists("torch._C._dispatch_get_registrations_for_dispatch_key"),
        ),
        only_speed=True,
    ),
)
