"""Facts about sizes: canonical expressions, bounds, proofs. Knows neither MLIR nor torch.

There are two engines. ``numbers/`` answers from bounds and divisibility of canonical expressions (``Facts``): quick,
and it imports nothing of the other. ``solver/`` decides what is left, by isl with branch and bound.

Their one facade is ``ConditionStore`` (``solver/condition_store.py``): it asks the first, then the second, and says
what an answer follows from. ``ConstraintStore`` (``constraint_store.py``) is the same in sympy's terms, for people and
PyTorch.
Passes and emitters that ask thousands of questions about the facts of one kernel take ``Facts`` itself.
"""
