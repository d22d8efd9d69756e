"""What is known of the targets themselves: figures by which passes choose and code generation prints.

A figure stands here if both read it: a pass may leave something to an emitter only as far as that emitter goes.
"""

from typing import Final

# On CPUs: elements that lie side by side and are read as whole vectors, shuffled in registers
# (`codegen/cpu/schedule/interleave.py`). More take more shuffles than a gather costs.
CPU_MOST_INTERLEAVED: Final = 16
GPU_WARP: Final = 32  # threads
GPU_MOST_WARPS: Final = 32  # of a program
