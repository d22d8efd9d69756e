"""Opaque calls: calls that cannot be traced with unbacked sizes, as one operator. Selection, probing, inferred fake
rules."""
