"""Facts about sizes: canonical expressions, bounds, proofs. Knows neither MLIR nor torch.

There are two engines. ``numbers/`` decides by bounds and divisibility of canonical expressions (``Facts``): it is fast,
and imports nothing of the other. ``solver/`` decides what is left, by isl with branch and bound.

Their facade is ``ConditionStore`` (``solver/condition_store.py``): it queries the first, then the second, and returns
the facts that an answer follows from. ``ConstraintStore`` (``constraint_store.py``) is the same with sympy expressions,
for people and PyTorch. Passes and emitters, which query the facts of one kernel thousands of times, use ``Facts``
itself.
"""
