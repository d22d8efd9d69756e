"""Stage ``shaped``: constraints simplified, implied ones removed, guards hoisted, each size one value."""
