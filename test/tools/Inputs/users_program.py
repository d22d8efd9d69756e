"""A user's program, which mypy checks against the wheel (test_public_types.py); it is not run.

What it reveals is compared with the comment in its line, errors with those that comments expect.
"""

from collections.abc import Callable
from typing import reveal_type

import torch

import symshape
from symshape.errors import FallbackWarning, OptionError
from symshape.options import Options


def scale(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return x * by


compiled = symshape.compile(scale)
reveal_type(compiled)  # type: def (x: torch._tensor.Tensor, by: float =) -> torch._tensor.Tensor
reveal_type(compiled(torch.ones(3)))  # type: torch._tensor.Tensor
compiled("text")  # error: arg-type
symshape.compile(scale, fullgraph="yes")  # error: call-overload
with_options = symshape.compile(scale, options={"assume": ["x.size(0) <= 64"]}, fullgraph=True, dynamic=None)
reveal_type(with_options(torch.ones(3)))  # type: torch._tensor.Tensor
with_keywords = symshape.compile(scale, assume=["x.size(0) <= 64"], target="cpu", mode="default")
reveal_type(with_keywords(torch.ones(3), by=1.0))  # type: torch._tensor.Tensor


@symshape.compile
def bare(x: torch.Tensor) -> int:
    return x.size(0)


@symshape.compile(fullgraph=True, disable=False, recompile_limit=3)
def with_arguments(x: torch.Tensor, *, times: int) -> torch.Tensor:
    return x * times


reveal_type(bare(torch.ones(3)))  # type: int
reveal_type(with_arguments(torch.ones(3), times=2))  # type: torch._tensor.Tensor
with_arguments(torch.ones(3))  # error: call-arg
decorator: Callable[[Callable[[int], int]], Callable[[int], int]] = symshape.compile(dynamic=False)


class Model(torch.nn.Module):
    @symshape.compile
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @symshape.jit
    def jitted_method(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.method(x)


model = Model()
reveal_type(model.method(torch.ones(3)))  # type: torch._tensor.Tensor
reveal_type(model.jitted_method(torch.ones(3)))  # type: torch._tensor.Tensor
reveal_type(symshape.compile(model)(torch.ones(3)))  # type: Any


@symshape.jit
def jitted(x: torch.Tensor, n: int = 1) -> torch.Tensor:
    return x * n


@symshape.jit(dynamic_shapes={"x": {0: "n"}}, options={"entry_limit": 3})
def declared(x: torch.Tensor) -> torch.Tensor:
    return x


reveal_type(jitted(torch.ones(3), n=2))  # type: torch._tensor.Tensor
reveal_type(declared(torch.ones(3)))  # type: torch._tensor.Tensor
jitted(torch.ones(3), m=2)  # error: call-arg
reveal_type(jitted.entries[0].guards)  # type: tuple[str, ...]
reveal_type(symshape.jit(model).entries[0].graphs[0])  # type: symshape.tools.report.GraphReport

report = symshape.explain(scale, torch.ones(3), options={"target": "triton"})
reveal_type(report)  # type: symshape.tools.report.Report
reveal_type(report.graphs[0].library_calls)  # type: list[str]
reveal_type(report.graphs[0].bytes_accessed(s0=3))  # type: int
print(report.graphs[0].kernel)  # error: attr-defined

reveal_type(Options.parse({"opt_level": 3}).opt_level)  # type: int
Options(target=3)  # error: arg-type
symshape.compiles(scale)  # error: attr-defined

try:
    compiled(torch.ones(3))
except symshape.ShapeConstraintError as error:
    reveal_type(error.values)  # type: dict[str, int]
except (OptionError, symshape.SymshapeError, FallbackWarning):
    pass

store = symshape.ConstraintStore()
reveal_type(store)  # type: symshape.prover.constraint_store.ConstraintStore
