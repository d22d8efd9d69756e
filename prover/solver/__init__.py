"""The solver for conditions that normal forms do not decide: integer sets (isl), branch and bound, and the fact
store."""
