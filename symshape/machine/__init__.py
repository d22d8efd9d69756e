"""What the compiler and compiled code both know of this machine and this process."""
