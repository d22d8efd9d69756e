"""Checks and their messages, and errors while tracing."""
