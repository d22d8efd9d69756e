"""Unnecessary work while tracing."""
