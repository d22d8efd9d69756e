"""The launcher on a GPU, with a stand-in for the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_launches_on_a_gpu(tmp_path: Path) -> None:
    """In a process in which Triton is not the interpreter."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(ROOT), str(ROOT / "test" / "support"), environment.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path)}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


class Compiled:
    """In the place of a compiled kernel: notes each launch of it."""

    def __init__(self, name: str, launched: list[tuple[str, int, tuple[object, ...]]]) -> None:
        self.name, self.launched = name, launched

    def __getitem__(self, grid: tuple[int, int, int]) -> object:
        return lambda *arguments: self.launched.append((self.name, grid[0], arguments))


def main() -> None:
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


if __name__ == "__main__":
    main()
