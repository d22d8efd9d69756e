"""AOTAutograd: random draws, gradients, writes to memory, the partition of the joint graph."""
