"""Finite problems: the model, exact evaluation, the operators of the paper, and the exact solvers."""
