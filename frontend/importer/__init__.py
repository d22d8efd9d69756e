"""Imports FX graphs as IR: the stage ``imported``."""
