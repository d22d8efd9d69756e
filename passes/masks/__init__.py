"""Boolean masks that the rewrite mask-to-where has left in the graph."""
