"""FX graph to the ``imported`` stage."""
