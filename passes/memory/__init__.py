"""Which memory a value lies in."""
