"""Settings of PyTorch in force while a frame is compiled, chosen for the fewest graphs.

Other users of torch.compile in the process are not affected, and calls of compiled code pay nothing for the settings.
``backed_size_oblivious`` is deliberately not set: its symbols are never 0 for sympy, and with a first size of 1 tracing
fails for rotary embeddings and attention. ``frontend/bridge/general_shape_env.py`` describes the alternative.
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
    """A row that sets an entry of one of PyTorch's configuration modules."""
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
    """A change that sets entries of one of PyTorch's configuration modules."""
    config: Any = importlib.import_module(module)
    change = config._make_closure_patcher(**values)

    def make(changes: Changes) -> None:
        # The revert is made by a patcher that changes no value, so that it is registered before the change.
        changes.callback(config._make_closure_patcher(**{name: getattr(config, name) for name in values})())
        change()

    return make


DYNAMO = "torch._dynamo.config"
FX = "torch.fx.experimental._config"
FUNCTORCH = "torch._functorch.config"
# Further settings of some compiles, by name.
MORE_SETTINGS: dict[str, tuple[Change, ...]] = {
    "symbols": (),
    "all": (configured(DYNAMO, assume_static_by_default=False),),
    "changed": (configured(DYNAMO, assume_static_by_default=True, automatic_dynamic_shapes=True),),
    # as for `dynamic=False`
    "static": (configured(DYNAMO, assume_static_by_default=True, automatic_dynamic_shapes=False),),
    "unlimited": (configured(DYNAMO, recompile_limit=1 << 30, accumulated_recompile_limit=1 << 30),),
}
