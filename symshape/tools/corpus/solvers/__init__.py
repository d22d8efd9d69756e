"""The solvers of the corpus, one file each. Each reads conditions from the same text into its own expressions."""
