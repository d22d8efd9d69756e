"""Repro files: Python files that reproduce the failure of a graph with dynamic sizes. Writes, runs and minifies
them."""

from symshape.tools.repro.problem import Argument as Argument
from symshape.tools.repro.problem import Problem as Problem
from symshape.tools.repro.run import main as main
