"""Integers of modules and global variables, in plain frames: constants until one of them has changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch._dynamo import config
from torch._dynamo.symbolic_convert import InstructionTranslator

from symshape.frontend.bridge.shape_env import source_name
from symshape.frontend.opaque_calls.frame_decisions import current_frame
from symshape.frontend.patches.inputs.module_tensors import changed_values, named_module


def keeps_changing(value: int, source: Any) -> bool:
    """Whether an integer that Dynamo meets is to be a symbol: it had another value in the same module, or as a global
    variable, or as many values in modules of one class as a policy allows by default.

    PyTorch keeps such integers constant for ever: a module that counts its calls has eight graphs, and then runs in
    eager mode. Layers of one class, each with its number, still have constants."""
    frame = current_frame()
    if not frame.integers or not (config.automatic_dynamic_shapes or not config.assume_static_by_default):
        return False  # a policy counts, or the user wants constants
    name, decisions, tx = source_name(source), frame.decisions, InstructionTranslator.current_tx()
    for base in _bases(source):
        module = named_module(tx, base)
        if module is not None:
            met = decisions.met.setdefault(name, set())
            met.add(value)
            known = decisions.module_sizes.setdefault(module, {})
            return bool(changed_values(known, name.removeprefix(base), [value])) or len(met) > frame.integers
    is_global = not source.guard_source.is_local()
    return is_global and bool(changed_values(decisions.global_integers, name, [value]))


def _bases(source: Any) -> Iterator[str]:
    """The sources that a source is a part of, the innermost first."""
    while (source := getattr(source, "base", None)) is not None:
        yield source_name(source)
