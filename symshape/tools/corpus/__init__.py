"""The corpus: questions about sizes that compiling real models asks, and what answers them.

    symshape corpus record       compile models, and write down what the prover and the shape environment were asked
    symshape corpus solve        put every recorded question to symshape, PyTorch's ShapeEnv, isl and z3
    symshape corpus page         the tables and plots of docs/corpus.md
    symshape corpus smtlib MODEL FOLDER    questions as SMT-LIB

``corpus/README.md`` has the format and what the answers mean.
"""
