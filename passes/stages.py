"""The stages between ``imported`` and ``program``, and the passes of each, in order."""

from __future__ import annotations

from symshape.errors import OptionError

STAGES: dict[str, tuple[str, ...]] = {
    "imported": (),
    "shaped": ("simplify-constraints", "eliminate-implied", "hoist-guards", "resolve-dims"),
    "linalg": (
        "outline-layers",
        "compact-masks",
        "lower-aten",
        "inline-scans",
        "unroll-reductions",
        "drop-repeated-checks",
        "inline-into-gathers",
    ),
    "kernels": (
        "fuse-kernels",
        "outline-scatters",
        "fuse-into-scatters",
        "inline-layers",
        "sink-waits",
        "write-slices",
        "write-inputs",
        "reuse-buffers",
    ),
    "planned": ("mix-reductions", "plan-reductions", "plan-tiles", "plan-index-width", "plan-alignment"),
}
# Of a stage whose passes have nothing to do for others. Their modules are not even loaded.
TARGETS: dict[str, tuple[str, ...]] = {"planned": ("triton",)}


def passes_between(start: str, end: str) -> list[str]:
    """Pipeline elements that take a module in stage ``start`` to stage ``end``; none where they are the same.

    OptionError for a stage that does not exist, or an ``end`` before ``start``.
    """
    names = list(STAGES)
    for stage in (start, end):
        if stage not in STAGES:
            raise OptionError(f"unknown stage '{stage}'", next_step=f"the stages are {', '.join(names)}")
    if names.index(end) < names.index(start):
        raise OptionError(
            f"stage '{end}' comes before stage '{start}', and no pass leads back",
            next_step=f"the stages are {', '.join(names)}, in this order",
        )
    return [name for stage in names[names.index(start) + 1 : names.index(end) + 1] for name in STAGES[stage]]


def stages_after(start: str) -> list[str]:
    """The stages that follow one, in order."""
    names = list(STAGES)
    return names[names.index(start) + 1 :]


def last_pass(stage: str) -> str | None:
    """The pass after which a module is in ``stage``; None where no pass makes it."""
    return STAGES[stage][-1] if STAGES.get(stage) else None
