"""The pass framework: base class, registry of passes by name, pass manager, pipelines as text."""
