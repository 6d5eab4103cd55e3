"""Finite decision problems: the model, exact policy evaluation, the operators of the paper, the exact solvers."""
