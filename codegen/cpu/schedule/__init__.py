"""In which order and in which form a kernel's points are computed."""
