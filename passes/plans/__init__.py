"""Passes of stage ``planned``: they choose the variants of each GPU kernel and write them as a table in its
function."""
