# RUN: %python %s | filecheck %s
"""Boolean masks without synchronisation: what a mask selects is computed for all elements.

In eager mode ``x[mask]`` has a size that is in the data: on a GPU the host waits for it. Here it vanishes;
docs/masks.md says what does, and what stays.
"""

import torch

import symshape


def masked_loss(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean squared difference of the selected elements: three tensors of one shape -> a number."""
    return ((x[mask] - y[mask]) ** 2).mean()


def selected(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The selected elements side by side: their number is in the data, and the host has to know it."""
    return x[mask] * 2


if __name__ == "__main__":
    x, y = torch.randn(40, 7), torch.randn(40, 7)
    mask = x > 0.3

    report = symshape.explain(masked_loss, x, y, mask)
    torch.testing.assert_close(report.result, masked_loss(x, y, mask))
    (graph,) = report.graphs
    # CHECK: loss: 0 library calls, 0 unbacked sizes
    unbacked = graph.stages["imported"].count("symshape.unbacked_symbol")
    print(f"loss: {len(graph.library_calls)} library calls, {unbacked} unbacked sizes")
    # CHECK: {{.*}}mask
    for line in graph.remarks["mask-to-where"]:
        print(line)

    report = symshape.explain(selected, x, mask)
    torch.testing.assert_close(report.result, selected(x, mask))
    (graph,) = report.graphs
    # CHECK: selected: 1 unbacked size
    unbacked = graph.stages["imported"].count("symshape.unbacked_symbol")
    print(f"selected: {unbacked} unbacked size")
    # CHECK: {{.*}}
    for line in (*graph.remarks["mask-to-where"], *graph.remarks["compact-masks"]):
        print(line)

    # The same graph for any number of selected elements, none among them.
    compiled = symshape.compile(selected)
    for mask in (x > 0.3, x > 100, x == x):
        torch.testing.assert_close(compiled(x, mask), selected(x, mask))
