"""A process that checks variants: a task as a line of JSON comes in, a line of results goes out.

Started by pool.py. What anything else prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import AbstractContextManager
from typing import Any


def settings() -> AbstractContextManager[Any]:
    """What is in force for every backend alike. Sizes that are in the data are traced, as fullgraph needs it."""
    import torch._dynamo

    return torch._dynamo.config.patch(
        capture_scalar_outputs=True,
        capture_dynamic_output_shape_ops=True,
        recompile_limit=64,
        accumulated_recompile_limit=4096,
    )


def answer(task: dict[str, Any]) -> list[dict[str, Any]]:
    """Results of one variant: a record for each backend of the task."""
    import torch
    from check import check
    from variants import variants

    variant = variants()[task["key"]]
    dtype = getattr(torch, task["dtype"])
    with settings():
        return [
            check(
                variant, dtype, backend, task["most"], target=task["target"] if backend == "symshape" else ""
            ).record()
            for backend in task["backends"]
        ]


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["SYMSHAPE_CACHE"] = "0"
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        task = json.loads(line)
        seconds = int(time.process_time() + task["limit"]) + 1  # of the processor: another program may need the machine
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        print(json.dumps(answer(task)), file=out, flush=True)


if __name__ == "__main__":
    main()
