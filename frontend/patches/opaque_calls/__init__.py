"""Calls without a fake rule."""
