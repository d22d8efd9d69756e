"""The launcher on a GPU, with a stand-in for the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["launches", "compiles_without_the_driver"])
def test_on_a_gpu(name: str, tmp_path: Path) -> None:
    """In a process in which Triton is not the interpreter."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(ROOT), str(ROOT / "test" / "support"), environment.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path)}
    result = subprocess.run([sys.executable, __file__, name], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


class Compiled:
    """In the place of a compiled kernel: notes each launch of it."""

    def __init__(self, name: str, launched: list[tuple[str, int, tuple[object, ...]]]) -> None:
        self.name, self.launched = name, launched

    def __getitem__(self, grid: tuple[int, int, int]) -> object:
        return lambda *arguments: self.launched.append((self.name, grid[0], arguments))


def launches() -> None:
    import contextlib
    from unittest import mock

    import torch
    from triton_cases import S0, S1, loops, softmax

    from symshape.artifact.triton_kernels import TritonStage
    from symshape.codegen.triton.kernel import emit_triton
    from symshape.codegen.variants import Variant
    from symshape.prover.numbers.condition import TRUE, at_least
    from symshape.prover.numbers.expr import Expr
    from symshape.runtime.triton import launch as triton_launch

    kernel = emit_triton(
        loops(softmax()),
        [
            Variant("short", "persistent", at_least(64, S1), 4, rblock=64, num_warps=1),
            Variant("rows", "looped", at_least(S0, Expr.symbol("processors")), 1, rblock=128, num_warps=1),
            Variant("rest", "split", TRUE, 1, 4, 128, num_warps=1, splits=Expr.symbol("processors"), index_bits=64),
        ],
    )

    launched: list[tuple[str, int, tuple[object, ...]]] = []

    class Tensor:
        device = torch.device("cuda", 0)

        def __init__(self, address: int) -> None:
            self.address = address

        def data_ptr(self) -> int:
            return self.address

    def compile_stage(_kernel: object, _variant: object, stage: TritonStage, _function: object) -> Compiled:
        return Compiled(stage.function, launched)

    with (
        mock.patch.object(triton_launch, "compile_stage", compile_stage),
        mock.patch.object(triton_launch, "_empty", lambda size, dtype, _device: f"{dtype}[{size}]"),
        mock.patch.object(triton_launch, "current_gpu", lambda: 0),
        mock.patch.object(torch.cuda, "device", lambda _device: contextlib.nullcontext()),
    ):
        launch = triton_launch.load_triton(kernel, processors=3)
        x, out = Tensor(4096), Tensor(8192)
        launch(x, out, 0, 7)
        assert launched == []
        launch(x, out, 5, 7)
        ((name, programs, arguments),) = launched
        assert (name, programs, arguments[:4]) == ("softmax_persistent", 2, (4096, 8192, 5, 7))
        assert arguments[5:] == (4, 64)
        launched.clear()
        launch(x, out, 2, 900)
        names = ("softmax_partial0", "softmax_combine0", "softmax_partial1")
        assert [call[:2] for call in launched] == list(zip(names, (6, 2, 6)))
        assert launched[0][2][:6] == (4096, 8192, 2, 900, "f32[16]", 3)


def compiles_without_the_driver() -> None:
    """The driver is C code: a compiler would run for it. The hash of Triton's files is known when a kernel is made."""
    from unittest import mock

    import torch
    from triton_cases import loops, softmax

    from symshape.codegen.triton.kernel import emit_triton
    from symshape.codegen.variants import Variant
    from symshape.prover.numbers.condition import TRUE
    from symshape.runtime.triton.binary import compile_stage, hash_of_triton
    from symshape.runtime.triton.launch import load_source

    kernel = emit_triton(loops(softmax()), [Variant("rows", "looped", TRUE, 1, rblock=128, num_warps=1)])
    (variant,) = kernel.variants
    (stage,) = variant.stages
    with (
        mock.patch.object(torch.cuda, "get_device_capability", lambda: (9, 0)),
        mock.patch("triton.compiler.compiler.driver", mock.NonCallableMock(spec=[])),  # which has no attributes
    ):
        compiled = compile_stage(kernel, variant, stage, load_source(kernel)[stage.function])
    assert ".target sm_90" in compiled.asm["ptx"] and compiled.asm["cubin"]
    assert not hash_of_triton().is_alive()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
