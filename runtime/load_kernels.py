"""Loads the kernels of a compiled graph into the process."""

from __future__ import annotations

from collections.abc import Callable

from symshape.artifact.kernel_image import KernelImage


def load_kernels(image: KernelImage, *, autotune: bool = False) -> dict[str, Callable[..., None]]:
    """Name -> callable, in the launch convention of the target. ``autotune``: Triton kernels choose among their
    variants by measured time; those that launch others do so by sizes."""
    loaded: dict[str, Callable[..., None]] = {}
    if image.arguments:
        from symshape.runtime.cpu.load_objects import load_object

        loaded.update(load_object(image.object_code, image.arguments))
    if image.triton:
        from symshape.runtime.triton.launch import load_triton
        from symshape.runtime.triton.tuned_launch import load_tuned

        for kernel in sorted(image.triton, key=lambda kernel: len(kernel.calls) > 0):
            if kernel.calls:
                others = {name: loaded[image.equal.get(name, name)] for name in kernel.calls}
                loaded[kernel.name] = load_triton(kernel, others=others)
                continue
            tuned = autotune and all(variant.form != "scatter" for variant in kernel.variants)  # no choice there
            loaded[kernel.name] = (load_tuned if tuned else load_triton)(kernel)
    return loaded | {name: loaded[other] for name, other in image.equal.items()}
