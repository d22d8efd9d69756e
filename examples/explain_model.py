# RUN: %python %s | filecheck %s
"""Compiles a model once, runs it at several sizes, and shows what was compiled.

symshape explain examples/explain_model.py:forward       the same report, from the command line
"""

import torch

import symshape


class Block(torch.nn.Module):
    """A feed-forward block: [batch, length, 64] -> [batch, length, 64]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


torch.manual_seed(0)
forward = Block().eval()


def inputs() -> tuple[torch.Tensor, ...]:
    """For ``symshape explain``."""
    return (torch.randn(2, 16, 64),)


if __name__ == "__main__":
    with torch.no_grad():
        compiled = symshape.compile(forward)
        for batch, length in ((2, 16), (5, 33), (8, 128)):
            x = torch.randn(batch, length, 64)
            torch.testing.assert_close(compiled(x), forward(x))
            print(f"{batch} x {length}: as in eager mode")
        # CHECK: 2 x 16: as in eager mode
        # CHECK: 5 x 33: as in eager mode
        # CHECK: 8 x 128: as in eager mode

        report = symshape.explain(forward, *inputs())
    # CHECK: [0] inference graph (cpu): {{[0-9]+}} kernels, {{[0-9]+}} launches, 2 library calls
    # CHECK: 2 x aten.{{addmm|mm}}
    print(report)

    (graph,) = report.graphs
    # The host program: it binds sizes, allocates, launches kernels and calls PyTorch for the matrix products.
    # CHECK: def program(
    print(graph.program_source)
    # CHECK: bytes for 8 x 128: {{[0-9]+}}
    batch, length = (row.name for row in graph.symbols[:2])
    print("bytes for 8 x 128:", graph.bytes_accessed(**{batch: 8, length: 128}))
