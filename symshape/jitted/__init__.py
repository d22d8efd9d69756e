"""``symshape.jit``: many entries in one function, traced without Dynamo."""
