"""Unbacked sizes: rules that do not ask for them."""
