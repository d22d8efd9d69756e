"""Lowering rules of ATen ops, as flat tables from overload name to rule."""
