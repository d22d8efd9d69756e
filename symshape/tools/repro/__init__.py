"""Files that show a failure of a graph again, with dynamic sizes: they are written, run, and made small."""

from symshape.tools.repro.problem import Argument as Argument
from symshape.tools.repro.problem import Problem as Problem
from symshape.tools.repro.run import main as main
