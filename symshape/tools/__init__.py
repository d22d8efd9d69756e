"""Command-line tools, reports and measurements."""
