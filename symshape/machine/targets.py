"""What is known of the targets themselves: figures that several of passes, code generation and the runtime go by.

A pass may leave something to an emitter only as far as that emitter goes: such a limit stands here, once.
"""

from typing import Final

# On CPUs: elements that lie side by side and are read as whole vectors, shuffled in registers
# (`codegen/cpu/schedule/interleave.py`). More take more shuffles than a gather costs.
CPU_MOST_INTERLEAVED: Final = 16
CPU_CACHE_LINE: Final = 64  # bytes
GPU_WARP: Final = 32  # threads
GPU_MOST_WARPS: Final = 32  # of a program
