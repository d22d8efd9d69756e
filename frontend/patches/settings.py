"""Settings of PyTorch that are in force while a frame of ours is compiled: those of the fewest graphs.

Nothing global changes for other users of torch.compile in the same process, and a call of what is compiled pays nothing
for them. Left alone on purpose: ``backed_size_oblivious``. Its symbols are never 0 for sympy, and at a first size of 1
tracing fails for rotary embeddings and attention; ``frontend/bridge/general_shape_env.py`` says what is done instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes, Patch, Phase, Scope, always
from symshape.frontend.patches.probes import Exists

Change = Callable[[Changes], None]


def setting(
    module: str,
    name: str,
    value: bool,
    phases: tuple[Phase, ...],
    why: str,
    when: Callable[[Scope], bool] = always,
) -> Patch:
    """A row that sets an entry of a configuration module of PyTorch."""
    probe = Exists(f"{module}.{name}", "bool")
    return Patch(
        f"{name} = {value}",
        phases,
        (probe.name,),
        configured(module, **{name: value}),
        why,
        (probe,),
        is_setting=True,
        when=when,
    )


def configured(module: str, **values: int) -> Change:
    """Sets entries of a configuration module."""
    config: Any = importlib.import_module(module)
    change = config._make_closure_patcher(**values)

    def make(changes: Changes) -> None:
        # What reverts the change is made by one that changes no value, so that it is known before.
        changes.callback(config._make_closure_patcher(**{name: getattr(config, name) for name in values})())
        change()

    return make


DYNAMO = "torch._dynamo.config"
FUNCTORCH = "torch._functorch.config"
# What else is in force for some compiles.
MORE_SETTINGS: dict[str, tuple[Change, ...]] = {
    "symbols": (),
    "changed": (configured(DYNAMO, assume_static_by_default=True, automatic_dynamic_shapes=True),),
    # as for `dynamic=False`
    "static": (configured(DYNAMO, assume_static_by_default=True, automatic_dynamic_shapes=False),),
    "unlimited": (configured(DYNAMO, recompile_limit=1 << 30, accumulated_recompile_limit=1 << 30),),
}
