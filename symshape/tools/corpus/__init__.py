"""The corpus: questions about sizes that compiling real models asks, and the answers of several solvers.

    symshape corpus record       compile models and record what the prover and PyTorch's shape environment are asked
    symshape corpus solve        put each recorded question to symshape, PyTorch's ShapeEnv, isl and z3
    symshape corpus page         write the tables and plots of docs/corpus.md
    symshape corpus smtlib MODEL FOLDER    write questions as SMT-LIB

``corpus/README.md`` describes the file format and the meaning of answers.
"""
