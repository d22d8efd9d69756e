"""Expressions and conditions over sizes, their bounds, and decisions without a solver."""
