"""The suite on processors that this machine can pass for: ``make test-cpus``. Arguments go to pytest.

Three runs: PyTorch's kernels without vector instructions, with AVX2, and as they are; our own held to x86-64-v2, v3 and
v4 (the highest that this processor has); MKL as on a processor with AVX2; one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from symshape.knobs import CPU
from symshape.machine.instruction_sets import NATIVE, held

ROOT = Path(__file__).parent.parent


def runs() -> list[dict[str, str]]:
    """The environment of each run; on a machine with no levels (aarch64) there are two."""
    levels = held()
    found = [{"ATEN_CPU_CAPABILITY": "default", CPU.name: levels[0] if levels else NATIVE}]
    if "x86-64-v3" in levels:
        # oneDNN is left as it is: held to AVX2 it has no bfloat16 LSTM, which eager mode asks the processor for.
        held_to_avx2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", CPU.name: "x86-64-v3"}
        found.append(held_to_avx2)
    found.append({CPU.name: levels[-1] if levels else NATIVE, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    return found


def main() -> int:
    """0 where all runs pass; all are made, whatever fails."""
    failed = []
    for settings in runs():
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        print(f"== {shown}", flush=True)
        command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
        if subprocess.run(command, cwd=ROOT, env=os.environ | settings, check=False).returncode:
            failed.append(shown)
    for shown in failed:
        print(f"failed: {shown}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
