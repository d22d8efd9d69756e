"""Fake results that differ from eager mode's."""
