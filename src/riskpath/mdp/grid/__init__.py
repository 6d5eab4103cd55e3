"""Solvers of problems with a continuous state of few dimensions: a table over a grid, with bounds from simulation."""
