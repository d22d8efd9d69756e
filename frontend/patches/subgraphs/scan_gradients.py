"""The results of the forward loop of a ``scan`` with gradients."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.patches.patch import Changes


def values_saved_by_steps_are_copies(changes: Changes) -> None:
    """Returns a copy of a carried or stacked value that is also saved for backward, so that it is no alias."""
    # Imported by name: the attribute of its package is the function.
    owner = importlib.import_module("torch._higher_order_ops.scan").ScanAutogradImpl
    changes.wrap(owner, "_optimize_forward_intermediates", _copied)


def _copied(original: Callable[..., Any]) -> Callable[..., Any]:
    def optimized(self: Any) -> Any:
        graph: torch.fx.Graph = self.hop_partitioned_graph.fw_gm.graph
        count = self.hop_partitioned_graph.n_fw_outputs
        (output,) = graph.find_nodes(op="output")
        returned: Any = output.args[0]
        results = list(returned)
        for i in range(count, len(results)):
            one = results[i]
            if isinstance(one, torch.fx.Node) and one.op != "placeholder" and one in results[:i]:
                results[i] = self._insert_clone(one, output)
        output.args = (tuple(results),)
        return original(self)

    return optimized
