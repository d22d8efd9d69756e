"""Expressions and conditions over sizes, their bounds, and what normal forms decide."""
