# RUN: %python %s | filecheck %s
"""Constraints that the user states.

``torch._check`` is a check of the program's own: it is proven while compiling, or made at each call, as early as its
operands exist. ``assume=[...]`` is a fact that the compiler may use to prove such checks; a guard checks it.
"""

import torch

import symshape


def first_columns(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Twice the first columns of [rows, columns]; their number is in the data."""
    n = count.item()
    torch._check(0 <= n, lambda: "a number of columns")
    torch._check(n <= 64, lambda: "at most 64 columns")
    torch._check(n <= x.size(1), lambda: "no more columns than there are")
    return x[:, :n] * 2


def inputs() -> tuple[torch.Tensor, ...]:
    """For ``symshape explain``."""
    return torch.randn(3, 80), torch.tensor(5)


def show(title: str, assume: list[str]) -> None:
    """What became of the checks."""
    print(title)
    (graph,) = symshape.explain(first_columns, *inputs(), options={"assume": assume}).graphs
    for constraint in graph.constraints:
        if constraint.kind == "expect_true":
            print(f"  {constraint.status}: {constraint.text} ({constraint.message})")


if __name__ == "__main__":
    # CHECK-LABEL: without a fact
    # CHECK-DAG:     {{checked|hoisted}}: {{.*}} (at most 64 columns)
    # CHECK-DAG:     {{checked|hoisted}}: {{.*}} (no more columns than there are)
    show("without a fact", [])
    # CHECK-LABEL: with a fact
    # CHECK-DAG:     {{checked|hoisted}}: {{.*}} (at most 64 columns)
    # CHECK-DAG:     {{implied|proven}}: {{.*}} (no more columns than there are)
    show("with a fact", ["x.size(1) >= 64"])

    # CHECK-LABEL: what breaks them
    print("what breaks them")
    compiled = symshape.compile(first_columns, assume=["x.size(1) >= 64"])
    x = torch.randn(3, 80)
    torch.testing.assert_close(compiled(x, torch.tensor(7)), x[:, :7] * 2)
    for columns, count in ((80, 65), (63, 5)):
        try:
            compiled(torch.randn(3, columns), torch.tensor(count))
        except symshape.ShapeConstraintError as error:  # a RuntimeError, as in eager mode
            print(error)
    # CHECK-NEXT: at most 64 columns{{.*}}65
    # CHECK:      x.size(1) >= 64{{.*}}63
