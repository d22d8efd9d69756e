"""Math functions as arithmetic on vectors."""
