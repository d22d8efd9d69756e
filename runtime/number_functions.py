"""Functions of numbers that host programs and guards call in place of Python's methods."""

from __future__ import annotations


def bit_length(number: int) -> int:
    """``int.bit_length``"""
    return number.bit_length()


def has_integer_value(number: float) -> int:
    """``float.is_integer``: 0 or 1"""
    return int(float(number).is_integer())


def rounded(number: int, digits: int) -> int:
    """``round`` of an integer: with -1 digits to tens"""
    return round(number, digits)
