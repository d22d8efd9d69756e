"""Rewrites of FX graphs before they are imported: masks, ``out=`` arguments, assertions, aliasing, order of draws."""
