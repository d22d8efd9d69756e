"""Memory planning: reuse of buffers, results written to arguments in place, slices of stacks, waits."""
