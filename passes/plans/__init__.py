"""Passes of stage ``planned``: they choose variants of each GPU kernel, as a table in its function."""
