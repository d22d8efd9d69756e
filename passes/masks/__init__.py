"""Boolean masks that are left in the IR."""
