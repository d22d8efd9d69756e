# RUN: %python %s | filecheck %s
"""``symshape.jit`` with named dims: compiled without Dynamo, one entry for all sizes that the dims allow."""

import torch
from torch.export import Dim

import symshape

batch, length = Dim("batch", max=64), Dim("length", min=2)


@symshape.jit(dynamic_shapes={"x": {0: batch, 1: length, 2: 8}, "mask": {0: batch, 1: length}})
def pool(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Maximum over the positions that a mask leaves: [batch, length, 8] -> [batch, 8]."""
    return (x * mask[:, :, None]).amax(1)


if __name__ == "__main__":
    for b, n in ((2, 4), (5, 10), (64, 6)):
        x, mask = torch.randn(b, n, 8), torch.ones(b, n)
        torch.testing.assert_close(pool(x, mask), (x * mask[:, :, None]).amax(1))
    # CHECK: entries: 1
    print("entries:", len(pool.entries))

    # What the dims do not allow is an error before anything is computed, in the words of the declaration.
    for b, n, columns in ((65, 4, 8), (3, 4, 9)):
        try:
            pool(torch.randn(b, n, columns), torch.ones(b, n))
        except symshape.ShapeConstraintError as error:
            print(str(error).splitlines()[0])
    # CHECK: batch <= 64 does not hold for batch = 65
    # CHECK: x.size(2) == 8 does not hold
    try:
        pool(torch.randn(3, 4, 8), torch.ones(3, 5))
    except symshape.ShapeConstraintError as error:
        # CHECK: length
        print(error)
