"""Inputs of a frame: which become symbols, and which constants."""
