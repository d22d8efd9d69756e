"""Writes, runs and minifies repro files: Python files that reproduce a graph's failure with dynamic sizes."""

from symshape.tools.repro.problem import Argument as Argument
from symshape.tools.repro.problem import Problem as Problem
from symshape.tools.repro.run import main as main
